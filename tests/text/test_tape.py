"""The tape's map between clean text and input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtts.text.tape import BREAK, HARD, LINE, SYMBOL, Tape

steps = st.lists(
    st.sampled_from(
        ["put", "space", "line", "hard", "symbol", "open", "close", "drop", "boundary", "consume"]
    )
)


def write(tape: Tape, step: str, at: int) -> None:
    if step == "put":
        tape.put("ab", at)
    elif step in ("space", "line", "hard"):
        getattr(tape, step)(at)
    elif step in ("symbol", "open", "close", "drop"):
        getattr(tape, step)(at, 2)
    elif step == "boundary":
        tape.boundary(at, 0.5, 2)
    else:
        tape.sync()
        tape.consume(tape.length, 0)


@given(steps)
def test_sources_ascend_and_are_right(plan: list[str]) -> None:
    """Every clean character leads to where it was written from, in ascending order."""
    tape, expected = Tape(), {}
    for number, step in enumerate(plan):
        before = tape.length
        write(tape, step, 2 * number)
        if step == "put":
            expected |= {before: 2 * number, before + 1: 2 * number + 1}
    tape.sync()
    found = tape.sources(tape.base, tape.length)
    assert found == sorted(found)
    assert found == [tape.source_of(index) for index in range(tape.base, tape.length)]
    assert {i: s for i, s in expected.items() if i >= tape.base} == {
        i: found[i - tape.base] for i in expected if i >= tape.base
    }


@given(steps)
def test_white_space_is_bounded(plan: list[str]) -> None:
    """White space is never more than a space, two line ends and one hard end; marks never repeat."""
    tape = Tape()
    for number, step in enumerate(plan):
        if step != "consume":
            write(tape, step, 2 * number)
    tape.sync()
    blanks = tape.text.replace("ab", "x").replace(BREAK, "x").replace(SYMBOL, "x").split("x")
    assert all(run.count(LINE) <= 2 and run.count(HARD) <= 1 and len(run) <= 6 for run in blanks)
    assert SYMBOL * 2 not in tape.text


def test_markup_belongs_to_its_neighbours() -> None:
    """Opening markup is part of what follows it, closing markup of what it follows."""
    tape = Tape()
    tape.open(0, 2)
    tape.put("ab", 2)
    tape.close(4, 2)
    tape.space(6)
    tape.open(7, 1)
    tape.put("c", 8)
    tape.sync()
    assert tape.text == "ab c"
    assert tape.span(0, 2) == (0, 6)
    assert tape.span(3, 4) == (7, 9)
    assert tape.kept_from(3, 99) == 7
    assert tape.kept_from(4, 99) == 99


def test_what_vanishes_in_one_place_is_bounded() -> None:
    """After some thousand dropped characters a boundary is forced, once."""
    tape = Tape()
    tape.put("a", 0)
    for at in range(1, 20_000):
        tape.drop(at, 1)
    tape.put("b", 20_000)
    tape.sync()
    assert tape.text == f"a{BREAK}b"
