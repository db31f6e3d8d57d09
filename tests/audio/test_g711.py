from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

from rtts.audio.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw

ALL = np.arange(-32768, 32768).astype("<i2")
CODES = bytes(range(256))

# Decision values of the positive half as ITU-T G.711 lists them: table 2a (mu-law, in units of a
# 14-bit sample) and table 1a (A-law, in units of a 13-bit sample).
MULAW_DECISIONS = [
    0,
    *range(1, 31, 2),
    *range(31, 95, 4),
    *range(95, 223, 8),
    *range(223, 479, 16),
    *range(479, 991, 32),
    *range(991, 2015, 64),
    *range(2015, 4063, 128),
    *range(4063, 8159, 256),
]
ALAW_DECISIONS = [
    *range(0, 64, 2),
    *range(64, 128, 4),
    *range(128, 256, 8),
    *range(256, 512, 16),
    *range(512, 1024, 32),
    *range(1024, 2048, 64),
    *range(2048, 4096, 128),
]


def intervals(decisions: list[int], scale: int) -> np.ndarray:
    """Index of the interval of every 16-bit sample's magnitude; a border belongs to the interval
    above it for positive samples and below it for negative ones."""
    borders = np.array(decisions) * scale
    samples = ALL.astype(int)
    up = np.searchsorted(borders, samples, side="right") - 1
    down = np.searchsorted(borders, -samples, side="left") - 1
    return np.where(samples >= 0, up, np.maximum(down, 0))


@pytest.mark.parametrize(
    ("encode", "decisions", "scale", "positive", "inverted"),
    [
        (encode_mulaw, MULAW_DECISIONS, 4, 0x80, 0x7F),
        (encode_alaw, ALAW_DECISIONS, 8, 0x80, 0x55),
    ],
)
def test_codes_are_the_intervals_of_the_recommendation(
    encode: Callable[[bytes], bytes],
    decisions: list[int],
    scale: int,
    positive: int,
    inverted: int,
) -> None:
    """All 65,536 samples get the sign and the interval of G.711's tables, bits inverted as said."""
    assert len(decisions) == 128 - (decisions is ALAW_DECISIONS) * 0
    expected = intervals(decisions, scale) ^ inverted
    expected = np.where(ALL >= 0, expected | positive, expected & ~positive)
    assert encode(ALL.tobytes()) == expected.astype(np.uint8).tobytes()


def test_codes_come_back() -> None:
    """Decoding and encoding a code gives the code; only mu-law's negative zero becomes zero."""
    assert encode_alaw(decode_alaw(CODES)) == CODES
    assert encode_mulaw(decode_mulaw(CODES)) == CODES.replace(b"\x7f", b"\xff")


@pytest.mark.parametrize(
    ("decode", "values"),
    [
        (decode_mulaw, {0xFF: 0, 0x7F: 0, 0xFE: 8, 0x7E: -8, 0x80: 32124, 0x00: -32124}),
        (decode_alaw, {0xD5: 8, 0x55: -8, 0xD4: 24, 0xAA: 32256, 0x2A: -32256}),
    ],
)
def test_known_values(decode: Callable[[bytes], bytes], values: dict[int, int]) -> None:
    """The smallest and largest codes decode to the recommendation's values, at 16 bits."""
    for code, value in values.items():
        assert np.frombuffer(decode(bytes([code])), "<i2").tolist() == [value]


def test_the_standard_library_agrees() -> None:
    """audioop gives the same, except that it codes negative samples to mu-law from their floor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        audioop = pytest.importorskip("audioop", reason="removed from Python 3.13")
    pcm, positive = ALL.tobytes(), ALL[ALL >= 0].tobytes()
    assert decode_alaw(CODES) == audioop.alaw2lin(CODES, 2)
    assert decode_mulaw(CODES) == audioop.ulaw2lin(CODES, 2)
    assert encode_alaw(pcm) == audioop.lin2alaw(pcm, 2)
    assert encode_mulaw(positive) == audioop.lin2ulaw(positive, 2)


@pytest.mark.parametrize("encode", [encode_mulaw, encode_alaw])
def test_buffers(encode: Callable[..., bytes]) -> None:
    """Any buffer of whole samples; empty gives empty."""
    assert encode(b"") == b""
    assert encode(bytearray(b"ab")) == encode(memoryview(b"ab")) == encode(b"ab")
    with pytest.raises(ValueError, match="sample"):
        encode(b"a")
