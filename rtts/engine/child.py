"""The child process of a `RemoteEngine`: builds one core and drives it.

One thread does everything: it takes frames, applies commands, steps and sends, so that nothing
competes with the core for the GIL, and so that a core that hangs does not answer pings. A second
thread only waits for the parent's end of the socket to close, and then ends the process, whatever
the core is doing. The parent alone decides when the child stops, by ending its half of the stream:
Ctrl-C and SIGTERM, which reach whole groups of processes, are ignored here.

It knows nothing about restarts, nor about whose utterances it speaks.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence

import msgspec

from rtts.engine.drive import drive
from rtts.engine.interface import Command, EngineCore, Event, VoiceLoaded
from rtts.engine.wire import COMMANDS, EVENTS, Channel, Failure, FrameKind, LogLine, read_frame
from rtts.errors import ConfigError

# Stop stepping while the parent has this much to read: 0.64 s of 256 utterances, which a step may
# hand over at once. It reads in time, or it is in trouble that more audio would make worse.
_UNSENT_LIMIT_BYTES = 8 * 1024 * 1024
_GOODBYE_S = 1.0  # to tell the parent of a failure before the process ends anyway


def main(socket_fd: int) -> int:
    """Run the child; returns its exit status.

    Args:
        socket_fd: This side of a connected stream socket, inherited. Its first frame is a pickled
            (callable, args, kwargs) that makes the core.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()  # a segmentation fault in a model's library leaves a stack on stderr
    sock = socket.socket(fileno=socket_fd)
    sock.set_inheritable(False)  # a grandchild that held it would hide this process's death
    threading.Thread(target=_die_with_parent, args=(socket_fd,), daemon=True).start()
    _, boot = read_frame(sock)
    channel = Channel(sock)
    logging.basicConfig(level=logging.INFO, handlers=[_ToHost(channel)])
    try:
        make_core, args, kwargs = pickle.loads(boot)
        core: EngineCore = make_core(*args, **kwargs)
        drive(core, _SocketPort(channel))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the process's root: the parent logs it
        _say_goodbye(channel, error)
        return 1
    return 0


def _die_with_parent(socket_fd: int) -> None:
    """End the process when the other end of the socket is closed."""
    poll = select.poll()
    poll.register(socket_fd, 0)  # no event is asked for: only a hang-up wakes this thread
    poll.poll()
    os._exit(1)


def _say_goodbye(channel: Channel, error: BaseException) -> None:
    """Tell the parent why the core died, if it listens."""
    is_config = isinstance(error, ConfigError)
    told = (str(error) if is_config else f"{type(error).__name__}: {error}", traceback.format_exc())
    # "replace", for a message may quote text that has no UTF-8.
    message, trace = (text.encode("utf-8", "replace").decode() for text in told)
    failure = Failure(message, trace, is_config)
    channel.send(FrameKind.FAILED, msgspec.msgpack.encode(failure))
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLOUT)
    while channel.unsent_bytes and poll.poll(_GOODBYE_S * 1000):
        channel.flush()


class _ToHost(logging.Handler):
    """Has the host log what this process logs: one log, one format, one level for an operator."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self._channel = channel
        self._owner = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record).encode("utf-8", "replace").decode()
        if threading.get_ident() != self._owner:  # the channel is the core's thread's alone
            print(f"{record.levelname.lower()} {record.name}: {text}", file=sys.stderr)  # noqa: T201
            return
        line = LogLine(record.name, record.levelno, text)
        self._channel.send(FrameKind.LOG, msgspec.msgpack.encode(line))


class _SocketPort:
    """The core's `Port` over a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        self._is_stopped = False
        self._is_frozen = False  # what is loaded is out of the cycle collector's way

    def receive(self, wait_s: float | None) -> Sequence[Command] | None:
        commands: list[Command] = []
        timeout_ms = None if wait_s is None else wait_s * 1000
        while not commands and not self._is_stopped:
            has_backlog = self._channel.unsent_bytes > 0
            is_full = self._channel.unsent_bytes > _UNSENT_LIMIT_BYTES
            self._poll.modify(
                self._channel.fileno(), select.POLLIN | (select.POLLOUT if has_backlog else 0)
            )
            ready = self._poll.poll(None if is_full else timeout_ms)
            for _, happened in ready:
                if happened & select.POLLOUT:
                    self._channel.flush()
                if happened & ~select.POLLOUT:
                    commands += self._take()
            if self._channel.unsent_bytes <= _UNSENT_LIMIT_BYTES:
                break  # a wait that was cut short is taken up again by the next call
        return None if self._is_stopped else commands

    def emit(self, events: Sequence[Event]) -> None:
        if not self._is_frozen and any(isinstance(event, VoiceLoaded) for event in events):
            # Models and lexicons are here to stay: a full collection that walks them takes 50 ms.
            self._is_frozen = True
            gc.collect()
            gc.freeze()
        self._channel.send(FrameKind.EVENTS, EVENTS.encode(events))

    def _take(self) -> list[Command]:
        """Answer pings and return the commands that have arrived."""
        frames = self._channel.receive()
        if frames is None:
            self._is_stopped = True
            return []
        commands: list[Command] = []
        for kind, body in frames:
            if kind == FrameKind.COMMANDS:
                commands += COMMANDS.decode(body)
            elif kind == FrameKind.PING:
                self._channel.send(FrameKind.PONG)
        return commands
