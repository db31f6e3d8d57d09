"""Holding the server back for a reader that falls behind.

The server sends at the pace of a playback clock, whoever reads. A client that must not collect what
nobody takes replaces that clock by reports of its own: what was read, but never faster than it can
have been heard. Knows nothing about sockets; time is an argument.
"""

from __future__ import annotations


class ReadingClock:
    """Audio received and read, in seconds, and what of it to report as played."""

    def __init__(self) -> None:
        self.received_s = 0.0
        self.waiting_s = 0.0  # received and not yet read
        self._played_s = 0.0  # of a player that starts with the first audio and waits when dry
        self._at: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any audio came."""
        return self._at is not None

    def received(self, duration_s: float, now: float) -> None:
        """Audio came."""
        self._advance(now)
        self.received_s += duration_s
        self.waiting_s += duration_s

    def read(self, duration_s: float) -> None:
        """Audio was taken."""
        self.waiting_s -= duration_s

    def played_s(self, now: float) -> float:
        """What to report as played."""
        self._advance(now)
        return max(0.0, min(self._played_s, self.received_s - self.waiting_s))

    def _advance(self, now: float) -> None:
        if self._at is not None:
            self._played_s = min(self._played_s + now - self._at, self.received_s)
        self._at = now
