"""Every metric, defined once, and the rolling latency that `stats` messages quote.

`Metrics` owns a Prometheus registry of its own, so two servers in one process do not share
counters. Labels are bounded words (codec, stage, error code, outcome), never ids, voices or text.
This module knows nothing about sessions, sockets or engines: callers hand it numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

# The parts of first-packet latency, in the order they pass.
STAGES = ("split", "queue", "engine", "encode", "send")
# What the stage "engine" consists of, where an engine can tell; the codec makes sound of codes.
ENGINE_PARTS = ("prefill", "first_frame", "codec")

OUTCOMES = ("ok", "cancelled", "error", "rejected", "expired", "shutdown")

# Dense where live speech is won or lost (20 ms to 400 ms); the configured budget joins them.
LATENCY_BOUNDS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2),
    *(0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0),
)
SHORT_BOUNDS_S = (
    *(0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05),
    *(0.1, 0.2, 0.5, 1.0),
)
FACTOR_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0)
LOAD_BOUNDS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_LOWEST_S = 1e-4
_HIGHEST_S = 1e2
_GROWTH = 1.02  # 2 % buckets: a quantile is at most 1 % off
_LOG_GROWTH = math.log(_GROWTH)
_BUCKETS = int(math.log(_HIGHEST_S / _LOWEST_S) / _LOG_GROWTH) + 1


def bucket_of(value_s: float) -> int:
    """The 2 % bucket of a latency."""
    held = min(max(value_s, _LOWEST_S), _HIGHEST_S)
    return min(int(math.log(held / _LOWEST_S) / _LOG_GROWTH), _BUCKETS - 1)


def bucket_s(bucket: int) -> float:
    """What a bucket stands for: its middle, in seconds."""
    return float(_LOWEST_S * _GROWTH ** (bucket + 0.5))


class RollingLatency:
    """Quantiles of the last `window_s` seconds, in constant memory.

    One sparse log-bucket histogram for each second and their sum: adding is a logarithm and two
    increments, and a second that leaves the window is subtracted once. Values are held to
    0.1 ms..100 s and are at most 1 % off.

    Owner: event loop.
    """

    def __init__(self, window_s: float = 60.0) -> None:
        self.window_s = window_s
        self._seconds: deque[tuple[int, dict[int, int]]] = deque()  # oldest first
        self._sum = [0] * _BUCKETS  # of all that `_seconds` holds
        self._count = 0

    def add(self, value_s: float, now: float) -> None:
        """Count one value (seconds) at `now`."""
        bucket = bucket_of(value_s)
        second = int(now)
        if not self._seconds or self._seconds[-1][0] < second:
            self._expire(now)
            self._seconds.append((second, {}))
        counts = self._seconds[-1][1]
        counts[bucket] = counts.get(bucket, 0) + 1
        self._sum[bucket] += 1
        self._count += 1

    def count(self, now: float) -> int:
        """How many values the window holds."""
        self._expire(now)
        return self._count

    def quantiles(self, now: float) -> tuple[float, float, float] | None:
        """(p50, p95, p99) in seconds by nearest rank, or None while the window is empty."""
        self._expire(now)
        if not self._count:
            return None
        ranks = [math.ceil(share * self._count) for share in (0.5, 0.95, 0.99)]
        found: list[float] = []
        seen = 0
        for bucket, count in enumerate(self._sum):
            seen += count
            while len(found) < len(ranks) and seen >= ranks[len(found)]:
                found.append(bucket_s(bucket))
            if len(found) == len(ranks):
                break
        return found[0], found[1], found[2]

    def of_second(self, second: int) -> dict[int, int]:
        """How many values of one second (of `now`) fell into each bucket; see `bucket_s`."""
        return next((dict(counts) for at, counts in reversed(self._seconds) if at == second), {})

    def clear(self) -> None:
        """Forget everything (what a prewarming utterance measured, for one)."""
        self._seconds.clear()
        self._sum = [0] * _BUCKETS
        self._count = 0

    def _expire(self, now: float) -> None:
        horizon = int(now) - self.window_s
        while self._seconds and self._seconds[0][0] <= horizon:
            for bucket, count in self._seconds.popleft()[1].items():
                self._sum[bucket] -= count
                self._count -= count


class RollingShare:
    """What share of the last `window_s` seconds' verdicts was good.

    Owner: event loop.
    """

    def __init__(self, window_s: float = 60.0) -> None:
        self.window_s = window_s
        self._seconds: deque[list[int]] = deque()  # [second, good, all], oldest first
        self._good = 0
        self._all = 0

    def add(self, is_good: bool, now: float) -> None:
        """Count one verdict."""
        second = int(now)
        if not self._seconds or self._seconds[-1][0] < second:
            self._expire(now)
            self._seconds.append([second, 0, 0])
        slot = self._seconds[-1]
        slot[1] += is_good
        slot[2] += 1
        self._good += is_good
        self._all += 1

    def share(self, now: float) -> float | None:
        """Good divided by all, or None while the window is empty."""
        self._expire(now)
        return self._good / self._all if self._all else None

    def _expire(self, now: float) -> None:
        horizon = int(now) - self.window_s
        while self._seconds and self._seconds[0][0] <= horizon:
            _, good, everything = self._seconds.popleft()
            self._good -= good
            self._all -= everything


class _Registry(CollectorRegistry):
    """A registry without the `_created` series: they double the exposition and nobody reads them."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


class Metrics:
    """All metrics of one server. Fields are the metrics; `expose` renders them.

    Args:
        budget_s: The first-packet budget; becomes an exact histogram bound, so that the share
            within it is exact and not interpolated.
        version: Of rtts, for `rtts_build_info`.

    Owner: event loop.
    """

    def __init__(self, *, budget_s: float, version: str) -> None:
        self.registry = _Registry()
        self._define_latency(tuple(sorted({*LATENCY_BOUNDS_S, budget_s})))
        self._define_client()
        self._define_speech()
        self._define_connections()
        self._define_engine()
        self._define_process(version)
        self.budget.set(budget_s)

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Render all metrics.

        Args:
            accept: The scraper's `Accept` header.

        Returns:
            Body and content type (Prometheus text, or OpenMetrics when asked for).
        """
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    def expect(self, *, codes: tuple[str, ...] = (), degraded: tuple[str, ...] = ()) -> None:
        """Make the series of known label values exist at zero, so that rates have a start."""
        for stage in (*STAGES, *ENGINE_PARTS):
            self.stage.labels(stage)
            self.budget_misses.labels(stage)
        for outcome in OUTCOMES:
            self.streams.labels(outcome)
        for by in ("client", "disconnect"):
            self.cancellations.labels(by)
        for code in codes:
            self.errors.labels(code)
            self.refusals.labels(code)
        for what in degraded:
            self.degraded.labels(what)

    def follow(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Let a gauge read its value when it is scraped."""
        gauge.set_function(read)

    def _histogram(
        self, name: str, text: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=bounds, registry=self.registry)

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _define_latency(self, bounds: tuple[float, ...]) -> None:
        self.first_packet = self._histogram(
            "rtts_first_packet_seconds",
            "First-packet latency: receipt of the message that completed the first segment until "
            "its first audio message was handed to the socket.",
            bounds,
            ("codec", "voice_kind"),
        )
        self.from_first_text = self._histogram(
            "rtts_first_text_to_packet_seconds",
            "Receipt of a context's first text until its first audio message was handed to the "
            "socket.",
            bounds,
        )
        self.stage = self._histogram(
            "rtts_stage_seconds",
            "Parts of first-packet latency: split, queue, engine, encode, send; and of the engine's, "
            "where it can tell: prefill, first_frame, codec.",
            bounds,
            ("stage",),
        )
        self.budget = self._gauge(
            "rtts_budget_seconds", "The server's default first-packet budget."
        )
        self.budget_hits = self._counter(
            "rtts_budget_hits_total", "Contexts whose first packet was within their budget."
        )
        self.budget_misses = self._counter(
            "rtts_budget_misses_total",
            "Contexts whose first packet missed their budget, by the stage that took longest.",
            ("stage",),
        )
        self.client_budget_misses = self._counter(
            "rtts_client_budget_misses_total",
            "Contexts whose first packet left within their budget and, as the client reported, "
            "arrived after it: network or client.",
        )

    def _define_client(self) -> None:
        self.client_first_packet = self._histogram(
            "rtts_client_first_packet_seconds",
            "First-packet latency as the client measured it: text sent until audio arrived.",
            LATENCY_BOUNDS_S,
        )
        self.client_first_sound = self._histogram(
            "rtts_client_first_sound_seconds",
            "Text sent until sound left the speaker, as the client measured it.",
            LATENCY_BOUNDS_S,
        )
        self.client_underruns = self._counter(
            "rtts_client_underruns_total", "Times a client's player ran dry, as it reported."
        )
        self.client_stall = self._counter(
            "rtts_client_stall_seconds_total", "Time clients' players were dry, as reported."
        )

    def _define_speech(self) -> None:
        self.streams = self._counter(
            "rtts_streams_total",
            "Contexts that ended, by outcome: ok, cancelled, error, rejected (no room for it), "
            "expired, shutdown.",
            ("outcome",),
        )
        self.cancellations = self._counter(
            "rtts_cancellations_total",
            "Contexts cancelled, by whom: client (it said so), disconnect (it left).",
            ("by",),
        )
        self.cancel_to_silence = self._histogram(
            "rtts_cancel_to_silence_seconds",
            "Receipt of a cancel until the context's last message was handed to the socket; "
            "no audio follows it.",
            SHORT_BOUNDS_S,
        )
        self.packet_gap = self._histogram(
            "rtts_packet_gap_seconds",
            "Longest time between two audio messages of a context, one value each. A gap is "
            "heard only where the listener had less in hand: see rtts_stalls_total.",
            LATENCY_BOUNDS_S,
        )
        self.audio = self._counter("rtts_audio_seconds_total", "Audio sent.")
        self.characters = self._counter("rtts_characters_total", "Characters of text received.")
        self.rtf = self._histogram(
            "rtts_rtf",
            "Real-time factor of a context: synthesis time divided by audio duration.",
            FACTOR_BOUNDS,
        )
        self.stalls = self._counter(
            "rtts_stalls_total", "Times the simulated playback clock of a context ran dry."
        )
        self.stall = self._counter(
            "rtts_stall_seconds_total", "Time simulated playback clocks were dry."
        )
        self.encode = self._histogram(
            "rtts_encode_seconds",
            "Event-loop time to turn one piece of engine audio into messages: resampling, Opus or "
            "another codec, packing.",
            SHORT_BOUNDS_S,
        )
        self.errors = self._counter(
            "rtts_errors_total", "Errors sent to clients or answered over HTTP.", ("code",)
        )

    def _define_connections(self) -> None:
        self.connections = self._gauge("rtts_connections", "Open native WebSocket connections.")
        self.connections_opened = self._counter(
            "rtts_connections_opened_total", "Native WebSocket connections accepted.", ("protocol",)
        )
        self.refusals = self._counter(
            "rtts_refusals_total", "Handshakes refused, by error code.", ("code",)
        )
        self.sessions = self._gauge(
            "rtts_sessions", "Sessions held, with those that wait for their client to resume."
        )
        self.resumed = self._counter("rtts_sessions_resumed_total", "Sessions taken over again.")
        self.contexts = self._gauge("rtts_streams_active", "Contexts that have not ended.")
        self.queue_depth = self._gauge(
            "rtts_queue_depth", "Contexts whose text the engine has and whose audio is to begin."
        )
        self.send_buffer = self._gauge(
            "rtts_send_buffer_bytes", "Bytes waiting in write buffers of native connections."
        )
        self.ws_rtt = self._histogram(
            "rtts_ws_rtt_seconds",
            "Round trip of a WebSocket ping behind audio: network and client together.",
            LATENCY_BOUNDS_S,
        )
        self.record_lost = self._counter(
            "rtts_record_lost_total",
            "Contexts missing in server.record_file: disk full or too slow.",
        )
        self.watchers = self._gauge("rtts_stats_watchers", "Open stats feeds.")
        self.watcher_drops = self._counter(
            "rtts_stats_dropped_records_total", "Records dropped because a watcher was slow."
        )

    def _define_engine(self) -> None:
        self.engine_utterances = self._gauge(
            "rtts_engine_utterances", "Utterances alive in the engine."
        )
        self.engine_slots = self._gauge(
            "rtts_streams_max", "Utterances the engine accepts at once."
        )
        self.engine_backlog = self._gauge(
            "rtts_engine_backlog_seconds",
            "Predicted wait until a new utterance's first chunk would be begun.",
        )
        self.engine_first_chunk = self._gauge(
            "rtts_engine_first_chunk_seconds", "Recent compute time of a first chunk."
        )
        self.engine_processes = self._gauge(
            "rtts_engine_processes", "Processes of an engine that is several, by state.", ("state",)
        )
        self.engine_restarts = self._counter(
            "rtts_engine_restarts_total", "Times the engine died and was to be restarted."
        )
        self.voice_requests = self._counter(
            "rtts_cache_requests_total",
            "Voices asked for, by result: hit, miss.",
            ("result",),
        )
        self.voice_evictions = self._counter(
            "rtts_cache_evictions_total", "Voices that left the cache to make room."
        )
        self.voice_entries = self._gauge(
            "rtts_cache_entries", "What the engine's cache of voices holds."
        )
        self.voice_bytes = self._gauge("rtts_cache_bytes", "Memory of the cache of voices.")
        self.voice_failures = self._counter(
            "rtts_voice_failures_total", "Voices that could not be loaded."
        )
        self.voice_load = self._histogram(
            "rtts_voice_load_seconds", "Time to load a voice that was not cached.", LOAD_BOUNDS_S
        )
        for result in ("hit", "miss"):
            self.voice_requests.labels(result)

    def _define_process(self, version: str) -> None:
        self.loop_lag = self._histogram(
            "rtts_event_loop_lag_seconds",
            "Lateness of a 100 ms timer on the event loop.",
            SHORT_BOUNDS_S,
        )
        self.loop_lag_max = self._gauge(
            "rtts_event_loop_lag_max_seconds", "Worst lateness of the last 60 s."
        )
        self.opus_complexity = self._gauge(
            "rtts_opus_complexity", "libopus effort now; lowered while very many listen."
        )
        self.ready = self._gauge("rtts_ready", "1 when new sessions are accepted.")
        self.draining = self._gauge("rtts_draining", "1 while the server finishes its contexts.")
        self.gpu_utilization = self._gauge(
            "rtts_gpu_utilization_ratio", "How busy each GPU of the machine is, 0 to 1.", ("gpu",)
        )
        self.gpu_memory = self._gauge(
            "rtts_gpu_memory_bytes",
            "Memory of each GPU of the machine, by kind: used, total.",
            ("gpu", "kind"),
        )
        self.degraded = self._gauge(
            "rtts_degraded", "1 for each thing that works less well here than it could.", ("what",)
        )
        self.build = self._gauge("rtts_build_info", "Always 1; says which version.", ("version",))
        self.build.labels(version).set(1)
