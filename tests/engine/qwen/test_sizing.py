"""Slots from memory: as many as fit, never one more, and advice that works."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.qwen.checkpoint import write_settings
from rtts.engine.qwen.config import ModelConfig, load_config
from rtts.engine.qwen.options import QwenOptions
from rtts.engine.qwen.sizing import CPU_SLOTS, MEMORY_LIMIT, DeviceMemory, cpu_slots, size_gpu
from rtts.errors import ConfigError

GIB = 2**30
AUTO = QwenOptions(device="cuda", slots="auto")


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelConfig]:
    root = tmp_path_factory.mktemp("sizes")
    for size in ("0.6b", "1.7b"):
        write_settings(root / size, size, "base")
    return {size: load_config(root / size) for size in ("0.6b", "1.7b")}


@given(
    size=st.sampled_from(["0.6b", "1.7b"]),
    total_gib=st.floats(4, 141),
    free=st.floats(0, 1),
    positions=st.integers(128, 8192),
    value_bytes=st.sampled_from([2, 4]),
)
@settings(max_examples=200, deadline=None)
def test_as_many_as_fit(
    configs: dict[str, ModelConfig],
    size: str,
    total_gib: float,
    free: float,
    positions: int,
    value_bytes: int,
) -> None:
    """`auto` fits below the limit, one more does not, and what it advises is accepted as a number."""
    device = DeviceMemory(int(free * total_gib * GIB), int(total_gib * GIB))
    options = replace(AUTO, positions=positions)
    try:
        sizing = size_gpu(options, configs[size], value_bytes, device)
    except ConfigError:
        with pytest.raises(ConfigError, match="for one slot"):
            size_gpu(replace(options, slots=1), configs[size], value_bytes, device)
        return
    used = device.total_bytes - device.free_bytes
    taken = sizing.plan.total_bytes(sizing.slots, positions)
    assert used + taken <= MEMORY_LIMIT * device.total_bytes + 1
    same = size_gpu(replace(options, slots=sizing.slots), configs[size], value_bytes, device)
    assert same == sizing
    if sizing.slots < 512:
        with pytest.raises(ConfigError, match=f"works with {sizing.slots} slots") as caught:
            size_gpu(replace(options, slots=sizing.slots + 1), configs[size], value_bytes, device)
        assert caught.value.message.startswith(f"qwen.slots: {sizing.slots + 1} ")


def test_the_report_adds_up(configs: dict[str, ModelConfig]) -> None:
    """What the parts say is what the plan takes in all, and the sentence has the same figures."""
    sizing = size_gpu(AUTO, configs["1.7b"], 2, DeviceMemory(23 * GIB, 24 * GIB))
    parts = dict(sizing.memory)
    usable = parts.pop("usable")
    assert sum(parts.values()) == sizing.plan.total_bytes(sizing.slots, AUTO.positions) <= usable
    assert re.match(rf"{sizing.slots} slots of \d+ MiB, weights \d\.\d GiB", str(sizing))


@pytest.mark.parametrize(
    ("size", "total_gib", "at_least"), [("0.6b", 8, 1), ("1.7b", 24, 32), ("1.7b", 141, 256)]
)
def test_cards(configs: dict[str, ModelConfig], size: str, total_gib: int, at_least: int) -> None:
    """0.6B works in 8 GB, 1.7B with 32 slots in 24 GB: cards of that size, with nothing else on them."""
    total = total_gib * GIB
    sizing = size_gpu(AUTO, configs[size], 2, DeviceMemory.untouched(total, total))
    assert sizing.slots >= at_least


def test_too_small(configs: dict[str, ModelConfig]) -> None:
    """Where not even one slot fits, the message says what is needed and what there is."""
    with pytest.raises(ConfigError, match=r"^qwen\.device: cuda has 1\.\d GiB to use of 2\.0 GiB"):
        size_gpu(AUTO, configs["1.7b"], 2, DeviceMemory(2 * GIB, 2 * GIB))
    hungry = replace(AUTO, prefix_bytes=20 * GIB)
    with pytest.raises(ConfigError, match=r"a smaller qwen\.prefix_bytes would do"):
        size_gpu(hungry, configs["0.6b"], 2, DeviceMemory(8 * GIB, 8 * GIB))


def test_cpu() -> None:
    """On a CPU `auto` is a fixed number, and a number is itself."""
    assert cpu_slots(QwenOptions(slots="auto")) == CPU_SLOTS
    assert cpu_slots(QwenOptions(slots=3)) == 3
