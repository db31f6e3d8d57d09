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
    """Five runs of five slices; of each slice the quickest counts, so that a disturbed run does not."""
    took_s = [[0.5, 0.5, 0.5, 0.5, 0.5] for _ in range(5)]
    for run in range(5):
        took_s[run][run] = 9.0  # something else had the machine, elsewhere each time
    took_s[2] = [9.0] * 5
    ticks = iter([tick for row in took_s for took in row for tick in (1000.0, 1000.0 + took)])
    assert packet_cost_s(5, lambda: next(ticks)) == 5 * 0.5 / 25
