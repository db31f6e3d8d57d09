"""What a checkpoint is said to take on a GPU is what its tensors take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rtts.engine.qwen.checkpoint import write_settings
from rtts.engine.qwen.config import ModelConfig, load_config
from rtts.engine.qwen.frame import Model
from rtts.engine.qwen.kv_cache import KeyValues
from rtts.engine.qwen.memory import CONTEXT_BYTES, MIB, plan_memory, usable_bytes
from rtts.engine.qwen.weights import Weights

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
SIZES = ("tiny", "0.6b", "1.7b")


class Shapes(Weights):
    """Tensors without data."""

    def take(self, name: str, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.dtype, device="meta")


def config_of(folder: Path, size: str) -> ModelConfig:
    write_settings(folder / size, size, "custom_voice")
    return load_config(folder / size)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", SIZES)
def test_weights_are_counted_exactly(tmp_path: Path, size: str, dtype: torch.dtype) -> None:
    """The plan's weights are the modules' parameters, text tabulated, and the kernels' copies."""
    config = config_of(tmp_path, size)
    model = Model(
        tmp_path / size,
        dtype,
        "meta",
        read=lambda _, dtype_, device: Shapes({}, "", dtype_, device),
    )
    values = model.talker.tabulate_text().numel()
    values += sum(parameter.numel() for parameter in model.parameters())
    inner = config.predictor.stack.hidden
    if model.predictor.project is not None:
        codes = (config.predictor.groups - 1) * config.predictor.vocab
        values += (config.talker.vocab + codes) * inner
    values += sum(  # convolutions of more than one tap, in the kernels' order of axes
        parameter.numel()
        for name, parameter in model.codec.named_parameters()
        if name.endswith("weight") and parameter.ndim == 3 and parameter.shape[2] > 1
    )
    assert plan_memory(config, value_bytes=dtype.itemsize).weights_bytes == values * dtype.itemsize


@pytest.mark.parametrize("size", SIZES)
def test_keys_and_values_are_counted_exactly(tmp_path: Path, size: str) -> None:
    """Slots differ by what their positions take in the cache, to the byte."""
    config = config_of(tmp_path, size)
    plan = plan_memory(config)
    kv = KeyValues.allocate(config.talker.stack, 3, 100, torch.bfloat16, "meta")
    assert 3 * (plan.slot_bytes(100) - plan.stream_bytes) == kv.nbytes


def test_the_plan_covers_what_was_measured(tmp_path: Path) -> None:
    """The driver's count with every slot speaking: never more than planned, and at most 5 % less.

    The cache of voice heads is left out: it was next to empty.
    """
    (path,) = RESULTS.glob("qwen_memory-h200-*.json")
    cases = json.loads(path.read_text())["results"]["cases"]
    plans = {size: plan_memory(config_of(tmp_path, size)) for size in ("0.6b", "1.7b")}
    for case in cases:
        assert case["speaking"] == case["slots"]
        taken = case["measured"]["spoken"]["device"]
        plan = plans[case["size"]]
        planned = plan.total_bytes(case["slots"], case["positions"]) + CONTEXT_BYTES
        assert taken <= planned <= 1.05 * taken
    assert {case["size"] for case in cases} == set(plans)


@pytest.mark.parametrize("positions", [128, 512, 2048])
@pytest.mark.parametrize("size", SIZES)
def test_slots_for_is_the_most_that_fit(tmp_path: Path, size: str, positions: int) -> None:
    """What it says fits, and one more does not; more memory never gives fewer slots."""
    plan = plan_memory(config_of(tmp_path, size))
    found = []
    for free in range(0, 64 * 2**30, 900 * MIB):
        slots = plan.slots_for(free, positions, most=200)
        assert slots == 0 or plan.total_bytes(slots, positions) <= free
        assert slots == 200 or plan.total_bytes(slots + 1, positions) > free
        found.append(slots)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 200)


def test_the_cache_of_voice_heads_is_part_of_the_plan(tmp_path: Path) -> None:
    """What the cache may grow to is kept free for it."""
    config = config_of(tmp_path, "0.6b")
    with_cache = plan_memory(config, prefix_bytes=MIB).total_bytes(4, 512)
    assert with_cache - plan_memory(config).total_bytes(4, 512) == MIB


def test_usable_memory_ends_where_a_device_counts_as_full() -> None:
    """Of 100 bytes with 80 free and a limit of nine tenths, 70 may be taken; of a full one, none."""
    assert usable_bytes(80, 100, 0.9) == 70
    assert usable_bytes(5, 100, 0.9) == 0
