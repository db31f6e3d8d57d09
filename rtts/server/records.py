"""What becomes of a finished context's record: metrics, one canonical log line, the stats feed.

One line says everything about an utterance, so that an incident is explained by one `grep`. It
carries times, sizes and ids, and no text. Knows nothing about sockets.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rtts.metrics import Metrics, RollingShare
from rtts.server.history import History, is_late_at_client
from rtts.session import ClientReport, UtteranceRecord

utterances = logging.getLogger("rtts.utterance")

Line = Callable[[Mapping[str, Any]], str]

_BARE = re.compile(r"[A-Za-z0-9_.:/+-]+")


class RecordBook:
    """Writes records down.

    Owner: event loop.

    Attributes:
        budget: Share of contexts within their budget, last 60 s.
    """

    def __init__(
        self,
        metrics: Metrics,
        history: History,
        publish: Callable[[dict[str, Any]], None],
        *,
        as_json: bool,
        time_ms: Callable[[float], int],
        also: Sequence[Callable[[UtteranceRecord], None]] = (),
    ) -> None:
        """Take what records go to.

        Args:
            history: Remembers the last of them.
            publish: Takes each record as a message of the stats feed.
            as_json: Log lines as JSON rather than key=value.
            time_ms: Unix time in milliseconds of a monotonic `now`.
            also: Each takes every record too.
        """
        self._also = tuple(also)
        self.budget = RollingShare()
        self._metrics = metrics
        self._history = history
        self._time_ms = time_ms
        self._publish = publish
        self._line: Line = json_line if as_json else logfmt_line

    def take(self, record: UtteranceRecord | ClientReport, now: float) -> None:
        """Write one record down."""
        if isinstance(record, ClientReport):
            self._observe_client(
                record.first_packet_s, record.first_sound_s, record.underruns, record.stalled_s
            )
            message = {"type": "client", **client_fields(record)}
            if self._history.take_client(record, message):
                self._metrics.client_budget_misses.inc()
                message["client_late"] = True
            self._publish(message)
            return
        self._observe(record, now)
        fields = utterance_fields(record)
        utterances.info("%s", self._line({"event": "utterance", **fields}))
        message = {"type": "request", "ended_ms": self._time_ms(now), **fields}
        self._history.take(record, message)
        self._publish(message)
        for take in self._also:
            take(record)

    def _observe(self, record: UtteranceRecord, now: float) -> None:
        metrics = self._metrics
        metrics.streams.labels(_outcome(record)).inc()
        if record.cancelled_by:
            metrics.cancellations.labels(record.cancelled_by).inc()
        if record.cancel_s is not None:
            metrics.cancel_to_silence.observe(record.cancel_s)
        if record.widest_gap_s:
            metrics.packet_gap.observe(record.widest_gap_s)
        metrics.characters.inc(record.chars)
        metrics.audio.inc(record.audio_s)
        metrics.stalls.inc(record.stalls)
        metrics.stall.inc(record.stalled_s)
        if record.segments:
            metrics.voice_requests.labels("hit" if record.voice_cached else "miss").inc()
        if record.rtf is not None:
            metrics.rtf.observe(record.rtf)
        self._observe_first_packet(record, now)
        self._observe_client(
            record.client_first_packet_s,
            record.client_first_sound_s,
            record.client_underruns,
            record.client_stalled_s,
        )
        if is_client_late(record):
            metrics.client_budget_misses.inc()

    def _observe_first_packet(self, record: UtteranceRecord, now: float) -> None:
        metrics = self._metrics
        if record.first_packet_s is None:
            return
        metrics.first_packet.labels(record.codec, record.voice_kind).observe(
            record.first_packet_s, _exemplar(record.traceparent)
        )
        for stage, seconds in (*record.stages.items(), *record.parts.items()):
            metrics.stage.labels(stage).observe(seconds)
        if record.from_first_text_s is not None:
            metrics.from_first_text.observe(record.from_first_text_s)
        if record.within_budget is None:
            return
        self.budget.add(record.within_budget, now)
        if record.within_budget:
            metrics.budget_hits.inc()
        else:
            metrics.budget_misses.labels(record.guilty_stage).inc()

    def _observe_client(
        self,
        first_packet_s: float | None,
        first_sound_s: float | None,
        underruns: int | None,
        stalled_s: float | None,
    ) -> None:
        metrics = self._metrics
        if first_packet_s is not None:
            metrics.client_first_packet.observe(first_packet_s)
        if first_sound_s is not None:
            metrics.client_first_sound.observe(first_sound_s)
        if underruns:
            metrics.client_underruns.inc(underruns)
        if stalled_s:
            metrics.client_stall.inc(stalled_s)


# What an engine or a full house answers before anything was spoken.
_REJECTED = ("overloaded", "engine_dead")


def _exemplar(traceparent: str) -> dict[str, str] | None:
    """The trace an OpenMetrics scraper links a latency to, if it is one, and one that is kept."""
    trace_id, flags = traceparent[3:35], traceparent[53:55]
    is_kept = bool(trace_id.strip("0")) and bool(int(flags or "0", 16) & 1)
    return {"trace_id": trace_id} if is_kept else None


def _outcome(record: UtteranceRecord) -> str:
    if record.reason == "completed":
        return "ok"
    is_rejected = record.code in _REJECTED and record.first_packet_s is None
    return "rejected" if is_rejected else record.reason


def utterance_fields(record: UtteranceRecord) -> dict[str, Any]:
    """A record as flat fields for a log line or the feed; what was not measured is left out."""
    fields: dict[str, Any] = {
        "session": record.session,
        "ctx": record.ctx,
        "stream": record.stream,
        "surface": record.surface,
        "engine": record.engine,
        "voice": record.voice,
        "voice_kind": record.voice_kind,
        "language": record.language,
        "codec": record.codec,
        "container": record.container,
        "reason": record.reason,
        "code": record.code or None,
        "chars": record.chars,
        "segments": record.segments,
        "audio_s": round(record.audio_s, 3),
        "lived_s": round(record.ended_at - record.started_at, 3),
        "first_packet_ms": milliseconds(record.first_packet_s),
        "from_first_text_ms": milliseconds(record.from_first_text_s),
        **{f"{stage}_ms": milliseconds(seconds) for stage, seconds in record.stages.items()},
        **{f"{part}_ms": milliseconds(seconds) for part, seconds in record.parts.items()},
        "budget_ms": milliseconds(record.budget_s),
        "within_budget": record.within_budget,
        "guilty_stage": record.guilty_stage or None,
        "busy_s": round(record.busy_s, 4),
        "rtf": None if record.rtf is None else round(record.rtf, 4),
        "stalls": record.stalls,
        "stalled_ms": milliseconds(record.stalled_s),
        "max_lead_ms": milliseconds(record.max_lead_s),
        "widest_gap_ms": milliseconds(record.widest_gap_s or None),
        "cancelled_by": record.cancelled_by or None,
        "cancel_ms": milliseconds(record.cancel_s),
        "voice_cached": record.voice_cached,
        "client_first_packet_ms": milliseconds(record.client_first_packet_s),
        "client_first_sound_ms": milliseconds(record.client_first_sound_s),
        "client_underruns": record.client_underruns,
        "client_stalled_ms": milliseconds(record.client_stalled_s),
        "client_late": is_client_late(record) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def is_client_late(record: UtteranceRecord) -> bool:
    """Whether its first packet left within its budget and, the client says, arrived after it."""
    return is_late_at_client(
        record.within_budget is True, record.budget_s, record.client_first_packet_s
    )


def client_fields(report: ClientReport) -> dict[str, Any]:
    """What a client reported after its context ended, as flat fields."""
    fields: dict[str, Any] = {
        "session": report.session,
        "ctx": report.ctx,
        "client_first_packet_ms": milliseconds(report.first_packet_s),
        "client_first_sound_ms": milliseconds(report.first_sound_s),
        "client_underruns": report.underruns,
        "client_stalled_ms": milliseconds(report.stalled_s),
        "client_output_latency_ms": milliseconds(report.output_latency_s),
    }
    return {name: value for name, value in fields.items() if value is not None}


def json_line(fields: Mapping[str, Any]) -> str:
    """One JSON object; ASCII, so that no client's name for a context can disturb a log."""
    return json.dumps(fields, separators=(",", ":"))


def logfmt_line(fields: Mapping[str, Any]) -> str:
    """key=value, quoted where it has to be; ASCII as `json_line`."""
    return " ".join(f"{name}={_shown(value)}" for name, value in fields.items())


def _shown(value: Any) -> str:
    if isinstance(value, str) and not _BARE.fullmatch(value):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def milliseconds(seconds: float | None) -> float | None:
    """Of seconds, to a hundredth; None of what was not measured."""
    return None if seconds is None else round(1000 * seconds, 2)
