"""What was sent lately, kept so that a resumed socket can be told again.

One log a context, of everything it sent, in order. An entry leaves when it is both older than the
resume window and confirmed to have reached the client's socket, or so old that a client which had
not taken it would be gone; bytes are capped whatever happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rtts.protocol.events import Audio, AudioFlags, ServerMessage
from rtts.session.speech import with_flags

# 15 s of Opus at 32 kbit/s is 60 kB, of PCM at 48 kHz 1.4 MB.
MAX_LOG_BYTES = 2_000_000
# Of all finished contexts of a conversation together.
MAX_ENDED_LOG_BYTES = 4_000_000


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

    Attributes:
        n_bytes: Size of what is kept, roughly.
    """

    def __init__(self, window_s: float, patience_s: float) -> None:
        """Start empty.

        Args:
            window_s: How long everything is kept.
            patience_s: How much longer what the client has not confirmed is kept.
        """
        self._window_s = window_s
        self._patience_s = patience_s
        self._entries: deque[tuple[float, ServerMessage]] = deque()
        self.n_bytes = 0
        self._dropped_seq = -1  # last audio no longer kept
        self._has_dropped = False

    def add(self, message: ServerMessage, now: float) -> None:
        """Remember a message that was just sent."""
        self._entries.append((now, message))
        self.n_bytes += _size(message)
        while self.n_bytes > MAX_LOG_BYTES:
            self._drop()

    def trim(self, now: float, is_confirmed: Callable[[Audio], bool]) -> None:
        """Forget what is old and confirmed, and what is too old to matter."""
        oldest, oldest_unconfirmed = now - self._window_s, now - self._window_s - self._patience_s
        while self._entries:
            sent_at, message = self._entries[0]
            is_safe = not isinstance(message, Audio) or is_confirmed(message)
            if sent_at > (oldest if is_safe else oldest_unconfirmed):
                return
            self._drop()

    def clear(self) -> None:
        """Forget everything."""
        while self._entries:
            self._drop()

    def _drop(self) -> None:
        _, message = self._entries.popleft()
        self.n_bytes -= _size(message)
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
        self.n_bytes = sum(_size(message) for _, message in self._entries)
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
