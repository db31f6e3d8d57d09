"""The server's figures as one JSON object: how it is now, and what is wrong with it.

`/v1/stats` answers with `snapshot`; each second it is published with the point of that second. The
documentation of every field is in docs/operations.md. Knows nothing about sockets.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rtts import __version__
from rtts.advice import Advice, Adviser, Condition, Window, advise
from rtts.metrics import Metrics, RollingLatency, bucket_s
from rtts.server.gpu import GpuSampler
from rtts.server.history import History
from rtts.server.hub import Hub
from rtts.server.lag import LagSampler
from rtts.server.readiness import Readiness
from rtts.server.records import RecordBook
from rtts.server.stats import Feed, Message

INTERVAL_S = 1.0
# A loop's timer may fire a millisecond early, and would then close the wrong second.
MARGIN_S = 0.003
CLOCK_JUMP_S = 2.0

log = logging.getLogger(__name__)


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
        history: History,
        lag: LagSampler,
        gpu: GpuSampler,
        feed: Feed,
        troubles: Callable[[], list[str]],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._hub = hub
        self._readiness = readiness
        self._book = book
        self._history = history
        self._lag = lag
        self._gpu = gpu
        self._feed = feed
        self._troubles = troubles
        self._clock = clock
        self._wall_clock = wall_clock
        self._started_at = clock()
        self._adviser = Adviser()
        self._advice: list[Advice] = []
        self._window = Window()
        self._known = Counter[str]()  # totals at the last point
        self._second = int(self._started_at) - 1  # the last whole one that points have
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin publishing; `stop` ends it."""
        now = self._clock()
        due = (math.floor(now / INTERVAL_S) + 1) * INTERVAL_S  # a point is a second of the clock
        self._timer = asyncio.get_running_loop().call_later(due - now + MARGIN_S, self._tick)

    def stop(self) -> None:
        """Stop publishing."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self.start()
        now = self._clock()
        self._follow_wall_clock(now)
        point = self._close_second(now)
        self._window = self._history.window()
        self._advice = self._adviser.update(advise(self._window, self._condition(now)), now)
        if self._feed.watchers:
            self._feed.publish({"type": "stats", **self.snapshot(), "point": point})

    def _follow_wall_clock(self, now: float) -> None:
        """Notice that the clock was set, or that the machine slept, which monotonic time does not count."""
        service = self._hub.service
        epoch_s = self._wall_clock() - now
        if abs(epoch_s - service.epoch_s) < CLOCK_JUMP_S:
            return  # both are read a moment apart, and a clock that is disciplined creeps
        if epoch_s < service.epoch_s:
            self._history.forget_points()  # they are in the future now
        log.warning("the wall clock jumped by %.1f s", epoch_s - service.epoch_s)
        service.epoch_s = epoch_s

    def _close_second(self, now: float) -> Message:
        """What happened since the last point."""
        hub, metrics = self._hub, self._hub.metrics
        load = hub.service.load
        totals = Counter(
            {
                "voice_hits": _count(metrics, "rtts_cache_requests_total", result="hit"),
                "voice_misses": _count(metrics, "rtts_cache_requests_total", result="miss"),
                **{f"error {code}": n for code, n in _errors(metrics).items()},
            }
        )
        news, self._known = totals - self._known, totals
        first, self._second = self._second + 1, int(now) - 1
        seconds = range(max(first, self._second - 60), self._second + 1)
        gauges = {
            "t": hub.service.time_ms(now),
            # What the rehearsal measured before the server was ready is nobody's first packet.
            "first_packet": _merged(hub.service.first_packet, seconds)
            if hub.service.is_ready
            else {},
            "sessions": hub.sessions,
            "contexts": hub.contexts,
            "queue": hub.queue_depth,
            "utterances": load.utterances,
            "slots": self._slots,
            "backlog_ms": round(1000 * load.backlog_s, 1),
            "lag_ms": _worst_ms(self._lag.rolling, seconds),
            "opus": hub.service.effort.level if hub.service.effort.is_saving else None,
            "gpu": [[gpu.utilization, gpu.used_bytes, gpu.total_bytes] for gpu in self._gpu.latest],
            "voice_hits": news["voice_hits"],
            "voice_misses": news["voice_misses"],
        }
        errors = {
            name.removeprefix("error "): n for name, n in news.items() if name.startswith("error ")
        }
        return self._history.close_second(
            errors, {name: value for name, value in gauges.items() if value or name == "t"}
        )

    @property
    def _slots(self) -> int:
        capabilities = self._hub.service.capabilities
        return capabilities.max_utterances if capabilities else 0

    def _condition(self, now: float) -> Condition:
        service = self._hub.service
        capabilities, effort = service.capabilities, service.effort
        lag = self._lag.rolling.quantiles(now)
        return Condition(
            reasons=tuple(self._readiness.reasons),
            troubles=tuple(self._troubles()),
            degraded=capabilities.degraded if capabilities else (),
            utterances=service.load.utterances,
            slots=self._slots,
            backlog_s=service.load.backlog_s,
            budget_s=self._hub.options.budget_s,
            opus_effort=effort.level if effort.is_saving else None,
            loop_lag_s=lag[2] if lag else 0.0,
            gpu_memory_share=self._gpu.memory_share,
        )

    def history(self) -> Message:
        """What a watcher is told first, of the time before it came."""
        return self._history.message()

    def snapshot(self) -> Message:
        """The figures now; windows are the last 60 s."""
        now, hub = self._clock(), self._hub
        service, book = hub.service, self._book
        capabilities = service.capabilities
        reasons = self._readiness.reasons
        return {
            "server": f"rtts/{__version__}",
            "engine_name": capabilities.engine if capabilities else None,
            "model": capabilities.model if capabilities else None,
            "time_ms": service.time_ms(now),
            "uptime_s": round(now - self._started_at, 1),
            "ready": not reasons,
            "reasons": reasons,
            "troubles": self._troubles(),
            "degraded": list(capabilities.degraded) if capabilities else [],
            "advice": [self._spelled(each) for each in self._advice],
            "sessions": hub.sessions,
            "contexts": hub.contexts,
            "queue": hub.queue_depth,
            "rtf": None if service.rtf is None else round(service.rtf, 5),
            "first_packet_ms": _quantiles(service.first_packet, now),
            "first_packets": service.first_packet.count(now),
            "budget_ms": round(1000 * hub.options.budget_s, 3),
            "budget_hit_rate": book.budget.share(now),
            "last_minute": asdict(self._window),
            "engine": self._engine(),
            "voice_cache": {
                "hits": _count(hub.metrics, "rtts_cache_requests_total", result="hit"),
                "misses": _count(hub.metrics, "rtts_cache_requests_total", result="miss"),
                "evictions": _count(hub.metrics, "rtts_cache_evictions_total"),
                "entries": service.load.cache_entries,
                "bytes": service.load.cache_bytes,
            },
            "gpu": self._gpus(),
            "opus": {
                "complexity": service.effort.level,
                "is_lowered": service.effort.is_saving,
            },
            "loop_lag_ms": {
                **_quantiles(self._lag.rolling, now),
                "max": round(1000 * self._lag.worst_s(now), 2),
            },
            "errors": _errors(hub.metrics),
        }

    def _engine(self) -> Message:
        load = self._hub.service.load
        return {
            "utterances": load.utterances,
            "slots": self._slots,
            "backlog_ms": round(1000 * load.backlog_s, 2),
            "first_chunk_ms": round(1000 * load.first_chunk_s, 2),
            "restarts": _count(self._hub.metrics, "rtts_engine_restarts_total"),
        }

    def _gpus(self) -> Message:
        devices = [
            {
                "name": gpu.name,
                "utilization": gpu.utilization,
                "used_bytes": gpu.used_bytes,
                "total_bytes": gpu.total_bytes,
            }
            for gpu in self._gpu.latest
        ]
        return {"devices": devices, "reason": None if devices else self._gpu.reason}

    def _spelled(self, advice: Advice) -> dict[str, Any]:
        return {
            **asdict(advice.finding),
            "since_ms": self._hub.service.time_ms(advice.since_s),
        }


def _merged(rolling: RollingLatency, seconds: range) -> dict[int, int]:
    merged: Counter[int] = Counter()
    for second in seconds:
        merged.update(rolling.of_second(second))
    return dict(merged)


def _worst_ms(rolling: RollingLatency, seconds: range) -> float:
    worst = max((bucket for second in seconds for bucket in rolling.of_second(second)), default=0)
    return round(1000 * bucket_s(worst), 2)


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
