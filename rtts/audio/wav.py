"""WAV: the header before mono samples, and reading such a file back.

A header that is sent before the length is known says 0xFFFFFFFF for both sizes, which players take
as "to the end". This module knows nothing about how the PCM was made.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from rtts.audio.pcm import SAMPLE_BYTES, PcmBytes, pcm_bytes

_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_CHUNK: Final = struct.Struct("<4sI")
_FORMAT: Final = struct.Struct("<HHIIHH")
_UNKNOWN_SIZE: Final = 0xFFFF_FFFF
_PCM: Final = 1
# Format tags of mmreg.h, and the bytes of a sample.
_CODINGS: Final = {"s16": (_PCM, 2), "f32": (3, 4), "alaw": (6, 1), "mulaw": (7, 1)}
_EXTENSIBLE: Final = 0xFFFE  # then the real format is in the first bytes of the sub-format GUID
_SUBFORMAT_AT: Final = 24


class WavError(ValueError):
    """Bytes that are not a WAV file, or one of a kind we do not read."""


class Wav(NamedTuple):
    """A file that was read: 16-bit PCM, interleaved where there is more than one channel."""

    sample_rate_hz: int
    channels: int
    pcm: bytes


def wav_header(sample_rate_hz: int, samples: int | None = None, coding: str = "s16") -> bytes:
    """The 44 bytes before the samples of a mono file.

    Args:
        sample_rate_hz: Of the samples.
        samples: How many follow; None where that is not known yet.
        coding: "s16", "f32", "alaw" or "mulaw".

    Raises:
        ValueError: More samples than the format's 32-bit sizes can say.
    """
    tag, sample_bytes = _CODINGS[coding]
    if samples is None:
        riff_size = data_size = _UNKNOWN_SIZE
    else:
        data_size = samples * sample_bytes
        riff_size = data_size + _HEADER.size - _CHUNK.size
        if not 0 <= riff_size < _UNKNOWN_SIZE:
            raise ValueError(f"{samples} samples do not fit a WAV file")
    return _HEADER.pack(
        b"RIFF",
        riff_size,
        b"WAVE",
        b"fmt ",
        _FORMAT.size,
        tag,
        1,
        sample_rate_hz,
        sample_rate_hz * sample_bytes,
        sample_bytes,
        8 * sample_bytes,
        b"data",
        data_size,
    )


def wav_bytes(pcm: PcmBytes, sample_rate_hz: int) -> bytes:
    """A whole mono file.

    Raises:
        ValueError: A partial sample, or too many.
    """
    data = pcm_bytes(pcm)
    return wav_header(sample_rate_hz, len(data) // SAMPLE_BYTES) + data


def read_wav(data: bytes) -> Wav:
    """Read a file of 16-bit PCM, whatever other chunks it has, streamed ones included.

    Raises:
        WavError: It is none, holds something other than 16-bit PCM, or is cut off.
    """
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise WavError("not a WAV file")
    layout: tuple[int, int] | None = None
    at = 12
    while at + _CHUNK.size <= len(data):
        name, size = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        if name == b"fmt ":
            layout = _read_format(data[at : at + size])
        elif name == b"data":
            if layout is None:
                raise WavError("a WAV file has its fmt chunk before its data")
            return Wav(layout[0], layout[1], _read_data(data, at, size, layout[1]))
        at += size + size % 2  # chunks are padded to even offsets
    raise WavError("a WAV file without data")


def _read_format(chunk: bytes) -> tuple[int, int]:
    """Sample rate and channels of a fmt chunk."""
    if len(chunk) < _FORMAT.size:
        raise WavError("the fmt chunk is cut off")
    kind, channels, sample_rate_hz, _, _, bits = _FORMAT.unpack_from(chunk)
    if kind == _EXTENSIBLE and len(chunk) >= _SUBFORMAT_AT + 2:
        kind = int.from_bytes(chunk[_SUBFORMAT_AT : _SUBFORMAT_AT + 2], "little")
    if kind != _PCM or bits != 8 * SAMPLE_BYTES or channels < 1 or sample_rate_hz < 1:
        raise WavError(f"only 16-bit PCM is read, not format {kind} with {bits} bits")
    return sample_rate_hz, channels


def _read_data(data: bytes, at: int, size: int, channels: int) -> bytes:
    if size == _UNKNOWN_SIZE:
        whole = (len(data) - at) // (SAMPLE_BYTES * channels)
        size = whole * SAMPLE_BYTES * channels
    pcm = data[at : at + size]
    if len(pcm) < size or size % (SAMPLE_BYTES * channels):
        raise WavError(f"the data chunk has {len(pcm)} of {size} bytes")
    return pcm
