"""Deterministic test signals."""

from __future__ import annotations

import numpy as np


def voice(samples: int, rate_hz: int = 24_000, seed: int = 0) -> bytes:
    """Something like a voice as s16le: harmonics of a gliding pitch, syllables, a little breath."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / rate_hz
    pitch_hz = 120 + 30 * np.sin(2 * np.pi * 0.7 * t + seed)
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate_hz
    harmonics = sum(np.sin(k * phase) / k for k in range(1, 12))
    envelope = 0.5 + 0.5 * np.sin(2 * np.pi * 3.1 * t + seed)
    signal = 6000 * envelope * harmonics + 200 * rng.standard_normal(samples)
    return np.clip(signal, -32767, 32767).astype("<i2").tobytes()


def noise(samples: int, seed: int = 0, peak: int = 20_000) -> bytes:
    """White noise as s16le."""
    return np.random.default_rng(seed).integers(-peak, peak, samples).astype("<i2").tobytes()


def tone(samples: int, rate_hz: int, frequency_hz: float, peak: float = 16_000) -> bytes:
    """A sine wave as s16le."""
    t = np.arange(samples) / rate_hz
    return np.rint(peak * np.sin(2 * np.pi * frequency_hz * t)).astype("<i2").tobytes()


def samples_of(pcm: bytes) -> np.ndarray:
    """s16le as float64."""
    return np.frombuffer(pcm, "<i2").astype(np.float64)


def cut(pcm: bytes, sizes: list[int]) -> list[bytes]:
    """`pcm` in chunks of `sizes` samples, over and over; sizes of 0 give empty chunks."""
    chunks, at, turn = [], 0, 0
    if not any(sizes):
        sizes = [*sizes, 1 + len(pcm) // 2]
    while at < len(pcm):
        size = 2 * sizes[turn % len(sizes)]
        chunks.append(pcm[at : at + size])
        at, turn = at + size, turn + 1
    return chunks
