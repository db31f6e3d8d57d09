"""GPU figures come from NVML; where there is none, that is said."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

import pytest

from rtts.metrics import Metrics
from rtts.server import gpu
from rtts.server.gpu import Gpu, Gpus, GpuSampler
from tests.server.raw import eventually


class FakeNvml:
    """The part of pynvml that is used, of a machine with some GPUs."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, count=2, fails=(), sliced=False):
        self.count, self.fails, self.sliced, self.is_open = count, set(fails), sliced, False
        self.busy = 40

    def nvmlInit(self):
        if "init" in self.fails:
            raise self.NVMLError("Driver Not Loaded")
        self.is_open = True

    def nvmlShutdown(self):
        self.is_open = False

    def nvmlDeviceGetCount(self):
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return b"H200" if handle else "H200"  # older versions give bytes

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle in self.fails:
            raise self.NVMLError("GPU is lost")
        return SimpleNamespace(used=(handle + 1) * 2**30, total=4 * 2**30)

    def nvmlDeviceGetUtilizationRates(self, handle):
        if self.sliced:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=self.busy, memory=1)


def test_gpus_are_read():
    """Memory in bytes, utilisation as a share."""
    gpus = Gpus(FakeNvml())
    assert gpus.reason == ""
    assert gpus.read() == (
        Gpu("H200", 2**30, 4 * 2**30, 0.4),
        Gpu("H200", 2 * 2**30, 4 * 2**30, 0.4),
    )


def test_a_slice_has_no_utilisation_and_a_lost_gpu_is_left_out():
    """What the driver does not say is not made up."""
    assert [each.utilization for each in Gpus(FakeNvml(sliced=True)).read()] == [None, None]
    assert len(Gpus(FakeNvml(fails={0})).read()) == 1


@pytest.mark.parametrize("nvml", [FakeNvml(fails={"init"}), FakeNvml(count=0)])
def test_no_gpu(nvml):
    """No driver, or no device: there is nothing to read."""
    gpus = Gpus(nvml)
    assert (gpus.reason, gpus.read()) == ("no GPU", ())


@pytest.mark.parametrize(
    ("tool", "reason"),
    [("/usr/bin/nvidia-smi", "nvidia-ml-py is not installed"), (None, "no GPU")],
)
def test_no_nvml(monkeypatch, tool, reason):
    """The package is optional, and nobody is sent for it where there is no driver."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: tool)
    assert Gpus().reason == reason


async def test_the_sampler_fills_metrics_and_stops(monkeypatch):
    """Read again and again until it is stopped; then NVML is closed."""
    monkeypatch.setattr(gpu, "INTERVAL_S", 0.01)
    nvml, metrics = FakeNvml(), Metrics(budget_s=0.5, version="0")
    sampler = GpuSampler(metrics, nvml)
    sampler.start()
    await eventually(lambda: sampler.latest)

    def value(name, **labels):
        return metrics.registry.get_sample_value(name, labels)

    assert value("rtts_gpu_utilization_ratio", gpu="1") == 0.4
    assert value("rtts_gpu_memory_bytes", gpu="1", kind="used") == 2 * 2**30
    assert value("rtts_gpu_memory_bytes", gpu="0", kind="total") == 4 * 2**30
    assert sampler.memory_share == 0.5
    nvml.busy = 70
    await eventually(lambda: value("rtts_gpu_utilization_ratio", gpu="0") == 0.7)
    sampler.stop()
    await eventually(lambda: not nvml.is_open)
    await asyncio.sleep(0)
