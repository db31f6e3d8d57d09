"""G.711: one byte a sample, by table. mu-law for North America and Japan, A-law for the others.

The codes are those of ITU-T G.711 (and of the ITU's reference program in G.191): the interval of
the sample's magnitude, where a sample on the border of two intervals goes away from zero when it
is positive and towards zero when it is negative. (Python's old `audioop` rounds negative samples
down to 14 bits before it codes mu-law, so that -1 becomes -8.) This module knows nothing about
sample rates; telephony's is 8 kHz.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rtts.audio.pcm import PcmBytes, pcm_bytes

_BIAS: Final = 33  # mu-law: makes each segment twice as wide as the one before


def encode_mulaw(pcm: PcmBytes) -> bytes:
    """s16le PCM to mu-law.

    Raises:
        ValueError: A partial sample.
    """
    return _look_up(_mulaw_codes(), pcm)


def encode_alaw(pcm: PcmBytes) -> bytes:
    """s16le PCM to A-law.

    Raises:
        ValueError: A partial sample.
    """
    return _look_up(_alaw_codes(), pcm)


def decode_mulaw(codes: bytes) -> bytes:
    """mu-law to s16le PCM."""
    return _mulaw_samples()[np.frombuffer(codes, np.uint8)].tobytes()


def decode_alaw(codes: bytes) -> bytes:
    """A-law to s16le PCM."""
    return _alaw_samples()[np.frombuffer(codes, np.uint8)].tobytes()


def _look_up(codes: NDArray[np.uint8], pcm: PcmBytes) -> bytes:
    return codes.take(np.frombuffer(pcm_bytes(pcm), "<u2")).tobytes()


def _magnitudes() -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One's complement magnitude and sign of the 65,536 samples, by their unsigned value."""
    samples = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64)
    return np.where(samples < 0, ~samples, samples), samples < 0


def _bit_length(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


@cache
def _mulaw_codes() -> NDArray[np.uint8]:
    magnitude, is_negative = _magnitudes()
    biased = np.minimum((magnitude >> 2) + _BIAS, 0x1FFF)  # 14 bits, of which 13 are magnitude
    segment = _bit_length(biased) - 6
    code = segment << 4 | (biased >> (segment + 1)) & 0x0F
    signed = code | np.where(is_negative, 0x80, 0)
    return np.asarray(~signed & 0xFF, np.uint8)


@cache
def _mulaw_samples() -> NDArray[np.int16]:
    code = ~np.arange(256) & 0xFF
    segment = code >> 4 & 7
    magnitude = (((code & 0x0F) * 2 + _BIAS) << segment) - _BIAS
    return np.where(code & 0x80, -magnitude * 4, magnitude * 4).astype("<i2")


@cache
def _alaw_codes() -> NDArray[np.uint8]:
    magnitude, is_negative = _magnitudes()
    reduced = magnitude >> 4  # 13 bits, of which 12 are magnitude, to a half step of the finest
    segment = np.maximum(_bit_length(reduced) - 4, 0)
    code = segment << 4 | (reduced >> np.maximum(segment - 1, 0)) & 0x0F
    signed = code | np.where(is_negative, 0, 0x80)
    return np.asarray(signed ^ 0x55, np.uint8)  # every other bit is inverted


@cache
def _alaw_samples() -> NDArray[np.int16]:
    code = np.arange(256) ^ 0x55
    segment, step = code >> 4 & 7, (code & 0x0F) * 2 + 1
    magnitude = np.where(segment == 0, step, (step + 32) << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude * 8, -magnitude * 8).astype("<i2")
