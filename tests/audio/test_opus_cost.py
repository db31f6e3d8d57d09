"""The cost of a packet is measured with the clock given, and is a plausible time."""

from __future__ import annotations

import time

from rtts.audio.opus_cost import packet_cost_s


def test_more_effort_costs_more():
    """Complexity 10 takes longer than 0; both are between a microsecond and 20 ms."""
    least = packet_cost_s(0, time.perf_counter)
    most = packet_cost_s(10, time.perf_counter)
    assert 1e-6 < least < most < 0.02


def test_the_clock_is_the_callers():
    """Three runs of 25 packets, each timed by the given clock; the least counts."""
    ticks = iter([0.0, 1.0, 10.0, 10.5, 20.0, 23.0])
    assert packet_cost_s(5, lambda: next(ticks)) == 0.5 / 25
