"""Frames and codecs: what goes in comes out, in whatever pieces."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import fields
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    Capabilities,
    Command,
    EngineReady,
    Event,
    StartUtterance,
    TextUnit,
    Voice,
)
from rtts.engine.wire import (
    COMMANDS,
    EVENTS,
    Channel,
    FrameError,
    FrameKind,
    FrameReader,
    read_frame,
)

# Everything a field can hold; whole 64-bit integers, every float but NaN, which equals nothing.
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(str, st.text(st.characters(codec="utf-8")))


@given(st.lists(st.one_of([st.from_type(cls) for cls in get_args(Command)]), max_size=5))
@settings(max_examples=60, deadline=None)
def test_commands_come_out_as_they_went_in(commands: list[Command]) -> None:
    """decode(encode(x)) == x, types included, for every command."""
    decoded = COMMANDS.decode(COMMANDS.encode(commands))
    assert decoded == commands
    assert [type(each) for each in decoded] == [type(each) for each in commands]


@given(st.lists(st.one_of([st.from_type(cls) for cls in get_args(Event)]), max_size=5))
@settings(max_examples=60, deadline=None)
def test_events_come_out_as_they_went_in(events: list[Event]) -> None:
    """decode(encode(x)) == x, types included, for every event."""
    decoded = EVENTS.decode(memoryview(EVENTS.encode(events)))
    assert decoded == events
    for before, after in zip(events, decoded, strict=True):
        assert type(before) is type(after)
        for item in fields(before):
            assert type(getattr(before, item.name)) is type(getattr(after, item.name))


def test_what_is_nested_keeps_its_type() -> None:
    """Voices, enumerations and tuples inside capabilities survive."""
    voice = Voice("v", ("en", "zh"), "MIT", notes=("no numbers",))
    ready = EngineReady(Capabilities("e", "m", (voice,), "v", text_unit=TextUnit.TOKEN))
    (decoded,) = EVENTS.decode(EVENTS.encode([ready]))
    assert decoded == ready
    assert isinstance(decoded, EngineReady)
    assert isinstance(decoded.capabilities.text_unit, TextUnit)
    assert decoded.capabilities.voice("v") == voice


@pytest.mark.parametrize(
    "command",
    [
        AppendText(1, 0, "half \ud800 a pair"),
        StartUtterance(1, "v", seed=2**70),
        StartUtterance(1, "v", seed=-(2**70)),
    ],
)
def test_what_cannot_cross_says_so(command: Command) -> None:
    """Lone surrogates and huge integers are refused by name of the error, never mangled."""
    with pytest.raises((UnicodeEncodeError, OverflowError)):
        COMMANDS.encode([command])


@pytest.mark.parametrize(
    "body", [b"", b"\x91", b"\x91\x92\x63\x00", b"\x91\x91\x00", b"\xc1", b"\x91\x93\x02\xa1a\x00"]
)
def test_nonsense_is_refused(body: bytes) -> None:
    """Bodies that `encode` does not make are a DecodeError, whatever is wrong with them."""
    with pytest.raises(msgspec.DecodeError):
        COMMANDS.decode(body)


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", len(body), kind) + body


@given(
    frames=st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6),
    cuts=st.lists(st.integers(0, 300), max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_frames_come_whole_in_any_pieces(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """Cutting the stream anywhere changes nothing; a frame is delivered with its last byte."""
    stream = b"".join(frame(kind, body) for kind, body in frames)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = FrameReader()
    got: list[tuple[int, bytes]] = []
    for start, stop in zip(edges, edges[1:], strict=False):
        got += [(kind, bytes(body)) for kind, body in reader.feed(stream[start:stop])]
        complete, at = 0, 0
        for _, body in frames:
            at += 5 + len(body)
            complete += at <= stop
        assert len(got) == complete
    assert got == frames


def test_a_long_frame_in_many_pieces_is_linear() -> None:
    """A frame is joined once, not with each piece."""
    reader = FrameReader()
    body = bytes(8 * 1024 * 1024)
    stream = frame(2, body)
    joined = 0
    for start in range(0, len(stream), 4096):
        for _, got in reader.feed(stream[start : start + 4096]):
            joined += len(got)
        assert len(reader._pieces) <= start // 4096 + 1
    assert joined == len(body)


def test_an_absurd_length_is_refused() -> None:
    """Garbage is told from frames before memory is reserved for it."""
    with pytest.raises(FrameError):
        FrameReader().feed(b"\xff\xff\xff\xff\x01")


@pytest.fixture
def pair() -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_full_socket_keeps_what_it_cannot_send(pair: tuple[socket.socket, ...]) -> None:
    """Frames beyond the socket's buffer wait, in order, and `flush` sends them in time."""
    sender, receiver = Channel(pair[0]), Channel(pair[1])
    bodies = [bytes([n]) * 100_000 for n in range(20)]
    for body in bodies:
        sender.send(FrameKind.EVENTS, body)
    assert sender.unsent_bytes > 1_000_000
    got: list[bytes] = []
    while len(got) < len(bodies):
        frames = receiver.receive()
        assert frames is not None
        got += [bytes(body) for _, body in frames]
        sender.flush()
    assert got == bodies
    assert sender.unsent_bytes == 0
    assert receiver.receive() == []


def test_the_end_of_the_stream(pair: tuple[socket.socket, ...]) -> None:
    """What was sent before the end is read, then None; sending to nobody is no error."""
    one, other = Channel(pair[0]), Channel(pair[1])
    one.send(FrameKind.PING)
    one.end()
    frames = other.receive()
    assert frames is not None
    assert [kind for kind, _ in frames] == [FrameKind.PING]
    assert other.receive() is None
    other.send(FrameKind.PONG)  # the other half is open still
    assert one.receive()
    other.close()
    for _ in range(3):
        one.send(FrameKind.PING, bytes(1_000_000))
    one.end()
    assert one.unsent_bytes == 0
    assert one.receive() is None


def test_read_frame_leaves_the_rest(pair: tuple[socket.socket, ...]) -> None:
    """A blocking read takes one frame, in however many pieces, and not a byte more."""
    ours, theirs = pair
    body = bytes(range(256)) * 4_000
    writer = threading.Thread(target=ours.sendall, args=(frame(0, body) + b"rest",))
    writer.start()
    assert read_frame(theirs) == (0, body)
    assert theirs.recv(10) == b"rest"
    writer.join()
    ours.close()
    with pytest.raises(EOFError):
        read_frame(theirs)


def test_audio_costs_little_more_than_its_bytes() -> None:
    """The frame around a chunk of PCM is a few bytes, whatever the chunk."""
    pcm = bytes(3_840)
    assert len(EVENTS.encode([AudioProduced(1_000_000, 3, pcm)])) <= len(pcm) + 32
