"""What PCM means here: signed 16-bit little-endian mono samples, as bytes.

This module knows nothing about sample rates, codecs or containers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLE_BYTES: Final = 2

PcmBytes = bytes | bytearray | memoryview
"""PCM as a caller may hand it over: any contiguous buffer of whole samples."""


def pcm_bytes(pcm: PcmBytes) -> bytes:
    """The samples as `bytes`; no copy when they already are.

    Raises:
        ValueError: The buffer ends inside a sample.
    """
    data = pcm if type(pcm) is bytes else bytes(pcm)
    if len(data) % SAMPLE_BYTES:
        raise ValueError(f"{len(data)} bytes of PCM end inside a 16-bit sample")
    return data


def to_s16(samples: NDArray[np.float32]) -> bytes:
    """Float samples in [-1, 1] as PCM: scaled by 32767, rounded, louder ones clipped to +-32767.

    Args:
        samples: `[S]` float32, left as it is.

    Raises:
        ValueError: A sample is NaN: the model that made it is broken, and any number we wrote in
            its place would be heard as a click.
    """
    clipped = np.clip(samples, np.float32(-1), np.float32(1))
    if np.isnan(clipped).any():
        raise ValueError("audio holds NaN samples")
    return round_s16(clipped * np.float32(32767))


def round_s16(samples: NDArray[np.float32]) -> bytes:
    """Float samples already in the 16-bit range as PCM; `samples` is overwritten on the way."""
    np.rint(samples, out=samples)
    np.clip(samples, -32767.0, 32767.0, out=samples)
    return samples.astype("<i2").tobytes()


def to_f32(pcm: bytes) -> bytes:
    """PCM as 32-bit little-endian floats in [-1, 1), for clients that ask for those."""
    return (np.frombuffer(pcm, "<i2").astype("<f4") / np.float32(32768)).tobytes()
