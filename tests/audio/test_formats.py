from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.audio import formats, opus
from rtts.audio.formats import (
    BITRATE_RANGE,
    FRAMES_MS,
    SUPPORTED_FORMATS,
    AudioFormat,
    make_encoder,
    resolve_format,
    supported_formats,
)
from rtts.errors import ConfigError, UnsupportedFormatError
from tests.audio.signals import voice


def test_defaults() -> None:
    """Nothing said is raw Opus at the source's rate, 32 kbit/s in packets of 20 ms."""
    assert resolve_format() == AudioFormat("opus", "raw", 24_000, 1, 32_000, 20)
    assert resolve_format("pcm_s16le") == AudioFormat("pcm_s16le", "raw", 24_000, 1, 384_000, 0)
    assert resolve_format("mulaw") == AudioFormat("mulaw", "raw", 8_000, 1, 64_000, 0)


@pytest.mark.parametrize(
    ("codec", "source", "expected"),
    [
        ("opus", 24_000, 24_000),
        ("opus", 16_000, 16_000),
        ("opus", 22_050, 24_000),
        ("opus", 44_100, 48_000),
        ("opus", 96_000, 48_000),
        ("pcm_s16le", 22_050, 22_050),
        ("pcm_s16le", 23_000, 24_000),
        ("pcm_s16le", 6_000, 8_000),
        ("alaw", 24_000, 8_000),
    ],
)
def test_the_natural_rate(codec: str, source: int, expected: int) -> None:
    """No rate said: the source's, or the next one up, or the highest there is."""
    assert resolve_format(codec, source_rate=source).sample_rate == expected


@pytest.mark.parametrize("offer", SUPPORTED_FORMATS, ids=str)
def test_all_that_is_offered_can_be_made(offer: object) -> None:
    """Every rate of every offer resolves to itself, and has an encoder."""
    for rate in offer.sample_rate:  # type: ignore[attr-defined]
        fmt = resolve_format(offer.codec, offer.container, rate)  # type: ignore[attr-defined]
        assert (fmt.codec, fmt.container, fmt.sample_rate) == (offer.codec, offer.container, rate)  # type: ignore[attr-defined]
        encoder = make_encoder(fmt, 24_000)
        assert encoder.encode(voice(4800)) + encoder.flush()
        assert encoder.pre_skip == (312 if fmt.codec == "opus" else 0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"codec": "vorbis"}, "'vorbis'"),
        ({"codec": "pcm_s16le", "container": "ogg"}, "'pcm_s16le' in container 'ogg'"),
        ({"codec": "opus", "container": "wav"}, "'opus' in container 'wav'"),
        ({"codec": "opus", "sample_rate": 44_100}, "opus at 44100 Hz"),
        ({"codec": "pcm_s16le", "sample_rate": 11_025}, "pcm_s16le at 11025 Hz"),
        ({"codec": "mp3", "sample_rate": 8_000}, "mp3 at 8000 Hz"),
        ({"codec": "mulaw", "sample_rate": 16_000}, "mulaw at 16000 Hz"),
        ({"codec": "opus", "sample_rate": 0}, "opus at 0 Hz"),
        ({"bitrate": 5_999}, "5999 bit/s"),
        ({"bitrate": 256_001}, "256001 bit/s"),
        ({"frame_ms": 0}, "packets of 0 ms"),
        ({"frame_ms": 30}, "packets of 30 ms"),
        ({"codec": "x" * 10_000}, "'xxxx"),
    ],
)
def test_what_cannot_be_made(arguments: dict[str, object], named: str) -> None:
    """The error names what was asked for and lists everything that there is, in little space."""
    with pytest.raises(UnsupportedFormatError) as caught:
        resolve_format(**arguments)  # type: ignore[arg-type]
    assert named in caught.value.message
    assert "supported: opus (raw) at 8000, 12000, 16000, 24000, 48000 Hz;" in caught.value.message
    assert "alaw (raw) at 8000 Hz" in caught.value.message
    assert len(caught.value.message) < 700


@given(
    st.text(max_size=12) | st.sampled_from(["opus", "pcm_s16le", "mulaw", "alaw"]),
    st.text(max_size=5) | st.sampled_from(["raw", "ogg", "wav"]),
    st.none() | st.integers() | st.sampled_from([8_000, 16_000, 24_000, 48_000]),
    st.none() | st.integers(),
    st.none() | st.integers(0, 100),
)
def test_never_something_else(
    codec: str, container: str, rate: int | None, bitrate: int | None, frame_ms: int | None
) -> None:
    """What is said is what is made, or it is an error."""
    try:
        fmt = resolve_format(codec, container, rate, bitrate, frame_ms)
    except UnsupportedFormatError:
        return
    assert (fmt.codec, fmt.container) == (codec, container)
    assert rate in (None, fmt.sample_rate)
    if codec == "opus":
        assert bitrate in (None, fmt.bitrate)
        assert frame_ms in (None, fmt.frame_ms)
        assert BITRATE_RANGE[0] <= fmt.bitrate <= BITRATE_RANGE[1]
        assert fmt.frame_ms in FRAMES_MS


def test_opus_options_mean_nothing_to_other_codecs() -> None:
    """Clients send their defaults with every codec; the answer says what is true."""
    fmt = resolve_format("alaw", "raw", 8_000, 32_000, 20)
    assert (fmt.bitrate, fmt.frame_ms) == (64_000, 0)


def test_without_libopus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opus is neither listed nor made, and the reason is given; everything else works."""
    monkeypatch.setattr(opus, "_LOADED", {None: ConfigError("no libopus found")})
    assert {offer.codec for offer in supported_formats()} == {"pcm_s16le", "mulaw", "alaw", "mp3"}
    with pytest.raises(UnsupportedFormatError, match=r"without libopus.*supported: pcm_s16le"):
        resolve_format("opus")
    with pytest.raises(ConfigError, match="no libopus"):
        make_encoder(AudioFormat("opus", "raw", 24_000), 24_000)
    for offer in supported_formats():
        encoder = make_encoder(resolve_format(offer.codec, offer.container), 24_000)
        assert encoder.encode(voice(4800)) + encoder.flush()


def test_mp3_has_the_bitrates_of_its_standard() -> None:
    """Other ones are refused, with those that there are."""
    assert resolve_format("mp3", "raw", 44_100, 128_000).bitrate == 128_000
    with pytest.raises(UnsupportedFormatError, match="33000 bit/s.*64000"):
        resolve_format("mp3", "raw", 24_000, 33_000)


def test_without_lame(monkeypatch: pytest.MonkeyPatch) -> None:
    """MP3 is neither listed nor made, and the remedy is named."""
    monkeypatch.setattr(formats, "mp3_available", lambda: False)
    assert "mp3" not in {offer.codec for offer in supported_formats()}
    with pytest.raises(UnsupportedFormatError, match="pip install lameenc"):
        resolve_format("mp3")


@pytest.mark.skipif(not formats.mp3_available(), reason="no LAME on this machine")
@pytest.mark.parametrize("chunk", [7, 480, 24_000])
def test_mp3_is_the_same_for_every_chunking(chunk: int) -> None:
    """The frames, in a row, do not depend on how the samples came; all of them are counted."""
    pcm = (np.sin(np.arange(24_000) / 20) * 8000).astype("<i2").tobytes()
    whole = make_encoder(resolve_format("mp3", "raw", 24_000, 64_000), 24_000)
    expected = whole.encode(pcm) + whole.flush()
    encoder = make_encoder(resolve_format("mp3", "raw", 24_000, 64_000), 24_000)
    packets = []
    for at in range(0, len(pcm), 2 * chunk):
        packets += encoder.encode(pcm[at : at + 2 * chunk])
    packets += encoder.flush()
    joined = b"".join(packet.payload for packet in packets)
    assert joined == b"".join(packet.payload for packet in expected)
    assert sum(packet.samples for packet in packets) == encoder.samples_out == 24_000
    assert len(joined) == pytest.approx(8000, rel=0.1)
