"""Reads the current segment and finds where it may end.

The reader walks over clean text once, from mark to mark, and reports ends of sentences, ends of
clauses, breaks and the place where the segment would become too long. Whether the segment does end
there is not its business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from rtts.text.boundaries import (
    BULLETS,
    CLAUSE_MARKS,
    Decision,
    Kind,
    is_blank_line,
    read_bullet,
    read_clause_mark,
    read_closing_bracket,
    read_final_mark,
    read_line_end,
)
from rtts.text.brackets import CLOSERS, OPENERS, Brackets
from rtts.text.characters import joins, weight
from rtts.text.languages import LatinGuess
from rtts.text.marks import FINAL_MARKS, Horizon, View
from rtts.text.tape import BLANKS, BREAK, HARD, LINE, SYMBOL, Tape

# Text looked at in one go; bounds the work that is repeated after a cut.
_WINDOW = 256

_LINE_MARKS = frozenset(LINE + HARD)
_BRACKETS = frozenset(OPENERS + CLOSERS)
_ENDING = frozenset(FINAL_MARKS) | _LINE_MARKS
_MARKS = re.escape(FINAL_MARKS + CLAUSE_MARKS + OPENERS + CLOSERS + BULLETS)
_EVENT = re.compile(f"[{_MARKS}{LINE}{HARD}{BREAK}]")
_FIRST_LETTER = re.compile(r"[^\W\d_]")
_LETTER = re.compile(r"[^\W_]")

_READERS: Mapping[str, Callable[[View, int], Decision]] = {
    **dict.fromkeys(FINAL_MARKS, read_final_mark),
    **dict.fromkeys(LINE + HARD, read_line_end),
    **dict.fromkeys(BULLETS, read_bullet),
    **dict.fromkeys(CLAUSE_MARKS, read_clause_mark),
    ")": read_closing_bracket,
}


_PLACES = (Kind.CLAUSE, Kind.END)


class What(Enum):
    """What the reader found."""

    CLAUSE = "clause"
    SENTENCE = "sentence"
    LINE = "line"
    BREAK = "break"
    LIMIT = "limit"  # the segment would become too long


class Found(NamedTuple):
    """A place in the current segment.

    Attributes:
        what: Which sort of place.
        at: Clean index at which the segment would end; of the mark, for a break.
        mark: The character that says so.
        blank_line: Whether an empty line follows.
    """

    what: What
    at: int
    mark: str = ""
    blank_line: bool = False


class Reader:
    """Reads one segment after the other. Owner: one splitter.

    Args:
        tape: What to read.
        latin: The language of its Latin letters; "" to find out while reading.

    Attributes:
        start: Clean index at which the current segment begins.
        weight: What it weighs as far as it is read.
        clauses: Ends of clauses in it so far.
    """

    __slots__ = (
        "_at",
        "_brackets",
        "_casual",
        "_counted",
        "_fresh",
        "_guess",
        "_latin",
        "_tape",
        "clauses",
        "start",
        "weight",
    )

    def __init__(self, tape: Tape, latin: str) -> None:
        self._tape = tape
        self._latin = latin
        self._guess = LatinGuess()
        self._counted = 0  # clean index up to which the guess has seen the text
        self._brackets = Brackets()
        self._fresh = True  # the segment begins where a sentence does
        self._casual: bool | None = None  # its sentence begins in lower case; None to find out
        self._at = 0  # clean index up to which the segment is read
        self.start = 0
        self.weight = 0.0
        self.clauses: list[int] = []

    def begin(self, start: int, fresh: bool) -> None:
        """End the current segment at clean index `start`, where the next begins."""
        if not self._latin:
            self._count(start)
        self._casual = None if fresh else self._is_casual(start)
        self.start = start
        self._fresh = fresh
        self._again()

    def _again(self) -> None:
        """Read the segment from its beginning."""
        self._at = self.start
        self.weight = 0.0
        self.clauses.clear()
        self._brackets.restart()

    def find(self, horizon: Horizon, limit: float, max_chars: int) -> Found | None:
        """The next place worth knowing about; None when it takes more text.

        Args:
            horizon: What follows the text on the tape.
            limit: What the segment may weigh.
            max_chars: How many characters it may have.
        """
        text, base = self._tape.text, self._tape.base
        while True:
            if self._at == self.start:
                self._skip_blanks(text, base)
            at, length = self._at - base, len(text)
            if at == length:
                return None
            match = _EVENT.search(text, at, at + _WINDOW)
            stop = min(length, at + _WINDOW) if match is None else match.start()
            if stop > at and not self._grow(text, at, stop, limit, max_chars):
                return Found(What.LIMIT, self._at)
            if match is None or self._gives_up_brackets(base + stop, text[stop]):
                continue
            kind, cut = self._decide(text, stop, horizon)
            if kind is Kind.WAIT:
                return None
            if cut > stop and not self._grow(text, stop, cut, limit, max_chars):
                return Found(What.LIMIT, self._at)
            found = self._found(text, stop, kind, cut)
            if found is not None:
                return found

    def _skip_blanks(self, text: str, base: int) -> None:
        at = self._at - base
        while at < len(text) and text[at] in BLANKS:
            at += 1
        self.start = self._at = base + at

    def _grow(self, text: str, start: int, end: int, limit: float, max_chars: int) -> bool:
        """Take `text[start:end]` into the segment unless that makes it too long."""
        grown = self.weight + weight(text[start:end])
        if grown > limit or self._tape.base + end - self.start > max_chars:
            return False
        self.weight = grown
        self._at = self._tape.base + end
        return True

    def _gives_up_brackets(self, at: int, mark: str) -> bool:
        """Whether brackets turn out never to close, so that the segment must be read again."""
        brackets = self._brackets
        if not brackets or not (mark in _LINE_MARKS or brackets.are_stale(at)):
            return False
        if not brackets.give_up(at):
            return False
        self._again()
        return True

    def _decide(self, text: str, index: int, horizon: Horizon) -> Decision:
        """What the mark at `index` means."""
        mark = text[index]
        if mark == BREAK:
            return Kind.END, index
        if mark in _BRACKETS and (mark != ")" or self._brackets):
            return Kind.GO_ON, index + 1
        kind, cut = _READERS[mark](self._view(text, index, mark, horizon), index)
        if kind is Kind.END and horizon is Horizon.OPEN and is_blank_line(text, cut) is None:
            return Kind.WAIT, index
        if kind in _PLACES and joins(text, cut):
            return Kind.GO_ON, cut  # a mark with an accent on it
        return kind, cut

    def _found(self, text: str, index: int, kind: Kind, cut: int) -> Found | None:
        """Note what was decided about a mark, and what of it is worth telling."""
        mark, base = text[index], self._tape.base
        if mark == BREAK:
            return Found(What.BREAK, base + index, mark)
        if mark in _BRACKETS:
            self._brackets.meet(mark, base + index, text[index - 1] if index else "")
        elif self._brackets:
            for closer in text[index + 1 : cut]:
                if closer in CLOSERS:
                    self._brackets.meet(closer, base + index, "")
        if kind is Kind.CLAUSE:
            self.clauses.append(base + cut)
            return None if self._brackets else Found(What.CLAUSE, base + cut, mark)
        if kind is not Kind.END:
            return None
        if cut <= index:  # the segment would end before the mark; read on after it
            self.weight += weight(text[index])
            self._at = base + index + 1
        if self._brackets and mark in FINAL_MARKS:
            self._brackets.suppressed = True
            return None
        line = mark in _LINE_MARKS or cut < index
        what = What.LINE if line else What.SENTENCE
        return Found(what, base + cut, mark, is_blank_line(text, cut) is True)

    # --- context ---------------------------------------------------------------------------------

    def _view(self, text: str, index: int, mark: str, horizon: Horizon) -> View:
        latin = self._latin
        if not latin and mark in ".…":  # nothing else wants to know
            self._count(self._tape.base + index)
            latin = self._guess.best()
        start = self.start - self._tape.base
        casual = self._is_casual(self._tape.base + index)
        return View(text, start, horizon, latin, self._fresh, casual)

    def _is_casual(self, end: int) -> bool:
        """Whether the sentence that the text before clean `end` belongs to begins in lower case."""
        if self._casual is None:
            base = self._tape.base
            match = _FIRST_LETTER.search(self._tape.text, self.start - base, end - base)
            if match is None:
                return False
            self._casual = match.group().islower()
        return self._casual

    def _count(self, end: int) -> None:
        """Let the guess see the text up to clean `end`."""
        if end > self._counted:
            base = self._tape.base
            self._guess.count(self._tape.text[max(0, self._counted - base) : end - base])
            self._counted = end

    def uncertain_end(self) -> int | None:
        """Where the segment ends if nothing follows, all of it being read and only that unsure."""
        text, index = self._tape.text, self._at - self._tape.base
        if index >= len(text) or self._brackets or text[index] not in _ENDING:
            return None
        mark = text[index]
        kind, cut = _READERS[mark](self._view(text, index, mark, Horizon.QUIET), index)
        if kind is not Kind.END or text[cut:].strip(BLANKS + SYMBOL):
            return None
        return self._tape.base + cut

    @property
    def in_brackets(self) -> bool:
        """Whether a bracket is open where reading stopped."""
        return bool(self._brackets)

    def has_letters(self, end: int) -> bool:
        """Whether there is anything to say in the segment up to clean `end`."""
        base = self._tape.base
        return _LETTER.search(self._tape.text, self.start - base, end - base) is not None

    def is_short(self, end: int, min_weight: float) -> bool:
        """Whether the segment up to clean `end` is too short to be spoken alone."""
        base = self._tape.base
        piece = self._tape.text[self.start - base : end - base].rstrip(BLANKS)
        return weight(piece) < min_weight or len(_LETTER.findall(piece)) < _MIN_LETTERS


# Fewer letters or digits are never sent by themselves.
_MIN_LETTERS = 2
