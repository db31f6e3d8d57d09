from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.formats import (
    FRAMES_MS,
    SUPPORTED_FORMATS,
    AudioFormat,
    Packet,
    StreamEncoder,
    make_encoder,
    resolve_format,
)
from rtts.audio.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw
from rtts.audio.ogg import packet_duration, read_ogg_opus
from rtts.audio.opus import Decoder
from rtts.audio.resample import Resampler
from rtts.audio.wav import read_wav
from tests.audio.signals import cut, samples_of, voice

EVERY_FORMAT = [
    AudioFormat(offer.codec, offer.container, rate, frame_ms=frame_ms)
    for offer in SUPPORTED_FORMATS
    for rate in offer.sample_rate
    for frame_ms in (FRAMES_MS if offer.codec == "opus" else (0,))
]
# LAME begins 576 samples late and a decoder 529 more; a stream has no header that could say so.
MP3_DELAY_SAMPLES = 576 + 529
FORMATS = st.sampled_from(EVERY_FORMAT)
SOURCES = st.sampled_from([16_000, 22_050, 24_000])
SIZES = st.lists(st.integers(0, 2500), min_size=1, max_size=6)


def encoder_for(fmt: AudioFormat, source: int = 24_000) -> StreamEncoder:
    return make_encoder(fmt, source, complexity=0, serial=1)


def encode(fmt: AudioFormat, chunks: Iterable[bytes], source: int = 24_000) -> list[Packet]:
    encoder = encoder_for(fmt, source)
    packets = [packet for chunk in chunks for packet in encoder.encode(chunk)]
    return packets + encoder.flush()


def joined(packets: Iterable[Packet]) -> bytes:
    return b"".join(packet.payload for packet in packets)


def opus_packets(fmt: AudioFormat, packets: list[Packet]) -> list[bytes]:
    if fmt.container == "ogg":
        return read_ogg_opus(joined(packets)).packets
    return [packet.payload for packet in packets]


def heard(fmt: AudioFormat, packets: list[Packet], total: int) -> bytes:
    """What a client plays: everything decoded, less pre-skip and what is over `total` samples."""
    if fmt.codec == "opus":
        decoder = Decoder(fmt.sample_rate, 1)
        skip = encoder_for(fmt).pre_skip * fmt.sample_rate // 48_000
        pcm = b"".join(map(decoder.decode, opus_packets(fmt, packets)))
        assert len(pcm) // 2 - skip >= total or not packets
        return pcm[2 * skip : 2 * (skip + total)]
    data = joined(packets)
    if fmt.codec == "mp3":
        if not packets:
            return b""
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            assert (file.samplerate, file.channels) == (fmt.sample_rate, 1)
            pcm = file.read(dtype="int16").tobytes()
        assert len(pcm) // 2 - MP3_DELAY_SAMPLES >= total
        return pcm[2 * MP3_DELAY_SAMPLES : 2 * (MP3_DELAY_SAMPLES + total)]
    if fmt.container == "wav":
        rate, channels, data = read_wav(data)
        assert (rate, channels) == (fmt.sample_rate, 1)
    return {"mulaw": decode_mulaw, "alaw": decode_alaw}.get(fmt.codec, bytes)(data)


@settings(max_examples=120, deadline=None)
@given(FORMATS, SOURCES, st.integers(0, 6000), SIZES)
def test_any_chunking_gives_the_same_stream(
    fmt: AudioFormat, source: int, samples: int, sizes: list[int]
) -> None:
    """Streamed equals one shot, bit for bit, in every format; raw Opus packet by packet."""
    pcm = voice(samples, source)
    streamed = encode(fmt, cut(pcm, sizes), source)
    whole = encode(fmt, [pcm], source)
    assert joined(streamed) == joined(whole)
    assert sum(p.samples for p in streamed) == sum(p.samples for p in whole)
    if fmt.codec == "opus":
        assert streamed == whole


@settings(max_examples=120, deadline=None)
@given(FORMATS, SOURCES, st.integers(0, 6000))
def test_as_many_samples_come_out_as_went_in(fmt: AudioFormat, source: int, samples: int) -> None:
    """n in, n out after pre-skip (at another rate, n times the ratio, rounded)."""
    encoder = encoder_for(fmt, source)
    packets = encoder.encode(voice(samples, source)) + encoder.flush()
    expected = int(samples * fmt.sample_rate / source + 0.5)
    assert encoder.samples_in == samples
    assert encoder.samples_out == expected
    assert len(heard(fmt, packets, expected)) == 2 * expected
    if fmt.container == "ogg":
        total = read_ogg_opus(joined(packets)).total_samples
        assert total == expected * 48_000 // fmt.sample_rate


@settings(max_examples=60, deadline=None)
@given(FORMATS, SIZES)
def test_the_counts_are_right_at_any_moment(fmt: AudioFormat, sizes: list[int]) -> None:
    """A packet's samples are what it decodes to, samples_out what can be played so far."""
    encoder = encoder_for(fmt)
    skip = encoder.pre_skip * fmt.sample_rate // 48_000
    packets: list[Packet] = []
    for chunk in cut(voice(4000), sizes):
        packets += encoder.encode(chunk)
        counted = sum(packet.samples for packet in packets)
        assert encoder.samples_out == max(0, counted - skip)
        assert encoder.samples_out <= encoder.samples_in * fmt.sample_rate / 24_000 + 1
    packets += encoder.flush()
    counted = sum(packet.samples for packet in packets)
    if fmt.codec == "opus":
        durations = sum(map(packet_duration, opus_packets(fmt, packets)))
        assert counted * 48_000 // fmt.sample_rate == durations
        assert 0 <= counted - skip - encoder.samples_out < fmt.sample_rate * fmt.frame_ms // 1000
    else:
        assert counted == encoder.samples_out


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=str)
def test_the_audio_survives(fmt: AudioFormat) -> None:
    """What is heard is what was said, sample on sample, from the first to the last."""
    fmt = AudioFormat(fmt.codec, fmt.container, fmt.sample_rate, 1, 96_000, fmt.frame_ms)
    pcm = voice(24_000)
    resampler = Resampler(24_000, fmt.sample_rate)
    said = resampler.process(pcm) + resampler.flush()
    got = samples_of(heard(fmt, encode(fmt, cut(pcm, [1800])), len(said) // 2))
    expected = samples_of(said)
    ends = fmt.sample_rate // 50
    for part in (slice(None), slice(None, 5 * ends), slice(-5 * ends, None)):
        noise = ((got[part] - expected[part]) ** 2).mean()
        snr_db = 10 * np.log10((expected[part] ** 2).mean() / max(noise, 1e-9))
        assert snr_db > (8 if fmt.codec in ("opus", "mp3") else 25)


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=str)
def test_nothing_comes_after_the_end(fmt: AudioFormat) -> None:
    """One flush; then neither output nor input. Half a sample is refused and harms nothing."""
    pcm = voice(700)
    encoder = encoder_for(fmt)
    packets = encoder.encode(pcm)
    with pytest.raises(ValueError, match="sample"):
        encoder.encode(pcm[:3])
    packets += encoder.flush()
    total = encoder.samples_out
    assert encoder.flush() == []
    with pytest.raises(ValueError, match="flushed"):
        encoder.encode(pcm)
    assert joined(packets) == joined(encode(fmt, [pcm]))
    assert (encoder.samples_in, encoder.samples_out) == (700, total)


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=str)
def test_two_at_once_are_independent(fmt: AudioFormat) -> None:
    """Interleaved encoders give what each gives alone."""
    one, two = cut(voice(4000, seed=1), [500]), cut(voice(4000, seed=2), [500])
    first, second = encoder_for(fmt), encoder_for(fmt)
    got_one, got_two = [], []
    for left, right in zip(one, two, strict=True):
        got_one += first.encode(left)
        got_two += second.encode(right)
    assert got_one + first.flush() == encode(fmt, one)
    assert got_two + second.flush() == encode(fmt, two)


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=str)
def test_no_audio_at_all(fmt: AudioFormat) -> None:
    """Raw formats give nothing; containers give a valid empty file."""
    packets = encode(fmt, [b"", b""])
    if fmt.container == "raw":
        assert packets == []
    elif fmt.container == "wav":
        assert read_wav(joined(packets)).pcm == b""
    else:
        assert len(packets) == 1
        assert read_ogg_opus(joined(packets)).total_samples == 0


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=str)
@pytest.mark.parametrize("buffer", [bytearray, memoryview])
def test_buffers_of_any_kind(fmt: AudioFormat, buffer: type[bytearray] | type[memoryview]) -> None:
    """And what the caller does with its buffer afterwards does not matter."""
    pcm = voice(1000)
    encoder = encoder_for(fmt)
    scratch = bytearray(pcm)
    packets = encoder.encode(buffer(scratch))
    scratch[:] = bytes(len(scratch))
    assert joined(packets + encoder.flush()) == joined(encode(fmt, [pcm]))


# --- raw Opus, Ogg -----------------------------------------------------------------------------


@pytest.mark.parametrize("frame_ms", FRAMES_MS)
def test_every_packet_goes_when_it_is_full(frame_ms: int) -> None:
    """Raw Opus: the sample that fills a packet brings it out; flush brings at most two."""
    encoder = encoder_for(resolve_format("opus", frame_ms=frame_ms))
    size = 24 * frame_ms
    for _ in range(3):
        assert encoder.encode(voice(size - 1)) == []
        (packet,) = encoder.encode(voice(1))
        assert packet.samples == size
    assert len(encoder.flush()) == 1
    encoder = encoder_for(resolve_format("opus", frame_ms=frame_ms))
    encoder.encode(voice(size - 1))
    assert len(encoder.flush()) == 2


def test_the_first_message_of_an_ogg_stream_is_heard() -> None:
    """20 ms of audio bring headers and audio in one packet, at once; later pages hold 80 ms."""
    encoder = encoder_for(resolve_format("opus", "ogg"))
    (first,) = encoder.encode(voice(480))
    assert first.samples == 480
    stream = read_ogg_opus(first.payload)
    assert stream.head.pre_skip == encoder.pre_skip == 312
    assert stream.head.input_rate_hz == 24_000
    assert len(stream.packets) == 1
    assert [p.samples for p in encoder.encode(voice(480 * 15))] == [480] * 3 + [1920] * 3
    assert encoder.encode(voice(1919)) == []
    assert [p.samples for p in encoder.encode(voice(1))] == [1920]


def test_an_ogg_stream_says_where_it_ends() -> None:
    """The last granule is pre-skip plus what was said, although the packets hold more."""
    packets = encode(resolve_format("opus", "ogg", 16_000), [voice(1001, 16_000)], 16_000)
    stream = read_ogg_opus(joined(packets))
    assert stream.total_samples == 3003
    assert 960 * len(stream.packets) > 312 + 3003
    assert packets[-1].payload[5] == 4, "end of stream"
    assert int.from_bytes(packets[-1].payload[6:14], "little") == 312 + 3003


def test_ogg_serials_differ_unless_given() -> None:
    """Files that are joined one after the other need different serials."""
    fmt = resolve_format("opus", "ogg")
    serials = {make_encoder(fmt, 24_000).encode(voice(480))[0].payload[14:18] for _ in range(5)}
    assert len(serials) == 5
    one = make_encoder(fmt, 24_000, serial=0xDEADBEEF).encode(voice(480))[0]
    assert one.payload[14:18] == b"\xef\xbe\xad\xde"


def test_bitrate_and_complexity_reach_the_encoder() -> None:
    """More bits a second are more bytes; complexity changes the packets."""
    pcm = voice(24_000)
    sizes = [
        len(joined(encode(resolve_format("opus", bitrate=bitrate), [pcm])))
        for bitrate in (8_000, 16_000, 32_000, 64_000)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 1800
    assert 2500 < sizes[2] < 5500
    by_complexity = {
        joined(make_encoder(resolve_format(), 24_000, complexity=c).encode(pcm)) for c in (0, 5, 10)
    }
    assert len(by_complexity) == 3


# --- PCM, WAV, G.711 ---------------------------------------------------------------------------


def test_pcm_at_the_source_rate_is_untouched() -> None:
    """No copy even: the packet holds the bytes that came in."""
    pcm = voice(500)
    (packet,) = encoder_for(resolve_format("pcm_s16le")).encode(pcm)
    assert packet == Packet(pcm, 500)
    assert packet.payload is pcm


def test_the_wav_header_is_in_the_first_packet_only() -> None:
    """44 bytes before the first samples; sizes unknown."""
    encoder = encoder_for(resolve_format("pcm_s16le", "wav"))
    first, second = encoder.encode(voice(10)) + encoder.encode(voice(10))
    assert (len(first.payload), first.samples) == (44 + 20, 10)
    assert first.payload[:4] == b"RIFF"
    assert second.payload == voice(10)


@pytest.mark.parametrize(("codec", "code"), [("mulaw", encode_mulaw), ("alaw", encode_alaw)])
def test_telephony_is_filtered_first(codec: str, code: object) -> None:
    """G.711 codes the resampled audio, not every third sample."""
    pcm = voice(4800)
    resampler = Resampler(24_000, 8_000)
    filtered = resampler.process(pcm) + resampler.flush()
    assert joined(encode(resolve_format(codec), [pcm])) == code(filtered)  # type: ignore[operator]
