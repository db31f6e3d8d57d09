"""Which audio formats there are, and the way from what a client asks for to an encoder.

This module knows nothing about sessions or messages. Nothing is ever replaced by something
similar: what cannot be made is an `UnsupportedFormatError` that lists what can.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

from rtts.audio.g711 import encode_alaw, encode_mulaw
from rtts.audio.mp3 import BITRATES_BPS, Mp3Packer, mp3_available
from rtts.audio.mp3 import RATES_HZ as MP3_RATES_HZ
from rtts.audio.opus import OPUS_RATES_HZ, opus_available
from rtts.audio.pcm import SAMPLE_BYTES
from rtts.audio.resample import Resampler
from rtts.audio.stream import (
    OggOpusPacker,
    OpusPacker,
    Packet,
    SamplePacker,
    StreamEncoder,
)
from rtts.audio.wav import wav_header
from rtts.errors import UnsupportedFormatError

__all__ = [
    "FRAMES_MS",
    "SUPPORTED_FORMATS",
    "AudioFormat",
    "Packet",
    "StreamEncoder",
    "SupportedFormat",
    "make_encoder",
    "resolve_format",
    "supported_formats",
]

Codec = Literal["opus", "pcm_s16le", "mulaw", "alaw", "mp3"]
Container = Literal["raw", "ogg", "wav"]

FRAMES_MS: Final = (10, 20, 40, 60)
DEFAULT_FRAME_MS: Final = 20

# PESQ of the CPU voice at complexity 10: 4.35 at 24 kbit/s, 4.47 at 32, 4.54 at 48 (ADR 0012).
DEFAULT_BITRATE: Final = 32_000

# RFC 6716 section 2.1.1 begins at 6 kbit/s; past 256 kbit/s a mono stream has nothing left to gain,
# and packets of 60 ms would outgrow a WebSocket message's share.
BITRATE_RANGE: Final = (6_000, 256_000)

_SAMPLE_BITS: Final = {"pcm_s16le": 8 * SAMPLE_BYTES, "mulaw": 8, "alaw": 8}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A format that can be made. Comes from `resolve_format`.

    Attributes:
        sample_rate: Hz. Of Opus: the rate it is encoded at; decoders may run at any other.
        bitrate: Bits per second: Opus' target; exact for the other codecs.
        frame_ms: Duration of an Opus packet; 0 for the other codecs, which have none.
    """

    codec: Codec
    container: Container
    sample_rate: int
    channels: int = 1
    bitrate: int = DEFAULT_BITRATE
    frame_ms: int = DEFAULT_FRAME_MS


@dataclass(frozen=True, slots=True)
class SupportedFormat:
    """A codec in a container, and the rates it can have there."""

    codec: Codec
    container: Container
    sample_rate: tuple[int, ...]


# What telephones, models, files and the hosted services' clients ask for.
_PCM_RATES_HZ: Final = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)

SUPPORTED_FORMATS: Final = (
    SupportedFormat("opus", "raw", OPUS_RATES_HZ),
    SupportedFormat("opus", "ogg", OPUS_RATES_HZ),
    SupportedFormat("pcm_s16le", "raw", _PCM_RATES_HZ),
    SupportedFormat("pcm_s16le", "wav", _PCM_RATES_HZ),
    SupportedFormat("mulaw", "raw", (8_000,)),
    SupportedFormat("alaw", "raw", (8_000,)),
    SupportedFormat("mp3", "raw", MP3_RATES_HZ),
)


def supported_formats() -> tuple[SupportedFormat, ...]:
    """`SUPPORTED_FORMATS`, less Opus and MP3 on a machine without their encoders."""
    absent = {"opus"} if not opus_available() else set()
    if not mp3_available():
        absent.add("mp3")
    if not absent:
        return SUPPORTED_FORMATS
    return tuple(offer for offer in SUPPORTED_FORMATS if offer.codec not in absent)


def resolve_format(
    codec: str = "opus",
    container: str = "raw",
    sample_rate: int | None = None,
    bitrate: int | None = None,
    frame_ms: int | None = None,
    source_rate: int = 24_000,
) -> AudioFormat:
    """The format a client asks for.

    Args:
        codec: "opus", "pcm_s16le", "mulaw", "alaw" or "mp3".
        container: "raw", "ogg" (Opus) or "wav" (PCM).
        sample_rate: Hz; None takes the source's, or else the next higher one there is.
        bitrate: Opus and MP3 only (other codecs have one bitrate, and this argument means nothing).
        frame_ms: Opus only, likewise.
        source_rate: Hz, of the PCM that will be encoded.

    Raises:
        UnsupportedFormatError: It cannot be made; the message lists what can.
    """
    offer = next(
        (o for o in supported_formats() if (o.codec, o.container) == (codec, container)), None
    )
    if offer is None:
        if codec == "opus" and not opus_available():
            raise _unsupported("opus on a server without libopus")
        if codec == "mp3" and not mp3_available():
            raise _unsupported("mp3 on a server without lameenc (pip install lameenc)")
        raise _unsupported(f"{str(codec)[:32]!r} in container {str(container)[:32]!r}")
    if sample_rate is None:
        higher = [rate for rate in offer.sample_rate if rate >= source_rate]
        sample_rate = min(higher, default=max(offer.sample_rate))
    elif sample_rate not in offer.sample_rate:
        raise _unsupported(f"{codec} at {sample_rate} Hz")
    if offer.codec == "mp3":
        return _mp3_format(sample_rate, bitrate)
    if offer.codec != "opus":
        bits = sample_rate * _SAMPLE_BITS[offer.codec]
        return AudioFormat(offer.codec, offer.container, sample_rate, bitrate=bits, frame_ms=0)
    bitrate = DEFAULT_BITRATE if bitrate is None else bitrate
    frame_ms = DEFAULT_FRAME_MS if frame_ms is None else frame_ms
    if not BITRATE_RANGE[0] <= bitrate <= BITRATE_RANGE[1]:
        raise _unsupported(f"opus at {bitrate} bit/s")
    if frame_ms not in FRAMES_MS:
        raise _unsupported(f"opus in packets of {frame_ms} ms")
    return AudioFormat("opus", offer.container, sample_rate, bitrate=bitrate, frame_ms=frame_ms)


def _mp3_format(sample_rate: int, bitrate: int | None) -> AudioFormat:
    bitrate = DEFAULT_BITRATE if bitrate is None else bitrate
    if bitrate not in BITRATES_BPS[sample_rate]:
        raise UnsupportedFormatError(
            f"mp3 at {sample_rate} Hz and {bitrate} bit/s is not supported; its bitrates are "
            + ", ".join(map(str, BITRATES_BPS[sample_rate]))
        )
    return AudioFormat("mp3", "raw", sample_rate, bitrate=bitrate, frame_ms=0)


def _unsupported(what: str) -> UnsupportedFormatError:
    offers = "; ".join(
        f"{offer.codec} ({offer.container}) at {', '.join(map(str, offer.sample_rate))} Hz"
        for offer in supported_formats()
    )
    detail = ""
    if opus_available():
        detail = (
            f"; opus: bitrate {BITRATE_RANGE[0]} to {BITRATE_RANGE[1]},"
            f" frame_ms {', '.join(map(str, FRAMES_MS))}"
        )
    return UnsupportedFormatError(f"{what} is not supported; supported: {offers}{detail}")


def make_encoder(
    fmt: AudioFormat,
    source_rate_hz: int,
    *,
    complexity: int = 10,
    keeps_lock: bool = True,
    serial: int | None = None,
) -> StreamEncoder:
    """An encoder for one utterance, from PCM at `source_rate_hz`.

    Args:
        fmt: From `resolve_format`.
        source_rate_hz: Of the PCM; what differs from `fmt.sample_rate` is resampled.
        complexity: Opus: 0 (least CPU) to 10 (best).
        keeps_lock: Opus: see `rtts.audio.opus.Encoder`.
        serial: Ogg: identifies the stream in its file; None draws one at random.

    Raises:
        ConfigError: `fmt` is Opus and there is no libopus, or MP3 and there is no LAME.
    """
    resampler = None
    if source_rate_hz != fmt.sample_rate:
        resampler = Resampler(source_rate_hz, fmt.sample_rate)
    if fmt.codec == "opus":
        opus = OpusPacker(
            fmt.sample_rate,
            bitrate=fmt.bitrate,
            frame_ms=fmt.frame_ms,
            complexity=complexity,
            keeps_lock=keeps_lock,
        )
        if fmt.container == "raw":
            return StreamEncoder(opus, resampler)
        serial = random.getrandbits(32) if serial is None else serial
        return StreamEncoder(OggOpusPacker(opus, fmt.sample_rate, serial), resampler)
    if fmt.codec == "mp3":
        return StreamEncoder(Mp3Packer(fmt.sample_rate, bitrate=fmt.bitrate), resampler)
    header = wav_header(fmt.sample_rate) if fmt.container == "wav" else b""
    code = {"mulaw": encode_mulaw, "alaw": encode_alaw}.get(fmt.codec)
    return StreamEncoder(SamplePacker(code, header), resampler)
