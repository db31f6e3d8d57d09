"""Registering voices: x-vector files without further packages, refusals by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rtts.engine.qwen.clone import register_voice
from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.references import VoiceShelf
from rtts.errors import BadRequestError, ConfigError


def test_registered_and_loaded(checkpoint: Callable[[str, int], Path], tmp_path: Path) -> None:
    """What is registered is loaded under its file's name; other audio is another voice."""
    model = checkpoint("base", 0)
    noise = torch.rand(2, 24000, generator=torch.Generator().manual_seed(1)) - 0.5
    for name, samples in (("one", noise[0]), ("two", noise[1])):
        register_voice(model, tmp_path / f"{name}.safetensors", samples, language="en")
    shelf = VoiceShelf(tmp_path, load_config(model), torch.float32, torch.device("cpu"))
    voices = shelf.voices
    assert list(voices) == ["one", "two"]
    assert voices["one"].language == "en"
    assert voices["one"].key != voices["two"].key
    assert not torch.equal(voices["one"].conditions.x_vector, voices["two"].conditions.x_vector)
    assert voices["one"].conditions.codes.shape == (0, 16)


@pytest.mark.parametrize(
    "samples",
    [torch.rand(100), torch.rand(2, 24000), torch.zeros(24000), torch.full((24000,), torch.nan)],
)
def test_bad_audio(
    checkpoint: Callable[[str, int], Path], tmp_path: Path, samples: torch.Tensor
) -> None:
    """Too short, not mono, silent or not numbers: refused."""
    with pytest.raises(BadRequestError, match="reference audio"):
        register_voice(checkpoint("base", 0), tmp_path / "v.safetensors", samples)


def test_what_is_missing_is_named(
    checkpoint: Callable[[str, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cannot clone, and a transcript without qwen-tts."""
    samples = torch.rand(24000)
    with pytest.raises(ConfigError, match="Base"):
        register_voice(checkpoint("custom_voice", 0), tmp_path / "v.safetensors", samples)
    monkeypatch.setitem(sys.modules, "qwen_tts", None)
    with pytest.raises(ConfigError, match="qwen-tts"):
        register_voice(checkpoint("base", 0), tmp_path / "v.safetensors", samples, "hello")
