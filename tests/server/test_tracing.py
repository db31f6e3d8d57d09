"""A context is a span of the client's trace, its stages are the children, and OTLP carries them."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import json
import sys
import threading

import pytest
from websockets.asyncio.client import connect

from rtts.errors import ConfigError
from rtts.server import ServerOptions, running_server
from rtts.server.tracing import Tracing
from tests.e2e.test_server import engine
from tests.server.test_records import book, record  # noqa: F401 (a fixture)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def spans():
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    def made(*records):
        exporter = InMemorySpanExporter()
        tracing = Tracing("http://127.0.0.1:1/", epoch_s=lambda: 1e9, exporter=exporter)
        for each in records:
            tracing.take(each)
        tracing.close()
        return exporter.get_finished_spans()

    return made


def test_stages_are_children_in_a_row(spans):
    """Stages begin where text was received, touch each other, and add up to the first packet."""
    stages = {"split": 0.001, "queue": 0.002, "engine": 0.006, "encode": 0.001, "send": 0.0023}
    *children, root = spans(record(stages=stages, received_at=1000.4, traceparent=TRACEPARENT))
    assert root.name == "rtts.utterance"
    assert (root.start_time, root.end_time) == (int(1e9 * (1e9 + 1000)), int(1e9 * (1e9 + 1003.5)))
    assert [child.name for child in children] == [f"rtts.{stage}" for stage in stages]
    assert all(child.parent.span_id == root.context.span_id for child in children)
    assert children[0].start_time == int(1e9 * (1e9 + 1000.4))
    for child, following in zip(children, children[1:], strict=False):
        assert child.end_time == following.start_time
    total_s = (children[-1].end_time - children[0].start_time) / 1e9
    assert total_s == pytest.approx(sum(stages.values()), abs=1e-6)


def test_the_engines_parts_are_children_of_its_stage(spans):
    """They begin where it begins, and stand within it."""
    stages, parts = {"queue": 0.002, "engine": 0.006}, {"prefill": 0.001, "codec": 0.004}
    made = spans(record(stages=stages, parts=parts, received_at=1000.4))
    by_name = {span.name: span for span in made}
    engine = by_name["rtts.engine"]
    for part in ("rtts.prefill", "rtts.codec"):
        assert by_name[part].parent.span_id == engine.context.span_id
    assert by_name["rtts.prefill"].start_time == engine.start_time
    assert by_name["rtts.prefill"].end_time == by_name["rtts.codec"].start_time
    assert by_name["rtts.codec"].end_time <= engine.end_time


def test_it_joins_the_clients_trace(spans):
    """With traceparent the span belongs to that trace; without, or with zeros, to one of its own."""
    joined, alone, zeros = (
        spans(record(stages={}, traceparent=given))[0]
        for given in (TRACEPARENT, "", f"00-{'0' * 32}-{'0' * 16}-01")
    )
    assert f"{joined.context.trace_id:032x}" == TRACE and f"{joined.parent.span_id:016x}" == PARENT
    assert alone.parent is None and zeros.parent is None


def test_an_error_is_one(spans):
    """A failed context has the error's code; no span has text."""
    (span,) = spans(record(reason="error", code="utterance_failed", stages={}))
    assert not span.status.is_ok and span.attributes["error.type"] == "utterance_failed"
    assert span.attributes["rtts.characters"] == 51


def test_without_the_extra_it_says_how_to_get_it(monkeypatch):
    """The setting alone does not break the server obscurely."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(ConfigError, match=r"pip install 'rtts\[otel\]'"):
        Tracing("http://127.0.0.1:1/", epoch_s=lambda: 0.0)


def test_latency_links_to_its_trace(book):  # noqa: F811
    """An OpenMetrics scrape finds the trace id beside the bucket it fell into."""
    book.take(record(traceparent=TRACEPARENT), 1003.5)
    body, _ = book.metrics.expose("application/openmetrics-text; version=1.0.0")
    lines = [line for line in body.decode().splitlines() if "first_packet_seconds_bucket" in line]
    assert [line for line in lines if f'# {{trace_id="{TRACE}"}} 0.0123' in line]


@pytest.mark.parametrize("given", [f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"])
def test_no_latency_links_to_a_trace_that_nobody_keeps(book, given):  # noqa: F811
    """Neither to zeros, which are no trace, nor to one that was not sampled."""
    book.take(record(traceparent=given), 1003.5)
    body, _ = book.metrics.expose("application/openmetrics-text; version=1.0.0")
    assert "trace_id" not in body.decode()


async def test_a_collector_gets_them():
    """start.traceparent over the wire, the span over OTLP/HTTP when the server stops at the latest."""
    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    try:
        async with running_server(ServerOptions(port=0, otlp_endpoint=url), engine()) as server:
            await _speak(server.ws_url, TRACEPARENT)
    finally:
        await asyncio.to_thread(collector.shutdown)
        collector.server_close()
    ((path, body),) = received
    assert path == "/v1/traces" and bytes.fromhex(TRACE) in body and b"rtts.engine" in body
    assert b"Hello" not in body


async def _speak(url, traceparent):
    async with connect(url, subprotocols=["rtts.v1"]) as ws:
        await ws.send(json.dumps({"type": "start", "ctx": "a", "traceparent": traceparent}))
        await ws.send(json.dumps({"type": "text", "ctx": "a", "text": "Hello there.", "end": True}))
        kinds = [json.loads(m)["type"] async for m in _until_done(ws)]
        assert "error" not in kinds and kinds[-1] == "done"


async def _until_done(ws):
    async for message in ws:
        if isinstance(message, str):
            yield message
            if json.loads(message)["type"] == "done":
                return
