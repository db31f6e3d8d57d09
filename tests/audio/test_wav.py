from __future__ import annotations

import io
import struct
import wave

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.audio.wav import WavError, read_wav, wav_bytes, wav_header
from tests.audio.signals import noise

RATES = st.sampled_from([8_000, 16_000, 22_050, 24_000, 48_000])
PCM = st.binary(max_size=200).map(lambda data: data[: len(data) // 2 * 2])


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def fmt(kind: int = 1, channels: int = 1, rate: int = 24_000, bits: int = 16) -> bytes:
    align = channels * bits // 8
    return struct.pack("<HHIIHH", kind, channels, rate, rate * align, align, bits)


def riff(*chunks: bytes) -> bytes:
    return chunk(b"RIFF", b"WAVE" + b"".join(chunks))


@given(PCM, RATES)
def test_the_standard_library_reads_what_we_write(pcm: bytes, rate: int) -> None:
    """wave.open gives back the same samples, rate and width, and would write the same file."""
    data = wav_bytes(pcm, rate)
    with wave.open(io.BytesIO(data)) as file:
        assert file.getparams()[:4] == (1, 2, rate, len(pcm) // 2)
        assert file.readframes(file.getnframes()) == pcm
    assert read_wav(data) == (rate, 1, pcm)
    theirs = io.BytesIO()
    with wave.open(theirs, "wb") as writer:
        writer.setparams((1, 2, rate, 0, "NONE", ""))
        writer.writeframes(pcm)
    assert theirs.getvalue() == data, "byte for byte what it writes itself"


@given(PCM, RATES, st.sampled_from([1, 2]))
def test_we_read_what_the_standard_library_writes(pcm: bytes, rate: int, channels: int) -> None:
    """Any number of channels comes back interleaved."""
    pcm = pcm[: len(pcm) // 4 * 4]
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((channels, 2, rate, 0, "NONE", ""))
        writer.writeframes(pcm)
    assert read_wav(file.getvalue()) == (rate, channels, pcm)


@given(PCM)
def test_a_streamed_file_runs_to_the_end(pcm: bytes) -> None:
    """A header of unknown length has both sizes at 0xFFFFFFFF; what follows is the audio."""
    header = wav_header(24_000)
    assert len(header) == 44
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"
    assert read_wav(header + pcm) == (24_000, 1, pcm)
    assert read_wav(header + pcm + b"x") == (24_000, 1, pcm), "half a sample is not audio"


def test_other_chunks_are_passed_over() -> None:
    """LIST, odd sizes with their pad byte, a longer fmt, and anything after the data."""
    pcm = noise(5)
    data = riff(chunk(b"LIST", b"odd"), chunk(b"fmt ", fmt() + b"\0\0"), chunk(b"data", pcm))
    assert read_wav(data + chunk(b"cue ", b"more")) == (24_000, 1, pcm)


def test_extensible_format() -> None:
    """WAVE_FORMAT_EXTENSIBLE says what it holds in its sub-format."""
    extension = struct.pack("<HHI", 22, 16, 4) + struct.pack("<H", 1) + bytes(14)
    body = fmt(kind=0xFFFE) + extension
    pcm = noise(3)
    assert read_wav(riff(chunk(b"fmt ", body), chunk(b"data", pcm))).pcm == pcm


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a WAV"),
        (b"OggS" + bytes(40), "not a WAV"),
        (riff(), "without data"),
        (riff(chunk(b"fmt ", fmt())), "without data"),
        (riff(chunk(b"data", b"")), "before its data"),
        (riff(chunk(b"fmt ", fmt()[:10]), chunk(b"data", b"")), "cut off"),
        (riff(chunk(b"fmt ", fmt(kind=3, bits=32)), chunk(b"data", b"")), "only 16-bit"),
        (riff(chunk(b"fmt ", fmt(kind=7, bits=8)), chunk(b"data", b"")), "only 16-bit"),
        (riff(chunk(b"fmt ", fmt(channels=0)), chunk(b"data", b"")), "only 16-bit"),
        (riff(chunk(b"fmt ", fmt(rate=0)), chunk(b"data", b"")), "only 16-bit"),
        (wav_bytes(noise(9), 24_000)[:-1], "17 of 18"),
        (riff(chunk(b"fmt ", fmt()), chunk(b"data", b"abc")), "3 of 3"),
    ],
)
def test_what_is_not_read(data: bytes, reason: str) -> None:
    """Everything else is refused with the reason."""
    with pytest.raises(WavError, match=reason):
        read_wav(data)


def test_impossible_lengths_are_not_written() -> None:
    """The format's sizes have 32 bits, and audio has whole samples."""
    assert len(wav_header(24_000, 2**31 - 20)) == 44
    with pytest.raises(ValueError, match="do not fit"):
        wav_header(24_000, 2**31 - 18)
    with pytest.raises(ValueError, match="sample"):
        wav_bytes(b"abc", 24_000)
