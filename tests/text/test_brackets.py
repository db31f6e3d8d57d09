"""Brackets that hold a segment together, and those that turn out to be text."""

from __future__ import annotations

from rtts.text.brackets import Brackets


def test_pairs_close_each_other() -> None:
    """A closer closes its opener and what was left open inside it."""
    brackets = Brackets()
    for at, mark in enumerate("([（"):
        brackets.meet(mark, at, " ")
    brackets.meet("]", 3, "x")
    assert brackets
    brackets.meet("}", 4, "x")
    assert brackets
    brackets.meet(")", 5, "x")
    assert not brackets


def test_smileys_open_nothing() -> None:
    """The mouth of :( is no bracket."""
    brackets = Brackets()
    brackets.meet("(", 5, ":")
    assert not brackets


def test_what_closed_in_time_is_forgotten() -> None:
    """A sentence end inside brackets that did close is none, even if later ones stay open."""
    brackets = Brackets()
    brackets.meet("(", 0, "")
    brackets.suppressed = True
    brackets.meet(")", 10, "x")
    brackets.meet("(", 20, " ")
    assert brackets.are_stale(101)
    assert not brackets.are_stale(100)
    assert not brackets.give_up(101)
    assert not brackets


def test_what_is_given_up_is_text() -> None:
    """Brackets that stay open too long are not met again when the segment is read again."""
    brackets = Brackets()
    brackets.meet("(", 0, "")
    brackets.suppressed = True
    assert brackets.give_up(90)
    brackets.restart()
    brackets.meet("(", 0, "")
    assert not brackets
    brackets.meet("(", 90, "")
    assert brackets
