"""Points add up to the records that made them, and memory is bounded."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rtts.metrics import STAGES
from rtts.server.history import MAX_POINTS, MAX_REQUESTS, MAX_VERDICTS, WINDOW_S, History
from rtts.server.records import client_fields
from rtts.session import ClientReport
from tests.server.test_records import record


def client_report(**figures) -> ClientReport:
    nothing = dict.fromkeys(
        ("first_packet_s", "first_sound_s", "underruns", "stalled_s", "output_latency_s")
    )
    return ClientReport(session=record().session, ctx=record().ctx, **nothing | figures)


def take(history: History, made) -> None:
    history.take(made, {"type": "request", "ctx": made.ctx})


records = st.builds(
    lambda ctx, first_packet_s, guilty, cold, stalls: record(
        ctx=ctx,
        first_packet_s=first_packet_s,
        stages={"engine": first_packet_s},
        within_budget=not guilty,
        guilty_stage=guilty,
        voice_cached=not cold,
        stalls=stalls,
        stalled_s=0.1 * stalls,
    ),
    st.sampled_from("abc"),
    st.floats(0.001, 2),
    st.sampled_from(["", *STAGES]),
    st.booleans(),
    st.integers(0, 3),
)


@given(st.lists(st.lists(records, max_size=5), max_size=12))
def test_points_add_up_to_the_records(seconds):
    """However contexts fall into seconds, the points' sums are the records', and so is the window."""
    history = History()
    points = []
    for made in seconds:
        for each in made:
            take(history, each)
        points.append(history.close_second({}, {}))
    everything = [each for made in seconds for each in made]
    misses = Counter(each.guilty_stage for each in everything if each.guilty_stage)
    summed: Counter = Counter()
    for point in points:
        summed.update(point.get("misses", {}))
    assert summed == misses
    assert sum(point.get("measured", 0) for point in points) == len(everything)
    assert sum(point.get("stalls", 0) for point in points) == sum(r.stalls for r in everything)
    window = history.window()
    assert window.misses == misses
    assert window.contexts == len(everything)
    assert window.cold == sum(not each.voice_cached for each in everything)
    assert window.stalled == sum(each.stalls > 0 for each in everything)


def test_a_client_is_one_client_however_often_it_reports():
    """Three reports of one reply are one client of one that ran dry, and the request has their sum."""
    history = History()
    take(history, record())
    for figures in (
        {"first_packet_s": 0.02},
        {"first_sound_s": 0.05},
        {"underruns": 2},
        {"underruns": 1},
    ):
        report = client_report(**figures)
        history.take_client(report, client_fields(report))
    history.close_second({}, {})
    window = history.window()
    assert (window.client_reports, window.client_underruns) == (1, 1)
    (request,) = history.message()["requests"]
    assert request["client_underruns"] == 3 and request["client_first_sound_ms"] == 50.0


def test_the_window_is_a_minute():
    """What is older than 60 points is not in it."""
    history = History()
    take(history, record(within_budget=False, guilty_stage="queue"))
    for _ in range(WINDOW_S):
        history.close_second({"internal": 1}, {})
        assert history.window().misses == {"queue": 1}
    history.close_second({}, {})
    assert history.window().misses == {}
    assert history.window().errors == {"internal": WINDOW_S - 1}


def test_memory_is_bounded():
    """A quarter of an hour of points, a hundred requests; however long it runs."""
    history = History()
    for n in range(2 * MAX_POINTS):
        take(history, record(ctx=f"c{n}"))
        history.close_second({}, {"t": n})
    message = json.loads(msgspec.json.encode(history.message()))
    assert [point["t"] for point in message["points"]] == list(range(MAX_POINTS, 2 * MAX_POINTS))
    assert [each["ctx"] for each in message["requests"]] == [
        f"c{n}" for n in range(2 * MAX_POINTS - MAX_REQUESTS, 2 * MAX_POINTS)
    ]
    assert len(history._verdicts) == MAX_VERDICTS


def test_slow_text_is_text_that_takes_longer_than_the_budget():
    """The wait for a first whole segment is not in first-packet latency, and is counted beside it."""
    history = History()
    take(history, record(first_packet_s=0.01, from_first_text_s=0.6))
    take(history, record(first_packet_s=0.01, from_first_text_s=0.4))
    history.close_second({}, {})
    assert history.window().slow_texts == 1
