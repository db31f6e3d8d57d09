"""Registering voices: x-vector files without further packages, refusals by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rtts.engine.qwen.clone import register_voice
from rtts.engine.qwen.codec_encoder import CodecEncoder
from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.references import VoiceShelf, load_voice
from rtts.engine.qwen.weights import open_weights
from rtts.errors import BadRequestError, ConfigError
from tests.engine.qwen.tiny import sweep


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


def test_with_a_transcript(checkpoint: Callable[[str, int], Path], tmp_path: Path) -> None:
    """The voice has the codes of its reference and the transcript, in a file and from it."""
    model = checkpoint("base", 0)
    register_voice(model, tmp_path / "v.safetensors", sweep(24_000), " a sweep ", "en")
    config = load_config(model)
    voice = load_voice(tmp_path / "v.safetensors", config, torch.float32, torch.device("cpu"))
    weights = open_weights(model / "speech_tokenizer", torch.float32, "cpu")
    codes = CodecEncoder(weights, config.codec_encoder, config.codec).encode(sweep(24_000))
    assert torch.equal(voice.conditions.codes, codes)
    assert (voice.transcript, tuple(codes.shape)) == ("a sweep", (13, 16))


def test_what_is_missing_is_named(checkpoint: Callable[[str, int], Path], tmp_path: Path) -> None:
    """A checkpoint that cannot clone, and one whose codec has no encoder."""
    with pytest.raises(ConfigError, match="Base"):
        register_voice(checkpoint("custom_voice", 0), tmp_path / "v.safetensors", sweep(24_000))
    folder = tmp_path / "model"
    shutil.copytree(checkpoint("base", 0), folder)
    stored = folder / "speech_tokenizer" / "model.safetensors"
    kept = {name: value for name, value in load_file(stored).items() if name[:8] != "encoder."}
    save_file(kept, stored)
    register_voice(folder, tmp_path / "v.safetensors", sweep(24_000))
    with pytest.raises(ConfigError, match=r"encoder\..* is missing"):
        register_voice(folder, tmp_path / "v.safetensors", sweep(24_000), "hello")
