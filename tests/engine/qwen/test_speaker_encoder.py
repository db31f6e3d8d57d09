"""Reference audio to an x-vector, as the reference package makes it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.speaker_encoder import SpeakerEncoder, mel_filters
from rtts.engine.qwen.weights import open_weights
from tests.engine.qwen.tiny import GOLDEN


def tone() -> torch.Tensor:
    """The reference audio of the golden codes: 0.8 s of 220 Hz and a little of its overtone."""
    t = torch.arange(19200, dtype=torch.float64) / 24000
    wave = 0.3 * torch.sin(2 * math.pi * 220.0 * t)
    return (wave + 0.05 * torch.sin(2 * math.pi * 3.1 * 220.0 * t)).float()


@pytest.mark.parametrize("seed", [0, 7])
def test_x_vectors_are_the_references(checkpoint: Callable[[str, int], Path], seed: int) -> None:
    """The x-vector of the golden reference audio, on two widths."""
    folder = checkpoint("base", seed)
    config = load_config(folder).speaker_encoder
    assert config is not None
    encoder = SpeakerEncoder(open_weights(folder, torch.float32, "cpu"), config)
    expected = torch.tensor(
        json.loads((GOLDEN / "codes.json").read_text())["references"][str(seed)]["x_vector"]
    )
    assert (expected - encoder.encode(tone())).abs().max() < 1e-4 * expected.abs().max()


def test_filters_have_unit_area() -> None:
    """Every filter is a triangle of unit area (Slaney's normalisation), none is empty."""
    areas = mel_filters().double().sum(1) * (24000 / 1024)
    assert (areas - 1).abs().max() < 0.4  # the narrow ones are coarsely sampled
    assert (areas[64:] - 1).abs().max() < 0.05
