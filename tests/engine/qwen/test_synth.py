"""Random checkpoints and `synth`: the golden codes again, through the public way in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rtts.engine.qwen import checkpoint as checkpoints
from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.prompt import Layout
from rtts.engine.qwen.references import load_voice, save_voice
from rtts.engine.qwen.synth import Rng, Synthesizer, SynthRequest, write_codes
from rtts.errors import (
    BadRequestError,
    ConfigError,
    UnknownVoiceError,
    UnsupportedLanguageError,
    UtteranceError,
)
from tests.engine.qwen.tiny import GOLDEN

GOLD = json.loads((GOLDEN / "codes.json").read_text())
SAMPLING = json.loads((GOLDEN / "sampling.json").read_text())["sets"]
ENCODER = 39_129_376
"""Parameters of the released codec's encoder, counted by its classes, without the projections out of
its quantizers, which encoding does not use."""


@pytest.mark.parametrize("mode", ["greedy", "sample"])
def test_golden_codes(checkpoint: Callable[[str, int], Path], tmp_path: Path, mode: str) -> None:
    """The reference's codes for a preset speaker and for a clone, written as the record."""
    rng, greedy = (Rng.REFERENCE, False) if mode == "sample" else (Rng.SEEDED, True)
    request = SynthRequest(
        "Hello the world",
        "Ann",
        "en",
        layout=Layout.STREAMING,
        seed=1234,
        rng=rng,
        greedy=greedy,
        max_frames=23,
    )
    spoken = Synthesizer(checkpoint("custom_voice", 0)).synthesize(request)
    write_codes(tmp_path / "codes.json", spoken)
    written = json.loads((tmp_path / "codes.json").read_text())
    assert {"codes": GOLD["sets"][f"custom_voice-0-{mode}"]["cv_ns0"]["codes"][0]} == written
    stored = GOLD["references"]["0"]
    save_voice(
        tmp_path / "tone.safetensors",
        torch.tensor(stored["x_vector"]),
        torch.tensor(stored["codes"]),
        "a tone",
    )
    base = Synthesizer(checkpoint("base", 0))
    voice = load_voice(
        tmp_path / "tone.safetensors", base.model.config, torch.float32, base.model.device
    )
    request = SynthRequest(
        "Hello the world",
        "",
        "english",
        clone=voice,
        layout=Layout.STREAMING,
        seed=1234,
        rng=rng,
        greedy=greedy,
        max_frames=23,
    )
    expected = GOLD["sets"][f"base-0-{mode}"]["icl_ns0"]["codes"][0]
    assert expected == [list(frame) for frame in base.synthesize(request).codes]


@pytest.mark.parametrize("name", sorted(SAMPLING))
def test_other_sampling_settings(
    checkpoint: Callable[[str, int], Path], tmp_path: Path, name: str
) -> None:
    """The checkpoint's own settings, top-p among them; groups that take the best draw nothing, so
    that the next draw what they draw in the reference."""
    folder = tmp_path / "model"
    shutil.copytree(checkpoint("custom_voice", 0), folder)
    (folder / "generation_config.json").write_text(json.dumps(SAMPLING[name]["settings"]))
    request = SynthRequest(
        "Hello the world",
        "Ann",
        "en",
        layout=Layout.STREAMING,
        seed=1234,
        rng=Rng.REFERENCE,
        max_frames=23,
    )
    spoken = Synthesizer(folder).synthesize(request)
    assert SAMPLING[name]["codes"] == [list(frame) for frame in spoken.codes]


def test_wrong_requests(checkpoint: Callable[[str, int], Path]) -> None:
    """No text, unknown speaker or language, a Base checkpoint without a reference: typed."""
    synthesizer = Synthesizer(checkpoint("custom_voice", 0))
    for request, error in (
        (SynthRequest("\n", "ann"), BadRequestError),
        (SynthRequest("Hi", "nobody"), UnknownVoiceError),
        (SynthRequest("Hi", "ann", "tlh"), UnsupportedLanguageError),
        (SynthRequest("Hi", "ann", "beijing_dialect"), UnsupportedLanguageError),
    ):
        with pytest.raises(error):
            synthesizer.synthesize(request)
    with pytest.raises(BadRequestError, match="reference"):
        Synthesizer(checkpoint("base", 0)).synthesize(SynthRequest("Hi"))


def test_weights_that_are_no_numbers(checkpoint: Callable[[str, int], Path]) -> None:
    """They make no codes: an error instead of a record of nothing."""
    synthesizer = Synthesizer(checkpoint("custom_voice", 0))
    synthesizer.model.talker.codec_head[5].fill_(torch.nan)
    with pytest.raises(UtteranceError, match="not numbers"):
        synthesizer.synthesize(SynthRequest("Hi", "ann"))


@pytest.mark.parametrize("kind", ["custom_voice", "base", "voice_design"])
def test_tiny_checkpoints_speak(tmp_path: Path, kind: str) -> None:
    """A written checkpoint loads and speaks; the same seed gives the same bytes, another others."""
    said: list[tuple[int, int]] = []
    checkpoints.write_checkpoint(
        tmp_path / "a", "tiny", kind, 3, lambda done, total: said.append((done, total))
    )
    checkpoints.write_checkpoint(tmp_path / "b", "tiny", kind, 3)
    checkpoints.write_checkpoint(tmp_path / "c", "tiny", kind, 4)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    encoder = json.loads((tmp_path / "a/speech_tokenizer/config.json").read_text())[
        "encoder_config"
    ]
    # a grouped convolution of the reference's (transformers' Mimi); it does not load otherwise
    assert encoder["hidden_size"] % encoder["upsample_groups"] == 0
    assert weights[0] == weights[1] != weights[2]
    assert said[-1][0] == said[-1][1] > said[0][0]
    synthesizer = Synthesizer(tmp_path / "a")
    clone = None
    if kind == "base":
        save_voice(tmp_path / "v.safetensors", torch.randn(64), None)
        config, device = synthesizer.model.config, synthesizer.model.device
        clone = load_voice(tmp_path / "v.safetensors", config, torch.float32, device)
    voice = "ryan" if kind == "custom_voice" else ""
    request = SynthRequest("Hello there.", voice, "en", clone=clone, max_frames=6)
    spoken = synthesizer.synthesize(request)
    assert len(spoken.pcm) == 3840 * len(spoken.codes) > 0
    with pytest.raises(ConfigError, match="already"):
        checkpoints.write_checkpoint(tmp_path / "a", "tiny", kind)


@pytest.mark.parametrize(
    ("size", "kind", "parameters"),
    [
        ("0.6b", "custom_voice", 905_788_672),
        ("0.6b", "base", 914_643_008),
        ("1.7b", "voice_design", 1_916_676_352),
        ("1.7b", "base", 1_928_677_440),
    ],
)
def test_released_shapes(tmp_path: Path, size: str, kind: str, parameters: int) -> None:
    """Parameter counts are the released models', and the ids too."""
    ids, text_vocab = checkpoints._write_tokenizer(tmp_path, size)
    codec = tmp_path / "speech_tokenizer"
    codec.mkdir()
    checkpoints._write_json(
        tmp_path / "config.json", checkpoints._config(size, kind, ids, text_vocab)
    )
    checkpoints._write_json(codec / "config.json", checkpoints._codec_config(size))
    config = load_config(tmp_path)
    model, decoder = checkpoints._wanted(config)
    parts = {name: [0, 0] for name in ("encoder", "decoder")}
    for name, shape in decoder.items():
        parts[name.partition(".")[0]]["codebook" in name] += torch.Size(shape).numel()
    counted = sum(torch.Size(shape).numel() for shape in model.values())
    assert [parameters, 114_323_137] == [counted, sum(parts["decoder"])]
    assert parts["encoder"][0] == (ENCODER if kind == "base" else 0)
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    assert (vocab["assistant"], vocab["\u010a"]) == (77091, 198)
    assert config.text_ids.tts_eos == 151673


def test_wrong_checkpoints(tmp_path: Path) -> None:
    """Sizes and types that do not exist are refused."""
    for size, kind in (("2b", "base"), ("tiny", "singer"), ("0.6b", "voice_design")):
        with pytest.raises(ConfigError):
            checkpoints.write_checkpoint(tmp_path / "x", size, kind)
    assert not (tmp_path / "x").exists()
