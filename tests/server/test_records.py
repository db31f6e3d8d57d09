"""A record becomes metrics, one line and one message of the feed, without text."""

from __future__ import annotations

import dataclasses
import json
import logging
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rtts.metrics import Metrics
from rtts.server.history import History
from rtts.server.records import RecordBook, json_line, logfmt_line, utterance_fields
from rtts.session import ClientReport, UtteranceRecord


def record(**changes) -> UtteranceRecord:
    fields = {
        "session": "s_1", "ctx": "c", "stream": 1, "engine": "tone", "voice": "tone", "voice_kind": "preset",
        "language": "en", "codec": "opus", "container": "raw", "chars": 51, "segments": 2,
        "audio_s": 3.0, "reason": "completed", "code": "", "first_packet_s": 0.0123,
        "from_first_text_s": 0.5, "stages": {"split": 0.001, "queue": 0.0113}, "parts": {},
        "budget_s": 0.5,
        "within_budget": True, "guilty_stage": "", "busy_s": 0.3, "rtf": 0.1, "stalls": 1,
        "stalled_s": 0.25, "max_lead_s": 2.5, "widest_gap_s": 0.08, "cancelled_by": "", "cancel_s": None, "voice_cached": True, "client_first_packet_s": None,
        "client_first_sound_s": None, "client_underruns": None, "client_stalled_s": None,
        "traceparent": "", "received_at": 1000.4, "started_at": 1000.0, "ended_at": 1003.5,
    }  # fmt: skip
    return UtteranceRecord(**(fields | changes))


@pytest.fixture
def book():
    published = []
    metrics = Metrics(budget_s=0.5, version="0")
    history = History()
    book = RecordBook(
        metrics, history, published.append, as_json=True, time_ms=lambda now: round(1000 * now)
    )
    book.metrics, book.published, book.history = metrics, published, history
    return book


def value(book, name, **labels):
    return book.metrics.registry.get_sample_value(name, labels)


def test_a_record_is_observed(book):
    """Each figure of a record lands in its metric."""
    book.take(record(), 1003.5)
    assert value(book, "rtts_streams_total", outcome="ok") == 1
    assert value(book, "rtts_first_packet_seconds_sum", codec="opus", voice_kind="preset") == 0.0123
    assert value(book, "rtts_stage_seconds_sum", stage="queue") == 0.0113
    assert value(book, "rtts_first_text_to_packet_seconds_sum") == 0.5
    assert value(book, "rtts_characters_total") == 51
    assert value(book, "rtts_audio_seconds_total") == 3.0
    assert value(book, "rtts_rtf_sum") == 0.1
    assert value(book, "rtts_stalls_total") == 1
    assert value(book, "rtts_stall_seconds_total") == 0.25
    assert value(book, "rtts_budget_hits_total") == 1
    assert value(book, "rtts_cache_requests_total", result="hit") == 1
    assert book.budget.share(1003.5) == 1.0


def test_a_miss_names_the_guilty_stage(book):
    """A missed budget counts against the stage that took longest."""
    book.take(record(within_budget=False, guilty_stage="engine"), 1003.5)
    assert value(book, "rtts_budget_misses_total", stage="engine") == 1
    assert value(book, "rtts_budget_hits_total") == 0
    assert book.budget.share(1003.5) == 0.0


def test_a_context_without_audio_measures_nothing(book):
    """No audio: no latency, no verdict, but an outcome."""
    silent = record(
        reason="error", code="unknown_voice", first_packet_s=None, from_first_text_s=None, stages={},
        within_budget=None, segments=0, audio_s=0.0, rtf=None,
    )  # fmt: skip
    book.take(silent, 1003.5)
    assert value(book, "rtts_streams_total", outcome="error") == 1
    assert value(book, "rtts_first_packet_seconds_count", codec="opus", voice_kind="preset") is None
    assert value(book, "rtts_cache_requests_total", result="hit") == 0
    assert book.budget.share(1003.5) is None
    assert "first_packet_ms" not in book.published[0]


def test_what_clients_report_is_observed_whenever_it_comes(book):
    """Figures of the client count the same in the record and after it."""
    book.take(record(client_first_packet_s=0.02, client_underruns=2), 1003.5)
    late = ClientReport(
        session="s_1", ctx="c", first_packet_s=0.04, first_sound_s=0.1, underruns=1, stalled_s=0.5,
        output_latency_s=None,
    )  # fmt: skip
    book.take(late, 1004.0)
    assert value(book, "rtts_client_first_packet_seconds_sum") == pytest.approx(0.06)
    assert value(book, "rtts_client_first_sound_seconds_sum") == 0.1
    assert value(book, "rtts_client_underruns_total") == 3
    assert value(book, "rtts_client_stall_seconds_total") == 0.5
    assert value(book, "rtts_streams_total", outcome="ok") == 1
    assert [message["type"] for message in book.published] == ["request", "client"]


def test_a_context_that_left_in_time_and_came_late_is_a_miss_of_the_client(book):
    """Counted once, whether the client says so before the record or after it; never a hit less."""
    book.take(record(client_first_packet_s=0.6), 1003.5)
    assert book.published[-1]["client_late"] is True
    book.take(record(ctx="d", within_budget=True), 1003.6)
    late = ClientReport(
        session="s_1", ctx="d", first_packet_s=0.7, first_sound_s=0.8, underruns=0, stalled_s=None,
        output_latency_s=None,
    )  # fmt: skip
    for _ in range(2):
        book.take(late, 1004.0)
    book.take(record(ctx="e", within_budget=False, guilty_stage="queue"), 1004.0)
    book.take(dataclasses.replace(late, ctx="e"), 1004.0)  # the server's own miss is not doubled
    book.take(dataclasses.replace(late, ctx="nobody"), 1004.0)
    assert value(book, "rtts_client_budget_misses_total") == 2
    assert value(book, "rtts_budget_hits_total") == 2
    book.history.close_second({}, {})
    assert book.history.window().misses == {"client": 2, "queue": 1}


def test_one_canonical_line(book, caplog):
    """One INFO line of the logger rtts.utterance says everything."""
    caplog.set_level(logging.INFO, "rtts.utterance")
    book.take(record(), 1003.5)
    assert [entry.name for entry in caplog.records] == ["rtts.utterance"]
    line = json.loads(caplog.records[0].getMessage())
    assert line["event"] == "utterance"
    assert line["first_packet_ms"] == 12.3 and line["queue_ms"] == 11.3 and line["lived_s"] == 3.5
    assert "code" not in line and "guilty_stage" not in line


@given(st.text(max_size=50))
@example("\x7f")
@example(' a="b" \\')
def test_no_name_of_a_client_disturbs_a_line(name):
    """Whatever a client calls its context, a line is one line of ASCII and reads back."""
    fields = {"event": "utterance", **utterance_fields(record(ctx=name))}
    assert json.loads(json_line(fields))["ctx"] == name
    for line in (json_line(fields), logfmt_line(fields)):
        assert line.isascii() and line.isprintable()
    pairs = dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)(?: |$)', logfmt_line(fields)))
    assert list(pairs) == list(fields)
    shown = pairs["ctx"]
    assert (json.loads(shown) if shown.startswith('"') else shown) == name


def test_a_cancel_says_who_and_how_fast(book):
    """A cancelled context counts by whom, and by how long its last message took."""
    book.take(record(reason="cancelled", cancelled_by="client", cancel_s=0.0004), 1003.5)
    book.take(record(reason="cancelled", cancelled_by="disconnect", cancel_s=None), 1004.0)
    assert value(book, "rtts_streams_total", outcome="cancelled") == 2
    assert value(book, "rtts_cancellations_total", by="client") == 1
    assert value(book, "rtts_cancellations_total", by="disconnect") == 1
    assert value(book, "rtts_cancel_to_silence_seconds_count") == 1
    assert value(book, "rtts_cancel_to_silence_seconds_sum") == 0.0004


@pytest.mark.parametrize(
    ("code", "first_packet_s", "outcome"),
    [("overloaded", None, "rejected"), ("overloaded", 0.1, "error"), ("internal", None, "error")],
)
def test_a_full_house_is_told_from_a_failure(book, code, first_packet_s, outcome):
    """Refused before anything was spoken is rejected; everything else that failed is an error."""
    book.take(record(reason="error", code=code, first_packet_s=first_packet_s), 1003.5)
    assert value(book, "rtts_streams_total", outcome=outcome) == 1


def test_the_widest_gap_is_observed_once(book):
    """One gap a context, and none where there was only one audio message."""
    book.take(record(widest_gap_s=0.08), 1003.5)
    book.take(record(widest_gap_s=0.0), 1003.5)
    assert value(book, "rtts_packet_gap_seconds_count") == 1
    assert value(book, "rtts_packet_gap_seconds_sum") == 0.08
