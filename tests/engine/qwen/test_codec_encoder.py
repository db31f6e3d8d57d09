"""The codec's encoder: the reference's codes on tiny random checkpoints of two seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rtts.engine.qwen.codec_encoder import CodecEncoder, CodecEncoderConfig
from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.weights import open_weights
from rtts.errors import ConfigError
from tests.engine.qwen.tiny import GOLDEN, sweep

GOLD = json.loads((GOLDEN / "encoder.json").read_text())["codes"]


def encoder(folder: Path) -> CodecEncoder:
    config = load_config(folder)
    weights = open_weights(folder / "speech_tokenizer", torch.float32, "cpu")
    return CodecEncoder(weights, config.codec_encoder, config.codec)


@pytest.mark.parametrize("case", sorted(GOLD))
def test_codes_are_the_references(checkpoint: Callable[[str, int], Path], case: str) -> None:
    """Half a second with a part of a frame, and 11 s: more than the window that later versions of
    the reference's library cut attention to."""
    seed, samples = map(int, case.split("-"))
    codes = encoder(checkpoint("base", seed)).encode(sweep(samples))
    assert codes.tolist() == GOLD[case]


@pytest.mark.parametrize("samples", [1, 1919, 1920, 1921, 3841])
def test_a_frame_for_each_begun(checkpoint: Callable[[str, int], Path], samples: int) -> None:
    """Any length has its frames, and what follows changes nothing before it."""
    made = encoder(checkpoint("base", 0))
    codes = made.encode(sweep(samples))
    assert codes.shape == (-(-samples // 1920), 16)
    whole = made.encode(sweep(9600))[: samples // 1920]
    assert torch.equal(codes[: samples // 1920], whole)


def test_other_encoders_are_refused() -> None:
    """Settings that the encoder is not built for are named."""
    assert CodecEncoderConfig.read({"num_filters": 8, "unknown": 1}).num_filters == 8
    with pytest.raises(ConfigError, match="use_causal_conv"):
        CodecEncoderConfig.read({"use_causal_conv": False})
