"""What the beginning of a line says in markdown: fences, headings, items, rules, quotes, tables.

`LineStart` reads the first characters of a line, holding a bounded number of them until it knows
what they are, and everything inside a code fence. The text of the line is none of its business.
"""

from __future__ import annotations

import re

from rtts.text.tape import LINE_ENDS, Tape

WAIT = -1

# A line of only marks, or an info string, longer than this is not held back any further.
_MAX_HELD = 128

_BULLETS = "•◦‣▪●○·⁃∙"
_RULE = re.compile(r"([-*_=])(?:[ \t]*\1)*[ \t]*")
_ROW_RULE = re.compile(r"[|:\- \t]+")
_HEADING = re.compile(r"#{1,7}")
_FENCE = re.compile(r"`+|~+")
_TASK = re.compile(r"\[[ xX]\](?=[ \t])")
_LINE_END = re.compile(f"[{LINE_ENDS}]")


class LineStart:
    """Reads line starts. Owner: one markup filter.

    Attributes:
        pending: The next character is at the start of a line, or inside a fence.
        in_row: The line is a table row.
    """

    __slots__ = (
        "_fence",
        "_heading",
        "_in_line",
        "_item",
        "_row_start",
        "_tape",
        "in_row",
        "pending",
    )

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.pending = True
        self.in_row = False
        self._row_start = 0  # clean index at which the row's first cell begins
        self._heading = False
        self._item = False  # a bullet was read on this line
        self._fence = ""  # the marks that opened the fence we are in
        self._in_line = False  # inside a fence, in a line that does not close it

    @property
    def in_fence(self) -> bool:
        """Whether what comes next is code."""
        return bool(self._fence)

    def begin(self) -> None:
        """A line begins without a line end before it."""
        self.pending = True
        self._heading = self.in_row = self._item = False

    def end_line(self, at: int) -> None:
        """The line's text is over; the line end at source index `at` is about to be written."""
        if self._heading or self.in_row:
            self._tape.hard(at)
        self.begin()

    def row_begun(self, length: int) -> bool:
        """Whether the row has a cell already, `length` being the clean characters so far."""
        return length > self._row_start

    def read(self, source: str, index: int, final: bool) -> int:
        """Read one piece of a line start; returns where the next begins, or WAIT."""
        if self._fence:
            return self._inside_fence(source, index, final)
        character = source[index]
        if character.isspace() or character == "\ufeff":
            self._tape.drop(self._tape.source_base + index, 1)
            return index + 1
        step = self._mark(source, index, character, final)
        if step is not None:
            return step
        self.pending = False
        return index

    def _mark(self, source: str, index: int, character: str, final: bool) -> int | None:
        """The mark at `index`: where it ends, WAIT, or None if the line's text begins here."""
        if character in "`~":
            return self._open_fence(source, index, final)
        if character == "#":
            return self._open_heading(source, index, final)
        if character in "-*_=":
            return self._rule_or_bullet(source, index, final)
        if character == "|":
            return self._row(source, index, final)
        if character in _BULLETS:
            return self._bullet(index, 1)
        if character == "+":
            return self._plus(source, index, final)
        if character == ">":
            self._tape.open(self._tape.source_base + index, 1)
            return index + 1
        if character == "[" and self._item:
            return self._task(source, index, final)
        return None

    def _task(self, source: str, index: int, final: bool) -> int | None:
        if len(source) - index < 4 and not final:
            return WAIT if _TASK_BEGUN.match(source, index) else None
        if _TASK.match(source, index) is None:
            return None
        self._tape.open(self._tape.source_base + index, 3)
        return index + 3

    def _bullet(self, index: int, count: int) -> int:
        at = self._tape.source_base + index
        self._tape.hard(at)
        self._tape.open(at, count)
        self._item = True
        return index + count

    def _plus(self, source: str, index: int, final: bool) -> int | None:
        if index + 1 == len(source):
            return None if final else WAIT
        return self._bullet(index, 1) if source[index + 1] in " \t" else None

    def _rule_or_bullet(self, source: str, index: int, final: bool) -> int | None:
        """`---`, `* * *`, `===` go with their line; `- ` and `* ` begin an item."""
        match = _RULE.match(source, index, index + _MAX_HELD)
        assert match is not None
        end, mark = match.end(), match.group(1)
        at = self._tape.source_base + index
        if end - index == _MAX_HELD:
            self._tape.drop(at, end - index)  # decoration, however it goes on
            return end
        if end == len(source) and not final:
            return WAIT
        if end == len(source) or source[end] in LINE_ENDS:
            if match.group().count(mark) >= (1 if mark == "-" else 2 if mark == "=" else 3):
                self._tape.drop(at, end - index)
                return end
            return None
        if mark in "-*" and index + 1 < len(source) and source[index + 1] in " \t":
            return self._bullet(index, 1)
        return None

    def _open_heading(self, source: str, index: int, final: bool) -> int | None:
        match = _HEADING.match(source, index)
        assert match is not None
        end = match.end()
        if end == len(source) and not final and end - index <= 6:
            return WAIT
        if end - index > 6 or (end < len(source) and not source[end].isspace()):
            return None
        at = self._tape.source_base + index
        self._tape.hard(at)
        self._tape.open(at, end - index)
        self._heading = True
        return end

    def _row(self, source: str, index: int, final: bool) -> int | None:
        """A table row; the row of dashes under the head goes whole."""
        match = _ROW_RULE.match(source, index, index + _MAX_HELD)
        assert match is not None
        end = match.end()
        at = self._tape.source_base + index
        if end - index == _MAX_HELD:
            self._tape.drop(at, end - index)
            return end
        if end == len(source) and not final:
            return WAIT
        if end == len(source) or source[end] in LINE_ENDS:
            end += end < len(source)  # with its line end, which would make a blank line
            self._tape.drop(at, end - index)
            return end
        self._tape.hard(at)
        self._tape.open(at, 1)
        self.in_row = True
        self._row_start = self._tape.length
        self.pending = False
        return index + 1

    # --- fences ----------------------------------------------------------------------------------

    def _open_fence(self, source: str, index: int, final: bool) -> int | None:
        """Three or more ` or ~ and an info string; a backtick in it makes it inline code."""
        match = _FENCE.match(source, index, index + _MAX_HELD)
        assert match is not None
        marks, end = match.group(), match.end()
        if end == len(source) and not final and len(marks) < _MAX_HELD:
            return WAIT
        if len(marks) < 3:
            return None
        line_end = _LINE_END.search(source, end, end + _MAX_HELD)
        stop = line_end.start() if line_end else min(len(source), end + _MAX_HELD)
        if marks[0] == "`" and "`" in source[end:stop]:
            return None
        if line_end is None and stop - end < _MAX_HELD and not final:
            return WAIT
        self._tape.boundary(self._tape.source_base + index)
        self._fence = marks
        self._in_line = line_end is None
        return stop + (line_end is not None)

    def _inside_fence(self, source: str, index: int, final: bool) -> int:
        """Drop code up to the line that closes the fence."""
        at = self._tape.source_base + index
        line_end = _LINE_END.search(source, index)
        end = len(source) if line_end is None else line_end.start()
        if not self._in_line and end - index <= _MAX_HELD:
            line = source[index:end].strip(" \t")
            if line_end is None and not final:
                if line == self._fence[0] * len(line):
                    return WAIT
            elif len(line) >= len(self._fence) and line == self._fence[0] * len(line):
                self._fence = ""
                self._tape.drop(at, end - index)
                return end
        self._in_line = line_end is None
        stop = end if line_end is None else end + 1
        self._tape.drop(at, stop - index)
        return stop


_TASK_BEGUN = re.compile(r"\[(?:[ xX]\]?)?\Z")
