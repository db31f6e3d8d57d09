from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rtts_client.pacing import ReadingClock

STEPS = st.lists(
    st.tuples(st.sampled_from(["receive", "read", "report"]), st.floats(0, 3), st.floats(0.02, 0.5))
)


@given(STEPS)
def test_played_is_never_more_than_can_be(steps: list[tuple[str, float, float]]) -> None:
    """The report never passes what was received, what was read, or real time; it never falls."""
    clock, now, began_at, last_s = ReadingClock(), 1000.0, None, 0.0
    for kind, passes_s, audio_s in steps:
        now += passes_s
        if kind == "receive":
            began_at = now if began_at is None else began_at
            clock.received(audio_s, now)
        elif kind == "read":
            clock.read(min(audio_s, clock.waiting_s))
        elif began_at is not None:
            played_s = clock.played_s(now)
            assert last_s <= played_s + 1e-9
            assert played_s <= clock.received_s - clock.waiting_s + 1e-9
            assert played_s <= now - began_at + 1e-9
            last_s = played_s


def test_a_dry_clock_waits() -> None:
    """Time in which there was nothing to play is not played later."""
    clock = ReadingClock()
    assert not clock.has_begun
    clock.received(1.0, 1000.0)
    assert clock.has_begun
    clock.read(1.0)
    assert clock.played_s(1005.0) == 1.0
    clock.received(2.0, 1010.0)
    clock.read(2.0)
    assert clock.played_s(1010.5) == 1.5
