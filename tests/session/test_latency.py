"""Who is guilty of a late first packet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.metrics import ENGINE_PARTS, STAGES
from rtts.session.latency import FirstPacket

lengths_s = st.floats(0.0, 2.0)


def packet(split, queue, engine, encode, send, parts=()) -> FirstPacket:
    at = [100.0]
    for length in (split, queue, engine, encode, send):
        at.append(at[-1] + length)
    return FirstPacket(100.0, *at, parts)


@given(st.lists(lengths_s, min_size=5, max_size=5), st.none() | st.tuples(*[st.floats(0, 1)] * 3))
def test_the_guilty_one_took_longest(lengths, shares):
    """A stage is never shorter than another; a part of the engine's never than the other parts, or
    than what is in none of them."""
    parts = () if shares is None else tuple(share * lengths[2] / 3 for share in shares)
    first = packet(*lengths, parts)
    stages, guilty = first.stages(), first.guilty_stage()
    assert sum(stages.values()) == pytest.approx(first.total_s, abs=1e-9)
    if guilty in ENGINE_PARTS:
        assert stages["engine"] == max(stages.values())
        assert first.parts()[guilty] == max(first.parts().values())
        assert first.parts()[guilty] >= stages["engine"] - sum(parts) - 1e-9
    else:
        assert guilty in STAGES
        assert stages[guilty] == max(stages.values())
    if guilty == "engine" and parts:
        assert stages["engine"] - sum(parts) >= max(parts) - 1e-9


@pytest.mark.parametrize(
    ("parts", "guilty"),
    [((), "engine"), ((0.3, 0.1, 0.0), "prefill"), ((0.1, 0.1, 0.0), "engine")],
)
def test_time_in_no_part_is_the_engines(parts, guilty):
    """What an engine did for others, and the way to it and back, is not blamed on a part."""
    assert packet(0.0, 0.1, 0.5, 0.0, 0.0, parts).guilty_stage() == guilty
