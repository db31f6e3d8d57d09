"""The machine's GPUs as the driver sees them, through NVML: memory and how busy they are.

The engine may run in another process, so it is the driver that is asked. Knows nothing about
engines. Without NVML or without a GPU it says so, in words.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import shutil
from dataclasses import dataclass
from typing import Any

from rtts.metrics import Metrics

INTERVAL_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU now.

    Attributes:
        utilization: Share of the last moment in which a kernel ran, 0 to 1; None where the driver
            does not say.
    """

    name: str
    used_bytes: int
    total_bytes: int
    utilization: float | None


class Gpus:
    """Reads the GPUs.

    Owner: the thread that reads, one at a time.

    Attributes:
        reason: Why there is nothing to read, or "".
    """

    def __init__(self, nvml: Any | None = None) -> None:
        """Find NVML and the GPUs.

        Args:
            nvml: The module `pynvml`, by default the installed one.
        """
        self.reason = ""
        self._handles: list[tuple[str, Any]] = []
        self._nvml = nvml
        if nvml is None:
            try:
                self._nvml = importlib.import_module("pynvml")
            except ImportError:
                has_driver = shutil.which("nvidia-smi") is not None
                self.reason = "nvidia-ml-py is not installed" if has_driver else "no GPU"
                return
        self._open()

    def _open(self) -> None:
        nvml: Any = self._nvml
        try:
            nvml.nvmlInit()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                self._handles.append((_text(nvml.nvmlDeviceGetName(handle)), handle))
        except nvml.NVMLError as error:
            self._handles.clear()
            self.reason = "no GPU"
            log.debug("NVML: %s", error)
            return
        self.reason = "" if self._handles else "no GPU"

    def read(self) -> tuple[Gpu, ...]:
        """Every GPU now; one that has stopped answering is left out."""
        nvml: Any = self._nvml
        found = []
        for name, handle in self._handles:
            try:
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            except nvml.NVMLError as error:
                log.warning("GPU %s does not answer: %s", name, error)
                continue
            found.append(Gpu(name, int(memory.used), int(memory.total), self._busy(handle)))
        return tuple(found)

    def _busy(self, handle: Any) -> float | None:
        nvml: Any = self._nvml
        try:
            return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
        except nvml.NVMLError:  # MIG slices have none
            return None

    def close(self) -> None:
        """Let NVML go."""
        nvml: Any = self._nvml
        if self._handles:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
        self._handles.clear()


class GpuSampler:
    """Reads the GPUs once a second, on a thread: a driver call may take milliseconds.

    Owner: event loop.

    Attributes:
        latest: What was read last.
        reason: Why there is nothing, or "".
    """

    def __init__(self, metrics: Metrics, nvml: Any | None = None) -> None:
        self.latest: tuple[Gpu, ...] = ()
        self.reason = "not read yet"
        self._metrics = metrics
        self._nvml = nvml
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; `stop` ends it."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        gpus = await asyncio.to_thread(Gpus, self._nvml)
        self.reason = gpus.reason
        try:
            while not gpus.reason:
                self._show(await asyncio.to_thread(gpus.read))
                await asyncio.sleep(INTERVAL_S)
        finally:
            gpus.close()

    def _show(self, found: tuple[Gpu, ...]) -> None:
        self.latest = found
        for index, gpu in enumerate(found):
            label = str(index)
            self._metrics.gpu_memory.labels(label, "used").set(gpu.used_bytes)
            self._metrics.gpu_memory.labels(label, "total").set(gpu.total_bytes)
            if gpu.utilization is not None:
                self._metrics.gpu_utilization.labels(label).set(gpu.utilization)

    @property
    def memory_share(self) -> float | None:
        """Of the fullest GPU."""
        shares = [gpu.used_bytes / gpu.total_bytes for gpu in self.latest if gpu.total_bytes]
        return max(shares, default=None)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
