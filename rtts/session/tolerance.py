"""How much a client may send and how often it may be wrong. Plain counters; time is an argument."""

from __future__ import annotations

from collections import deque

from rtts.errors import RateLimitedError

# Two seconds' worth may come at once: a reply sent word by word in a tight loop is no attack.
BURST_S = 2.0
MAX_STRIKES = 10
# Mistakes older than this are forgiven; a client with a bug now and then keeps its connection.
STRIKE_WINDOW_S = 60.0
STRIKE_CODES = frozenset(
    ("bad_json", "bad_request", "unknown_type", "unknown_ctx", "ctx_exists", "rate_limited")
)


class MessageRate:
    """A token bucket of messages.

    Owner: its session.
    """

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._tokens = per_s * BURST_S
        self._at = now

    def take(self, now: float) -> None:
        """Count one message.

        Raises:
            RateLimitedError: It came too soon.
        """
        refill = (now - self._at) * self._per_s
        self._tokens = min(self._per_s * BURST_S, self._tokens + refill)
        self._at = now
        if self._tokens < 1.0:
            raise RateLimitedError(
                f"more than {self._per_s:g} messages a second",
                retry_after_s=(1.0 - self._tokens) / self._per_s,
            )
        self._tokens -= 1.0


class Strikes:
    """Mistakes of one client.

    Owner: its session.
    """

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=MAX_STRIKES)

    def is_out(self, code: str, now: float) -> bool:
        """Count a mistake; returns whether it was one too many."""
        if code not in STRIKE_CODES:
            return False
        self._at.append(now)
        return len(self._at) == MAX_STRIKES and now - self._at[0] <= STRIKE_WINDOW_S
