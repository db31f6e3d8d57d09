"""The server's figures as one JSON object, and the feed that pushes them.

`/v1/stats` answers with a snapshot; the WebSocket of the same path (subprotocol `rtts-stats.v1`)
sends one each second and a `request` record for every finished context. No text, no audio.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from rtts import __version__
from rtts.errors import OverloadedError
from rtts.metrics import Metrics, RollingLatency
from rtts.server.hub import Hub
from rtts.server.lag import LagSampler
from rtts.server.readiness import Readiness
from rtts.server.records import RecordBook

SUBPROTOCOL = "rtts-stats.v1"
INTERVAL_S = 1.0
MAX_WATCHERS = 32
# A dashboard that is this far behind has frozen; it is told how much it missed.
MAX_WAITING = 256

Message = dict[str, Any]


class Watcher:
    """One reader of the feed, with what waits for it.

    Owner: event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._is_due = asyncio.Event()
        self._n_dropped = 0

    def push(self, message: Message) -> bool:
        """Queue a message; returns False if the watcher is too slow and it was dropped."""
        if len(self._waiting) >= MAX_WAITING:
            self._n_dropped += 1
            return False
        self._tell_gap()
        self._waiting.append(message)
        self._is_due.set()
        return True

    async def next(self) -> Message:
        """The next message. A gap is told where it was, as `{"type":"dropped","records":n}`."""
        while not self._waiting:
            self._tell_gap()
            if not self._waiting:
                self._is_due.clear()
                await self._is_due.wait()
        return self._waiting.popleft()

    def _tell_gap(self) -> None:
        if self._n_dropped:
            self._waiting.append({"type": "dropped", "records": self._n_dropped})
            self._n_dropped = 0


class Feed:
    """Pushes messages to every watcher.

    Owner: event loop.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._watchers: set[Watcher] = set()

    @property
    def watchers(self) -> int:
        """How many are watching."""
        return len(self._watchers)

    def subscribe(self) -> Watcher:
        """Add a watcher; `unsubscribe` it.

        Raises:
            OverloadedError: There are enough.
        """
        if len(self._watchers) >= MAX_WATCHERS:
            raise OverloadedError(f"{MAX_WATCHERS} are watching already", retry_after_s=5.0)
        watcher = Watcher()
        self._watchers.add(watcher)
        return watcher

    def unsubscribe(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        self._watchers.discard(watcher)

    def publish(self, message: Message) -> None:
        """Push a message to all."""
        for watcher in self._watchers:
            if not watcher.push(message):
                self._metrics.watcher_drops.inc()


class Figures:
    """Takes snapshots of the server, and publishes one each second while somebody watches.

    Owner: event loop.
    """

    def __init__(
        self,
        *,
        hub: Hub,
        readiness: Readiness,
        book: RecordBook,
        lag: LagSampler,
        feed: Feed,
        clock: Callable[[], float],
    ) -> None:
        self._hub = hub
        self._readiness = readiness
        self._book = book
        self._lag = lag
        self._feed = feed
        self._clock = clock
        self._started_at = clock()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin publishing; `stop` ends it."""
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._publish)

    def stop(self) -> None:
        """Stop publishing."""
        if self._timer is not None:
            self._timer.cancel()

    def _publish(self) -> None:
        if self._feed.watchers:
            self._feed.publish({"type": "stats", **self.snapshot()})
        self.start()

    def snapshot(self) -> Message:
        """The figures now; windows are the last 60 s."""
        now, hub = self._clock(), self._hub
        service, book = hub.service, self._book
        capabilities, load = service.capabilities, service.load
        reasons = self._readiness.reasons
        return {
            "server": f"rtts/{__version__}",
            "model": capabilities.model if capabilities else None,
            "time_ms": round(1000 * (service.epoch_s + now)),
            "uptime_s": round(now - self._started_at, 1),
            "ready": not reasons,
            "reasons": reasons,
            "degraded": list(capabilities.degraded) if capabilities else [],
            "sessions": hub.sessions,
            "contexts": hub.contexts,
            "first_packet_ms": _quantiles(service.first_packet, now),
            "first_packets": service.first_packet.count(now),
            "budget_ms": round(1000 * hub.options.budget_s, 3),
            "budget_hit_rate": book.budget.share(now),
            "engine": {
                "utterances": load.utterances,
                "slots": capabilities.max_utterances if capabilities else 0,
                "backlog_ms": round(1000 * load.backlog_s, 2),
                "first_chunk_ms": round(1000 * load.first_chunk_s, 2),
                "restarts": _count(hub.metrics, "rtts_engine_restarts_total"),
            },
            "voice_cache": {
                "hits": _count(hub.metrics, "rtts_cache_requests_total", result="hit"),
                "misses": _count(hub.metrics, "rtts_cache_requests_total", result="miss"),
                "evictions": _count(hub.metrics, "rtts_cache_evictions_total"),
                "entries": load.cache_entries,
                "bytes": load.cache_bytes,
            },
            "loop_lag_ms": {
                **_quantiles(self._lag.rolling, now),
                "max": round(1000 * self._lag.worst_s(now), 2),
            },
            "errors": _errors(hub.metrics),
        }


def _quantiles(rolling: RollingLatency, now: float) -> dict[str, float | None]:
    found = rolling.quantiles(now)
    if found is None:
        return {"p50": None, "p95": None, "p99": None}
    return {
        name: round(1000 * value, 2)
        for name, value in zip(("p50", "p95", "p99"), found, strict=True)
    }


def _count(metrics: Metrics, name: str, **labels: str) -> int:
    return int(metrics.registry.get_sample_value(name, labels) or 0)


def _errors(metrics: Metrics) -> dict[str, int]:
    """Errors by code, those that happened."""
    return {
        sample.labels["code"]: int(sample.value)
        for family in metrics.errors.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    }


async def watch(receive: Any, send: Any, watcher: Watcher) -> None:
    """Serve one accepted WebSocket of the feed until it closes; plain ASGI."""

    async def talk() -> None:
        while True:
            text = msgspec.json.encode(await watcher.next()).decode()
            await send({"type": "websocket.send", "text": text})

    async def listen() -> None:
        while (await receive())["type"] != "websocket.disconnect":
            pass  # a watcher has nothing to say

    tasks = [asyncio.create_task(talk()), asyncio.create_task(listen())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            # OSError: the watcher left while something was being sent.
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                raise outcome
