"""Registers a voice: reference audio, and for in-context cloning its transcript, to a voice file.

It loads the two encoders of a Base checkpoint when it is asked, on a CPU, and never while speaking.
"""

from __future__ import annotations

from pathlib import Path

from rtts.engine.qwen.codec_encoder import CodecEncoder
from rtts.engine.qwen.config import ModelConfig, load_config
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
        ConfigError: Not a Base checkpoint; or with a transcript, one without the codec's encoder.
    """
    config = load_config(model)
    if config.speaker_encoder is None:
        raise ConfigError(f"model folder {model}: only Base checkpoints clone voices")
    _check(samples)
    encoder = SpeakerEncoder(open_weights(model, torch.float32, "cpu"), config.speaker_encoder)
    codes = _encode(model, config, samples) if transcript.strip() else None
    save_voice(path, encoder.encode(samples), codes, transcript.strip(), language)


def _check(samples: Tensor) -> None:
    if samples.dim() != 1 or samples.shape[0] < SHORTEST_S * SAMPLE_RATE_HZ:
        raise BadRequestError(f"reference audio must be mono and last {SHORTEST_S} s or more")
    if not bool(samples.isfinite().all()) or not bool(samples.abs().max() > 0):
        raise BadRequestError("reference audio is silent or not numbers")


def _encode(model: Path, config: ModelConfig, samples: Tensor) -> Tensor:
    """Codes `[T, Q]` of the reference."""
    weights = open_weights(model / "speech_tokenizer", torch.float32, "cpu")
    return CodecEncoder(weights, config.codec_encoder, config.codec).encode(samples)
