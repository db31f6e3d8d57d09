"""How late the event loop is: a timer that knows when it should have fired."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from rtts.metrics import Metrics, RollingLatency

INTERVAL_S = 0.1
WINDOW_S = 60.0


class LagSampler:
    """Samples the loop's lateness ten times a second.

    Owner: event loop.

    Attributes:
        rolling: Lateness of the last 60 s.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.rolling = RollingLatency(WINDOW_S)
        self._metrics = metrics
        self._clock = clock
        self._worst: deque[tuple[float, float]] = deque()  # (at, lateness), lateness falling
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; `stop` ends it."""
        self._due = self._clock() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._sample)

    def stop(self) -> None:
        """Stop sampling."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def clear(self) -> None:
        """Forget what was measured while the server was loading."""
        self.rolling.clear()
        self._worst.clear()

    def worst_s(self, now: float) -> float:
        """Worst lateness of the last 60 s, in seconds."""
        while self._worst and self._worst[0][0] <= now - WINDOW_S:
            self._worst.popleft()
        return self._worst[0][1] if self._worst else 0.0

    def _sample(self) -> None:
        now = self._clock()
        lag_s = max(0.0, now - self._due)
        self._metrics.loop_lag.observe(lag_s)
        self.rolling.add(lag_s, now)
        while self._worst and self._worst[-1][1] <= lag_s:
            self._worst.pop()
        self._worst.append((now, lag_s))
        self.start()
