"""Registers a voice: reference audio, and for in-context cloning its transcript, to a voice file.

The x-vector is ours. The reference's codes come from the reference package (qwen-tts), which has the
codec's encoder; it is asked only here, never while speaking.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.references import save_voice
from rtts.engine.qwen.speaker_encoder import SAMPLE_RATE_HZ, SpeakerEncoder
from rtts.engine.qwen.weights import open_weights
from rtts.errors import BadRequestError, ConfigError

SHORTEST_S = 0.5
"""A reference shorter than this says nothing about a voice (and the spectrogram needs 43 ms)."""


@torch.inference_mode()
def register_voice(
    model: Path,
    path: Path,
    samples: Tensor,
    transcript: str = "",
    language: str = "",
) -> None:
    """Write the voice file of a reference.

    Args:
        model: Folder of a Base checkpoint.
        path: Where to write, ending in ".safetensors"; its stem names the voice.
        samples: `[S]` float32 in [-1, 1], 24 kHz mono.
        transcript: What the reference says; without it only the x-vector is used.

    Raises:
        BadRequestError: The audio is too short, silent or not numbers.
        ConfigError: Not a Base checkpoint; or with a transcript, qwen-tts is not installed.
    """
    config = load_config(model)
    if config.speaker_encoder is None:
        raise ConfigError(f"model folder {model}: only Base checkpoints clone voices")
    _check(samples)
    encoder = SpeakerEncoder(open_weights(model, torch.float32, "cpu"), config.speaker_encoder)
    codes = _encode(model, samples) if transcript.strip() else None
    save_voice(path, encoder.encode(samples), codes, transcript.strip(), language)


def _check(samples: Tensor) -> None:
    if samples.dim() != 1 or samples.shape[0] < SHORTEST_S * SAMPLE_RATE_HZ:
        raise BadRequestError(f"reference audio must be mono and last {SHORTEST_S} s or more")
    if not bool(samples.isfinite().all()) or not bool(samples.abs().max() > 0):
        raise BadRequestError("reference audio is silent or not numbers")


def _encode(model: Path, samples: Tensor) -> Tensor:
    """Codes `[T, Q]` of the reference, by the reference package."""
    try:
        package: Any = importlib.import_module("qwen_tts")
    except ImportError as error:
        raise ConfigError(
            "cloning with a transcript needs qwen-tts 0.1.1 (and transformers 4.57.3); "
            "without a transcript the voice's x-vector is used and nothing more is needed"
        ) from error
    tokenizer = package.Qwen3TTSTokenizer.from_pretrained(str(model / "speech_tokenizer"))
    encoded = tokenizer.encode([samples.numpy()], sr=SAMPLE_RATE_HZ)
    codes: Tensor = encoded.audio_codes[0]
    return codes
