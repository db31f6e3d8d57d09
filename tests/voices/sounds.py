"""Recordings for tests: a hum of a known pitch, in files of every kind."""

from __future__ import annotations

import io

import numpy as np
import soundfile

RATE_HZ = 24_000


def hum(seconds=3.0, pitch_hz=330.0, rate_hz=RATE_HZ, level=0.3, channels=1):
    """`[S, channels]` float32."""
    at = np.arange(int(seconds * rate_hz)) / rate_hz
    one = (level * np.sin(2 * np.pi * pitch_hz * at)).astype(np.float32)
    return np.repeat(one[:, None], channels, axis=1)


def file(samples=None, rate_hz=RATE_HZ, kind="WAV", subtype=None):
    """A file of samples, by default of a hum."""
    out = io.BytesIO()
    soundfile.write(out, hum() if samples is None else samples, rate_hz, subtype, format=kind)
    return out.getvalue()


def pitch_of(pcm: bytes, rate_hz=RATE_HZ):
    """The strongest frequency of s16le mono."""
    samples = np.frombuffer(pcm, "<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.fft.rfftfreq(len(samples), 1 / rate_hz)[np.argmax(spectrum)])
