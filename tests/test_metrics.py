"""The rolling quantiles against a sorted list, and the exposition against what is promised."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rtts.metrics import Metrics, RollingLatency, RollingShare

latencies = st.floats(min_value=1e-4, max_value=90.0, allow_nan=False)
moments = st.lists(st.tuples(latencies, st.floats(0.0, 5.0)), min_size=1, max_size=200)


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


@given(moments, st.floats(0.0, 30.0))
def test_quantiles_are_those_of_the_values_in_the_window(arrivals, wait):
    """After any arrivals, quantiles and count are those of a sorted list of the last window."""
    rolling = RollingLatency(window_s=10.0)
    now, kept = 1000.0, []
    for value, pause in arrivals:
        now += pause
        rolling.add(value, now)
        kept.append((value, now))
    now += wait
    alive = [value for value, at in kept if int(at) > int(now) - 10]
    assert rolling.count(now) == len(alive)
    found = rolling.quantiles(now)
    if not alive:
        assert found is None
        return
    expected = [nearest_rank(alive, share) for share in (0.5, 0.95, 0.99)]
    assert found == pytest.approx(expected, rel=0.0101)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=50))
def test_any_value_is_held_to_the_range(values):
    """Zero, negative, huge and infinite values never break the histogram."""
    rolling = RollingLatency()
    for value in values:
        rolling.add(value, 1000.0)
    quantiles = rolling.quantiles(1000.0)
    assert quantiles is not None
    assert all(0.9e-4 < value < 1.05e2 for value in quantiles)


def test_memory_is_bounded_by_the_window():
    """A day of traffic keeps one slot for each second of the window."""
    rolling = RollingLatency(window_s=60.0)
    for second in range(10_000):
        rolling.add(0.05, 1000.0 + second)
    assert len(rolling._seconds) <= 61
    assert rolling.count(1000.0 + 10_000) == 59


def test_a_clock_that_steps_back_a_little_loses_nothing():
    """Two callers that read `now` in a different order than they add are both counted."""
    rolling = RollingLatency()
    rolling.add(0.1, 1001.0)
    rolling.add(0.2, 1000.9)
    assert rolling.count(1001.0) == 2


def test_clear_forgets():
    """Nothing of before `clear` is left in count or quantiles."""
    rolling = RollingLatency()
    rolling.add(5.0, 1000.0)
    rolling.clear()
    assert rolling.quantiles(1000.0) is None
    rolling.add(0.1, 1000.0)
    assert rolling.count(1000.0) == 1


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 3.0)), max_size=100))
def test_share_is_that_of_the_window(verdicts):
    """The share is good verdicts over all verdicts of the last window."""
    rolling, now, kept = RollingShare(window_s=10.0), 1000.0, []
    for good, pause in verdicts:
        now += pause
        rolling.add(good, now)
        kept.append((good, now))
    alive = [good for good, at in kept if int(at) > int(now) - 10]
    expected = sum(alive) / len(alive) if alive else None
    assert rolling.share(now) == expected


def families(metrics: Metrics):
    body, _ = metrics.expose()
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def test_budget_is_an_exact_bucket_bound():
    """The share within the budget can be read from the histogram without interpolation."""
    metrics = Metrics(budget_s=0.337, version="1.2.3")
    metrics.first_packet.labels("opus", "preset").observe(0.337)
    metrics.first_packet.labels("opus", "preset").observe(0.3371)
    samples = families(metrics)["rtts_first_packet_seconds"].samples
    within = [s.value for s in samples if s.labels.get("le") == "0.337"]
    assert within == [1.0]


def test_every_metric_has_help_and_a_prefix_and_bounded_labels():
    """Names start with rtts_, help texts say something, labels are never ids."""
    metrics = Metrics(budget_s=0.5, version="1.2.3")
    metrics.expect(codes=("bad_json",), degraded=("opus",))
    found = families(metrics)
    assert len(found) > 30
    for name, family in found.items():
        assert name.startswith("rtts_")
        assert len(family.documentation) > 10 and family.documentation.endswith(".")
        labels = {key for sample in family.samples for key in sample.labels} - {"le"}
        assert labels <= {
            "by",
            "codec",
            "stage",
            "code",
            "outcome",
            "protocol",
            "result",
            "what",
            "version",
            "voice_kind",
        }


def test_no_created_series():
    """The exposition carries no `_created` series."""
    metrics = Metrics(budget_s=0.5, version="1.2.3")
    metrics.errors.labels("bad_json").inc()
    assert b"_created" not in metrics.expose()[0]
    assert b"_created" not in metrics.expose("application/openmetrics-text; version=1.0.0")[0]


def test_two_servers_in_one_process_count_apart():
    """Each Metrics has its own registry."""
    one, other = (Metrics(budget_s=0.5, version="1.2.3") for _ in range(2))
    one.engine_restarts.inc()
    assert families(one)["rtts_engine_restarts"].samples[0].value == 1
    assert families(other)["rtts_engine_restarts"].samples[0].value == 0


def test_open_metrics_is_served_when_asked_for():
    """Content negotiation follows the scraper's Accept header."""
    metrics = Metrics(budget_s=0.5, version="1.2.3")
    assert metrics.expose()[1].startswith("text/plain")
    body, content_type = metrics.expose("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
