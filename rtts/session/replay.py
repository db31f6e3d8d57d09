"""What was sent lately, kept so that a resumed socket can be told again.

One log a context, of everything it sent, in order. An entry leaves when it is both older than the
resume window and confirmed to have reached the client's socket; bytes are capped whatever happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rtts.protocol.events import Audio, AudioFlags, ServerMessage
from rtts.session.speech import with_flags

# 15 s of Opus at 32 kbit/s is 60 kB, of PCM at 48 kHz 1.4 MB.
MAX_LOG_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """What to send again.

    Attributes:
        messages: In order; audio carries the REPLAY flag.
        is_whole: False when something after the acknowledged audio is no longer kept.
    """

    messages: list[ServerMessage]
    is_whole: bool


class SentLog:
    """The messages one context sent.

    Owner: its context.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._entries: deque[tuple[float, ServerMessage]] = deque()
        self._bytes = 0
        self._dropped_seq = -1  # last audio no longer kept
        self._has_dropped = False

    def add(self, message: ServerMessage, now: float) -> None:
        """Remember a message that was just sent."""
        self._entries.append((now, message))
        self._bytes += _size(message)

    def trim(self, now: float, is_confirmed: Callable[[Audio], bool]) -> None:
        """Forget what is old and confirmed, and what is over the byte limit."""
        oldest = now - self._window_s
        while self._entries:
            sent_at, message = self._entries[0]
            is_safe = not isinstance(message, Audio) or is_confirmed(message)
            if self._bytes <= MAX_LOG_BYTES and (sent_at > oldest or not is_safe):
                return
            self._entries.popleft()
            self._bytes -= _size(message)
            self._has_dropped = True
            if isinstance(message, Audio):
                self._dropped_seq = message.seq

    def after(self, ack: int) -> Replay:
        """Everything sent after audio number `ack`; all of it for -1.

        The messages leave the log: sending them again puts them back.
        """
        entries = [message for _, message in self._entries]
        kept = 0
        if ack >= 0:
            for index, message in enumerate(entries):
                if isinstance(message, Audio) and message.seq <= ack:
                    kept = index + 1
        again = entries[kept:]
        self._entries = deque(list(self._entries)[:kept])
        self._bytes = sum(_size(message) for _, message in self._entries)
        is_whole = self._dropped_seq <= ack if ack >= 0 else not self._has_dropped
        return Replay(
            messages=[
                with_flags(message, AudioFlags.REPLAY) if isinstance(message, Audio) else message
                for message in again
            ],
            is_whole=is_whole,
        )


def _size(message: ServerMessage) -> int:
    return len(message.data) + 64 if isinstance(message, Audio) else 256
