"""Checkpoints and models shared by the Qwen tests. Importing torch fails loudly: it is needed here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from rtts.engine.qwen.frame import Model
from tests.engine.qwen import tiny


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tiny tensors: two threads are many times slower than one."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """The folder of a tiny checkpoint by (kind, seed); built once."""

    @cache
    def build(kind: str, seed: int) -> Path:
        return tiny.build(tmp_path_factory.mktemp("qwen") / f"{kind}-{seed}", kind, seed)

    return build


@pytest.fixture(scope="session")
def model(checkpoint: Callable[[str, int], Path]) -> Callable[[str, int], Model]:
    """The float32 model of a tiny checkpoint; loaded once."""

    @cache
    def load(kind: str, seed: int) -> Model:
        return Model(checkpoint(kind, seed), torch.float32, "cpu")

    return load
