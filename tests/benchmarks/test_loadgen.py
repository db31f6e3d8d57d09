"""The parts of the load generator: exact arithmetic on virtual time, and bytes."""

from __future__ import annotations

import itertools
import random
import statistics
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.loadgen import texts
from benchmarks.loadgen.figures import quantiles_ms
from benchmarks.loadgen.player import Player
from benchmarks.loadgen.reply import Reply
from benchmarks.loadgen.run import poisson_times
from benchmarks.loadgen.wire import Connection
from rtts.audio.opus import Encoder
from rtts.protocol import events
from rtts.protocol.audio_message import join_packets, pack_audio

MS = 1 / 1000

# --- player --------------------------------------------------------------------------------------

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 200), st.integers(0, 400)),
    min_size=1,
    max_size=15,
)


def by_ticks(arrivals: list[tuple[int, int, int]], buffer_ms: int) -> tuple[int, int, int]:
    """The same player, one millisecond at a time: (gaps, stalled, starved)."""
    pending = list(arrivals)
    buffered, has_started, t = 0, False, 0
    stalled = starved = gaps = gap = 0
    while pending or buffered:
        while pending and pending[0][0] <= t:
            _, size, _ = pending.pop(0)
            gaps, gap = gaps + (gap > 0), 0
            buffered += size
            has_started = has_started or buffered >= buffer_ms
        has_started = has_started or not pending
        if has_started and buffered:
            buffered -= 1
        elif has_started and pending:
            is_written = pending[0][2] <= t
            gap += is_written
            stalled += is_written
            starved += not is_written
        t += 1
    return gaps, stalled, starved


@settings(deadline=None)
@given(ARRIVALS, st.sampled_from([0, 60, 150]))
def test_the_player_equals_one_that_ticks(steps: list[tuple[int, int, int]], buffer: int) -> None:
    """Gaps, stalled and starved time are exact, whatever arrives when."""
    at, arrivals = 0, []
    for wait, size, age in steps:
        at += wait
        arrivals.append((at, size, max(0, at - age)))
    player = Player(buffer * MS)
    for at, size, written in arrivals:
        player.feed(size * MS, 1000.0 + at * MS, 1000.0 + written * MS)
    player.end(1000.0 + at * MS)
    gaps, stalled, starved = by_ticks(arrivals, buffer)
    assert player.underruns == gaps
    assert player.stalled_s == pytest.approx(stalled * MS, abs=1e-6)
    assert player.starved_s == pytest.approx(starved * MS, abs=1e-6)
    assert player.started_at is not None
    length_s = player.audio_s + player.stalled_s + player.starved_s
    assert player.ends_at - player.started_at == pytest.approx(length_s)


def test_audio_just_in_time_is_no_gap() -> None:
    """A message that arrives as the last sample is played is on time."""
    player = Player()
    for at in range(10):
        player.feed(0.5, 1000.0 + 0.5 * at, 1000.0)
    assert player.underruns == 0 and player.ends_at == 1005.0


# --- wire ----------------------------------------------------------------------------------------


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


def frame(first: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return struct.pack("!BB", first, size) + payload
    if size < 65_536:
        return struct.pack("!BBH", first, 126, size) + payload
    return struct.pack("!BBQ", first, 127, size) + payload


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([1, 2]), st.binary(max_size=300) | st.just(bytes(70_000)), st.integers(1, 3)
    ),
    max_size=6,
)


class Ear:
    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.closed_with = 0

    def on_text(self, data: bytes, at: float) -> None:
        self.got.append((1, data))

    def on_binary(self, data: bytes, at: float) -> None:
        self.got.append((2, data))

    def on_closed(self, code: int) -> None:
        self.closed_with = code


async def feed(data: bytes, cuts: list[int]) -> tuple[list[tuple[int, bytes]], Any, Connection]:
    """What a connection hands over when `data` comes in pieces."""
    ear = Ear()
    connection = Connection(ear, "h", "/", {})
    transport = Transport()
    connection._transport = transport  # type: ignore[assignment]
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in zip(places, places[1:], strict=False):
        connection.data_received(data[start:end])
    return ear.got, transport, connection


RESPONSE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"


@settings(deadline=None)
@given(MESSAGES, st.lists(st.integers(0, 80_000), max_size=30))
async def test_messages_arrive_whole_however_they_are_cut(
    messages: list[tuple[int, bytes, int]], cuts: list[int]
) -> None:
    """Any chunking of the stream, and any fragmentation, gives the same messages."""
    data, expected = RESPONSE, []
    for opcode, payload, n_parts in messages:
        size = -(-len(payload) // n_parts) or 1
        parts = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
        for index, part in enumerate(parts):
            final = 0x80 * (index == len(parts) - 1)
            data += frame(final | (opcode if index == 0 else 0), part)
        expected.append((opcode, payload))
    got, _, connection = await feed(data, cuts)
    assert got == expected
    assert connection.n_messages == len(expected) and connection.n_bytes == len(data)


async def test_pings_are_answered_and_a_close_is_understood() -> None:
    """The pong carries the ping's payload, masked as clients must; the close code is kept."""
    data = RESPONSE + frame(0x89, b"mark") + frame(0x88, struct.pack("!H", 4408) + b"slow")
    _, transport, connection = await feed(data, [])
    assert transport.written.startswith(b"\x8a\x84\0\0\0\0mark")
    assert transport.is_closed
    connection.connection_lost(None)
    assert connection.close_code == 4408


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
async def test_sent_frames_have_the_right_length_field(size: int) -> None:
    """All three length encodings of RFC 6455 section 5.2."""
    _, transport, connection = await feed(RESPONSE, [])
    connection.send_text(bytes(size))
    head = {0: 2, 125: 2, 126: 4, 65_535: 4, 65_536: 10}[size]
    assert len(transport.written) == head + 4 + size
    assert transport.written[0] == 0x81 and transport.written[1] & 0x80


# --- one reply -----------------------------------------------------------------------------------


def opus_messages(n_packets: int, per_message: int) -> tuple[list[events.Audio], int]:
    """A tone after 100 ms of silence as Opus messages; also the pre-skip at 48 kHz."""
    encoder = Encoder(24_000, 1)
    packets = []
    for index in range(n_packets):
        value = 0 if index < 5 else 9000
        pcm = struct.pack("<480h", *(value * (-1) ** (i // 24) for i in range(480)))
        packets.append(encoder.encode(pcm, 480))
    messages = []
    for at in range(0, n_packets, per_message):
        some = packets[at : at + per_message]
        messages.append(
            events.Audio("c", 1, len(messages), 0, 480 * at, 0, len(some), 20, join_packets(some))
        )
    return messages, encoder.lookahead * 2


@pytest.mark.parametrize("per_message", [1, 4])
def test_opus_is_counted_and_listened_to(per_message: int) -> None:
    """Sound is found behind 100 ms of silence, pre-skip not counted; lengths add up."""
    messages, pre_skip = opus_messages(20, per_message)
    reply = Reply("c", started_at=1000.0, player_buffer_s=0.0, onset_level=1000.0)
    reply.sent(5, 1000.0)
    form = events.StreamFormat("opus", "raw", 24_000, 1, 20, 4, pre_skip, 32_000)
    reply.receive(events.Started("c", 1, form), 1000.01)
    reply.receive(events.SegmentStarted("c", 0, "Hello", (0, 5), 0.0), 1000.02)
    for message in messages:
        reply.receive_audio(pack_audio(message), 1000.02)
    samples = 20 * 480 - pre_skip // 2
    reply.receive(events.Done("c", "completed", 1, messages[-1].seq, 0.0, samples, 5), 1000.05)
    outcome = reply.outcome
    assert outcome.ending == "completed" and not outcome.faults
    assert outcome.first_packet_s == pytest.approx(0.02)
    assert outcome.onset_s == pytest.approx(0.1, abs=0.004)
    assert outcome.audio_s == pytest.approx(0.4)


@pytest.mark.parametrize(("missing", "fault"), [(1, "audio_missing"), (-1200, "audio_too_long")])
def test_a_wrong_length_is_a_fault(missing: int, fault: str) -> None:
    """One sample too few is noticed; up to two packets more is the codec's padding."""
    messages, pre_skip = opus_messages(8, 4)
    reply = Reply("c", started_at=1000.0, player_buffer_s=0.0, onset_level=None)
    form = events.StreamFormat("opus", "raw", 24_000, 1, 20, 4, pre_skip, 32_000)
    reply.receive(events.Started("c", 1, form), 1000.0)
    reply.receive(events.SegmentStarted("c", 0, "Hello", (0, 5), 0.0), 1000.0)
    for message in messages:
        reply.receive_audio(pack_audio(message), 1000.0)
    samples = 8 * 480 - pre_skip // 2 + missing
    reply.receive(events.Done("c", "completed", 1, 1, 0.0, samples, 5), 1000.0)
    assert set(reply.outcome.faults) == {fault}


# --- figures and texts ---------------------------------------------------------------------------


def test_quantiles_are_values_that_were_measured() -> None:
    """Nearest rank; None is left out; nothing gives nothing."""
    found = quantiles_ms([None, *(MS * value for value in range(100, 0, -1))])
    assert found is not None
    assert (found["p50"], found["p95"], found["p99"]) == (50.0, 95.0, 99.0)
    assert (found["min"], found["max"], found["n"], found["mean"]) == (1.0, 100.0, 100, 50.5)
    assert quantiles_ms([None]) is None


def test_arrivals_are_poisson() -> None:
    """Right rate, gaps as spread as exponential ones (deviation equals mean), in order, seeded."""
    times = list(poisson_times(50.0, 200.0, random.Random(1)))
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) / 200.0 == pytest.approx(50.0, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)
    assert min(gaps) > 0.0 and times[-1] < 200.0
    assert times == list(poisson_times(50.0, 200.0, random.Random(1)))


def test_sentences_can_be_first_segments() -> None:
    """Each has 5 to 15 words and ends like a sentence."""
    for sentence in texts.SENTENCES:
        assert 5 <= len(sentence.split()) <= 15
        assert sentence[-1] in ".?"
    assert len(set(texts.SENTENCES)) == len(texts.SENTENCES)


@given(st.integers(0, 1000))
def test_words_join_to_the_text_at_the_rate(seed: int) -> None:
    """Nothing is lost in writing, the first word comes at once, the same seed writes the same."""
    rng = random.Random(seed)
    text = texts.reply(rng, (3, 3))
    written = list(texts.pieces(text, 40.0, rng))
    assert "".join(piece for _, piece in written) == text
    assert written[0][0] == 0.0
    assert list(texts.pieces(text, None, rng)) == [(0.0, text)]
    assert texts.reply(random.Random(seed), (3, 3)) == text
