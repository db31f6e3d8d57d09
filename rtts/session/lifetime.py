"""How long a conversation may last, be silent, be slow or be away. Deadlines as numbers.

Decides only *that* something is due; the session knows what to do about it.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from rtts.session.options import SessionOptions

_NEVER = float("inf")
# Deadlines are kept as floats; a timer that fires this much early is not early.
_TICK_S = 1e-6


class Due(StrEnum):
    """What a conversation's time is up for, in order of precedence."""

    RESUME = "resume"  # nobody came back
    SLOW = "slow"  # the client takes nothing
    LEAVE = "leave"  # it was asked to go and may not stay longer
    IDLE = "idle"  # nothing is going on
    AGE = "age"  # it has lasted its time


class Lifetime:
    """The clock of one conversation.

    Owner: its session.
    """

    def __init__(self, options: SessionOptions, now: float) -> None:
        self._options = options
        self._started_at = now
        self._active_at = now
        self._detached_at: float | None = None
        self._blocked_at: float | None = None
        self._leave_by: float | None = None
        self._markers: deque[tuple[int, float]] = deque()  # (marker, sent at), unanswered

    @property
    def is_blocked(self) -> bool:
        """Whether the transport takes nothing."""
        return self._blocked_at is not None

    @property
    def is_leaving(self) -> bool:
        """Whether the client was asked to go."""
        return self._leave_by is not None

    def active(self, now: float) -> None:
        """The client said something."""
        self._active_at = now

    def detached(self, now: float) -> None:
        """The socket is lost; what it did not take is no longer waited for."""
        self._detached_at = now
        self._blocked_at = None
        self._markers.clear()

    def attached(self, now: float) -> None:
        """A socket is back."""
        self._detached_at = None
        self._active_at = now

    def blocked(self, now: float) -> None:
        """The transport's buffer is full."""
        self._blocked_at = now

    def unblocked(self) -> None:
        """The transport's buffer drained."""
        self._blocked_at = None

    def leave(self, by: float) -> None:
        """The client was asked to go."""
        self._leave_by = by

    def marker_sent(self, marker: int, now: float) -> None:
        """A delivery marker left."""
        self._markers.append((marker, now))

    def marker_answered(self, marker: int) -> None:
        """The peer's socket has everything before `marker`."""
        while self._markers and self._markers[0][0] <= marker:
            self._markers.popleft()

    def due(self, now: float, *, n_running: int) -> Due | None:
        """What time is up for, given how many contexts run."""
        times = self._times(n_running, now)
        return next((due for due in Due if now >= times[due] - _TICK_S), None)

    def next_at(self, now: float, *, n_running: int) -> float:
        """When the next of them is due."""
        return min(self._times(n_running, now).values())

    def _times(self, n_running: int, now: float) -> dict[Due, float]:
        options = self._options
        is_away = self._detached_at is not None
        oldest = min(
            self._markers[0][1] if self._markers else _NEVER,
            _NEVER if self._blocked_at is None else self._blocked_at,
        )
        is_idle = not n_running and not is_away
        leave_by = _NEVER if self._leave_by is None else self._leave_by
        return {
            Due.RESUME: (self._detached_at or 0.0) + options.resume_window_s if is_away else _NEVER,
            Due.SLOW: oldest + options.slow_consumer_s,
            Due.LEAVE: leave_by if n_running else min(leave_by, now if self.is_leaving else _NEVER),
            Due.IDLE: self._active_at + options.idle_timeout_s if is_idle else _NEVER,
            Due.AGE: _NEVER if self.is_leaving else self._started_at + options.max_session_s,
        }
