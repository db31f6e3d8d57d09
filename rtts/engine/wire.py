"""How commands and events cross a socket: MessagePack bodies in length-prefixed frames.

A frame is a length and a kind, then the body. The bodies of commands and events are arrays of
arrays, one for each message: its place in the union of `rtts.engine.interface`, then its fields in
order. The shapes are derived from the dataclasses, so a new command or event needs nothing here;
both ends are the same release, so nothing is versioned.

This module knows nothing about processes, cores or event loops.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar, Union, get_args, get_type_hints

import msgspec

from rtts.engine.interface import Command, Event

MessageT = TypeVar("MessageT")


class FrameKind(IntEnum):
    """What a frame's body is, and which side sends it."""

    BOOT = 0  # host to core, first and once: what to build, see `rtts.engine.child`
    COMMANDS = 1  # host to core: a batch of commands
    EVENTS = 2  # core to host: what one step returned
    PING = 3  # host to core: answer between two steps
    PONG = 4
    FAILED = 5  # core to host: the core raised; the body is a `Failure`
    LOG = 6  # core to host: something for the log; the body is a `LogLine`


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """Why a core died, told by its own process.

    Attributes:
        message: One line.
        traceback: For the log.
        is_config: A setting is wrong: starting again will not help.
    """

    message: str
    traceback: str
    is_config: bool = False


class LogLine(msgspec.Struct, array_like=True, frozen=True):
    """What the core's process logs, for the log of the host's.

    Attributes:
        logger: Name of the logger.
        level: Number of the level.
        message: One line, or an exception's several.
    """

    logger: str
    level: int
    message: str


class Codec(Generic[MessageT]):
    """Encodes batches of the frozen dataclasses of one union.

    `msgspec` decodes a union only of tagged structs, so each dataclass gets a struct of the same
    fields; converting between the two is an `attrgetter` and a call.
    """

    def __init__(self, classes: Sequence[type[MessageT]]) -> None:
        self._to_struct: dict[type, tuple[Callable[..., Any], Callable[[Any], Any]]] = {}
        self._from_struct: dict[type, tuple[type[MessageT], Callable[[Any], Any]]] = {}
        for tag, cls in enumerate(classes):
            hints = get_type_hints(cls)
            names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
            struct_type = msgspec.defstruct(
                cls.__name__,
                [(name, hints[name]) for name in names],
                tag=tag,
                array_like=True,
                gc=False,
            )
            to_fields = _fields_getter(names)
            self._to_struct[cls] = (struct_type, to_fields)
            self._from_struct[struct_type] = (cls, to_fields)
        self._encoder = msgspec.msgpack.Encoder()
        union: Any = Union[tuple(self._from_struct)]  # noqa: UP007 - of a computed list
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[union])

    def encode(self, messages: Sequence[MessageT]) -> bytes:
        """The body of a batch.

        Raises:
            UnicodeEncodeError: A text holds a lone surrogate.
            OverflowError: An integer has more than 64 bits.
        """
        structs = []
        for message in messages:
            struct_type, to_fields = self._to_struct[type(message)]
            structs.append(struct_type(*to_fields(message)))
        return self._encoder.encode(structs)

    def decode(self, body: bytes | memoryview) -> list[MessageT]:
        """The batch of a body.

        Raises:
            msgspec.DecodeError: The body is not what `encode` makes.
        """
        messages = []
        for item in self._decoder.decode(body):
            cls, to_fields = self._from_struct[type(item)]
            messages.append(cls(*to_fields(item)))
        return messages


def _fields_getter(names: Sequence[str]) -> Callable[[Any], Any]:
    """A function from an object to the tuple of those attributes."""
    if len(names) == 1:  # attrgetter of one name returns the bare value
        name = names[0]
        return lambda item: (getattr(item, name),)
    return attrgetter(*names)


COMMANDS: Codec[Command] = Codec(get_args(Command))
EVENTS: Codec[Event] = Codec(get_args(Event))

_HEADER = struct.Struct("<IB")  # body bytes, kind
# A step's events are at most a few hundred chunks of a second; more is not a frame of ours.
MAX_BODY_BYTES = 256 * 1024 * 1024
_RECEIVE_BYTES = 256 * 1024  # about what a Unix socket buffers


class FrameError(ValueError):
    """The bytes are not frames."""


class FrameReader:
    """Cuts a stream of bytes into frames, whatever pieces it comes in. Owner: its channel."""

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []  # an unfinished frame, and nothing else
        self._have_bytes = 0  # in `_pieces`
        self._need_bytes = _HEADER.size  # until there is something to cut

    def feed(self, data: bytes) -> list[tuple[int, memoryview]]:
        """The frames completed by these bytes: (kind, body).

        Raises:
            FrameError: A length no frame has.
        """
        self._pieces.append(data)
        self._have_bytes += len(data)
        if self._have_bytes < self._need_bytes:
            return []
        # Joined only once the frame is whole: a long frame in many pieces costs one copy.
        view = memoryview(b"".join(self._pieces) if len(self._pieces) > 1 else data)
        frames = []
        at = 0
        self._need_bytes = _HEADER.size
        while len(view) - at >= _HEADER.size:
            length, kind = _HEADER.unpack_from(view, at)
            if length > MAX_BODY_BYTES:
                raise FrameError(f"a frame of {length} bytes")
            stop = at + _HEADER.size + length
            if stop > len(view):
                self._need_bytes = stop - at
                break
            frames.append((kind, view[at + _HEADER.size : stop]))
            at = stop
        self._pieces = [view[at:]] if at < len(view) else []
        self._have_bytes = len(view) - at
        return frames


def read_frame(sock: socket.socket) -> tuple[int, bytes]:
    """One frame from a blocking socket, and not a byte of the next.

    Raises:
        EOFError: The stream ended.
    """
    length, kind = _HEADER.unpack(_read_exactly(sock, _HEADER.size))
    return kind, _read_exactly(sock, length)


def _read_exactly(sock: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = sock.recv(length - len(data))
        if not piece:
            raise EOFError("the stream ended inside a frame")
        data += piece
    return bytes(data)


class Channel:
    """Frames over a non-blocking stream socket. Owner: one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._reader = FrameReader()
        self._unsent: deque[memoryview] = deque()
        self.unsent_bytes = 0

    def fileno(self) -> int:
        """The socket's file descriptor, for a selector."""
        return self._socket.fileno()

    def send(self, kind: FrameKind, body: bytes = b"") -> None:
        """Send a frame, or as much of it as the socket takes now; `flush` sends the rest."""
        frame = _HEADER.pack(len(body), kind) + body
        self._unsent.append(memoryview(frame))
        self.unsent_bytes += len(frame)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it.

        A peer that is gone is not an error here: it shows as the end of what it sends.
        """
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                self.unsent_bytes -= sent
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                    return
                self._unsent.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._unsent.clear()
            self.unsent_bytes = 0

    def receive(self) -> list[tuple[int, memoryview]] | None:
        """The frames that have arrived, perhaps none; None at the end of the stream.

        Raises:
            FrameError: The bytes are not frames.
        """
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        return self._reader.feed(data) if data else None

    def end(self) -> None:
        """End our half of the stream: the peer sees its end, whatever was not sent is dropped."""
        with contextlib.suppress(OSError):  # the peer is gone already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
