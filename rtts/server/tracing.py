"""Each finished context as an OpenTelemetry span, with the stages of its first packet as children.

The engine's parts, where known, are children of its stage. Spans are made afterwards, from the record, so that speech waits for nothing; the SDK sends them from
a thread of its own. A context's `traceparent` makes its span a part of the client's trace. Only
imported when `server.otlp_endpoint` is set; needs the extra `otel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtts import __version__
from rtts.errors import ConfigError
from rtts.session import UtteranceRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span


class Tracing:
    """Makes and sends spans.

    Owner: event loop.
    """

    def __init__(
        self, endpoint: str, *, epoch_s: Callable[[], float], exporter: SpanExporter | None = None
    ) -> None:
        """Connect to a collector, later: nothing is sent yet.

        Args:
            endpoint: Where OTLP over HTTP is taken, e.g. "http://localhost:4318/v1/traces".
            epoch_s: Unix time at monotonic 0, as it is known at present.
            exporter: Where spans go instead.

        Raises:
            ConfigError: The extra is not installed.
        """
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"server.otlp_endpoint needs {error.name}: pip install 'rtts[otel]'"
            ) from error
        self._api = trace
        self._epoch_s = epoch_s
        self._context_of = TraceContextTextMapPropagator()
        resource = Resource.create({"service.name": "rtts", "service.version": __version__})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter or OTLPSpanExporter(endpoint=endpoint))
        )
        self._tracer = self._provider.get_tracer("rtts", __version__)

    def take(self, record: UtteranceRecord) -> None:
        """Make the spans of one context."""
        parent = self._context_of.extract({"traceparent": record.traceparent})
        span = self._tracer.start_span(
            "rtts.utterance",
            context=parent,
            kind=self._api.SpanKind.SERVER,
            start_time=self._ns(record.started_at),
            attributes=_attributes(record),
        )
        if record.reason == "error":
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, record.code))
        stages = self._add_row(span, record.stages, record.received_at)
        if "engine" in stages:
            engine, began_at = stages["engine"]
            self._add_row(engine, record.parts, began_at)
        span.end(end_time=self._ns(record.ended_at))

    def _add_row(
        self, parent: Span, took_s: Mapping[str, float], at: float
    ) -> dict[str, tuple[Span, float]]:
        """Children one after the other; returns each, by name, with the time at which it began."""
        within = self._api.set_span_in_context(parent)
        made = {}
        for name, seconds in took_s.items():
            child = self._tracer.start_span(f"rtts.{name}", context=within, start_time=self._ns(at))
            made[name] = child, at
            at += seconds
            child.end(end_time=self._ns(at))
        return made

    def close(self) -> None:
        """Send what waits; the collector gets the SDK's time to answer."""
        self._provider.shutdown()

    def _ns(self, at: float) -> int:
        return int(1e9 * (self._epoch_s() + at))


def _attributes(record: UtteranceRecord) -> dict[str, Any]:
    values = {
        "rtts.session": record.session,
        "rtts.ctx": record.ctx,
        "rtts.engine": record.engine,
        "rtts.voice": record.voice,
        "rtts.language": record.language,
        "rtts.codec": record.codec,
        "rtts.reason": record.reason,
        "error.type": record.code or None,
        "rtts.characters": record.chars,
        "rtts.segments": record.segments,
        "rtts.audio_s": record.audio_s,
        "rtts.first_packet_ms": _ms(record.first_packet_s),
        "rtts.budget_ms": _ms(record.budget_s),
        "rtts.within_budget": record.within_budget,
        "rtts.guilty_stage": record.guilty_stage or None,
        "rtts.rtf": record.rtf,
        "rtts.underruns": record.stalls,
        "rtts.voice_cached": record.voice_cached,
        "rtts.client_first_sound_ms": _ms(record.client_first_sound_s),
    }
    return {name: value for name, value in values.items() if value is not None}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
