"""Clean text with a way back: what is left of the input to speak, and where each character came from.

The tape is written by `rtts.text.markup` and read and consumed by `rtts.text.splitter`. Beside
ordinary characters it carries four marks (below), and white space is never more than one space,
two line ends and one `HARD`, so whoever reads it needs only a few characters of look-ahead. It
knows nothing about markdown and nothing about sentences.
"""

from __future__ import annotations

from bisect import bisect_right

LINE = "\n"  # a line end of the input; two are a blank line
HARD = "\x1e"  # the line end beside it ends an item, a heading or a table row
BREAK = "\x1d"  # nothing may be spoken across: a <break>, a code block
SYMBOL = "\x1a"  # an emoji or an address stood here and is not spoken
BLANKS = f" {LINE}{HARD}"  # all white space there is

# White space of the input that ends a line; U+2029 ends a paragraph. All other white space becomes
# one space.
LINE_ENDS = "\n\r\x0b\x0c\x85\u2028\u2029"

_NO_TAIL = ("", " ", LINE, HARD, BREAK)

# Characters of the input that may vanish in one place (markup, link targets, white space) before a
# boundary is forced there, so that a segment's slice of the input stays bounded: twice the longest
# link target.
_MAX_DROPPED = 4096


class Tape:
    """Clean text, its source, and the map between them. Owner: one splitter.

    All positions are absolute: indices into everything ever written (clean) or ever fed (source).
    `text` and `source` hold only what is not yet consumed, from `base` and `source_base` on.
    """

    __slots__ = (
        "_at_start",
        "_broken",
        "_dropped",
        "_hard",
        "_head",
        "_last",
        "_lines",
        "_parts",
        "_run_clean",
        "_run_source",
        "_skew",
        "base",
        "breaks",
        "heads",
        "last_visible",
        "length",
        "source",
        "source_base",
        "tails",
        "text",
    )

    def __init__(self) -> None:
        self.text = ""
        self.base = 0
        self.length = 0  # clean characters ever written
        self.source = ""
        self.source_base = 0
        self.heads: dict[int, int] = {}  # clean index -> source index its dropped prefix starts at
        self.tails: dict[int, int] = {}  # clean index -> source index its dropped suffix ends at
        self.breaks: dict[int, float] = {}  # clean index of a BREAK -> its silence in seconds
        self.last_visible = ""  # last character written that is neither white space nor a mark
        self._parts: list[str] = []
        self._run_clean: list[int] = []  # from these clean indices on ...
        self._run_source: list[int] = []  # ... the source is these indices, character by character
        self._skew: int | None = None  # source minus clean index in the last run
        self._head: int | None = None  # where the dropped prefix of the next character starts
        self._at_start = True  # nothing visible since the beginning or the last BREAK
        self._last = ""  # last character written
        self._lines = 0  # line ends in the white space being written
        self._hard = False  # a HARD in it
        self._dropped = 0  # source characters dropped since the last visible one
        self._broken = False  # a BREAK was forced in the run of drops going on

    # --- writing -----------------------------------------------------------------------------

    def put(self, text: str, source: int) -> None:
        """Write characters that come one by one from `source` on; spaces in `text` are single."""
        if text[0] == " ":
            self.space(source)
            text, source = text[1:], source + 1
            if not text:
                return
        if self._head is not None:
            self.heads[self.length] = self._head
            self._head = None
        self._write(text, source)
        self._at_start = self._hard = self._broken = False
        self._lines = self._dropped = 0
        if text[-1] != " ":
            self.last_visible = text[-1]
        elif len(text) > 1:
            self.last_visible = text[-2]

    def insert(self, text: str) -> None:
        """Write characters that stand for nothing in the input, beside the last one written."""
        if self._skew is not None and not self._at_start:
            source = self._skew + self.length - 1
            for character in text:
                if character != " " or self._last != " ":
                    self._write(character, source)

    def space(self, source: int, count: int = 1) -> None:
        """White space within a line; one space is enough."""
        self._head = None
        if not self._at_start and self._last not in BLANKS:
            self._write(" ", source)
        self.drop(source, count)

    def line(self, source: int) -> None:
        """A line end; two of them are enough."""
        self._head = None
        self._broken = False
        if not self._at_start and self._lines < 2:
            self._lines += 1
            self._write(LINE, source)
        else:
            self.drop(source, 1)

    def hard(self, source: int) -> None:
        """The line end just written, or to be written next, ends an item."""
        if not self._at_start and not self._hard:
            self._hard = True
            self._write(HARD, source)

    def symbol(self, source: int, count: int = 1) -> None:
        """Something unspeakable; a run of them is one mark, before the first word none."""
        if self._at_start:
            self.open(source, count)
            return
        head, self._head = self._head, None
        if self._last != SYMBOL:
            if head is not None:
                self.heads[self.length] = head
            self._write(SYMBOL, source)
            self._lines = 0
            self._hard = False
        self.tails[self.length - 1] = source + count
        self.drop(source, count)

    def boundary(self, source: int, silence_s: float = 0.0, count: int = 0) -> None:
        """Nothing may be spoken across this place; the tag there stands for `silence_s` of silence."""
        self._head = None
        if silence_s or not self._at_start:
            self.breaks[self.length] = silence_s
            self.tails[self.length] = source + count
            self._write(BREAK, source)
        self._lines = 0
        self._hard = False
        self._at_start = True
        self._dropped = 0
        self._broken = True

    def restart(self) -> None:
        """What comes next has nothing to do with what was written."""
        self._head = None
        self._last = ""
        self._at_start = True
        self._hard = self._broken = False
        self._lines = self._dropped = 0

    def drop(self, source: int, count: int) -> None:
        """Source characters that leave no trace."""
        if not self._broken:
            self._dropped += count
            if self._dropped > _MAX_DROPPED:
                self.boundary(source)

    def open(self, source: int, count: int) -> None:
        """Markup that belongs to the character written next."""
        if self._head is None and not self._broken:
            self._head = source
        self.drop(source, count)

    def close(self, source: int, count: int) -> None:
        """Markup that belongs to the character before it, if that stands right before it."""
        if self._head is None and not self._broken and self._last not in _NO_TAIL:
            self.tails[self.length - 1] = source + count
        self.drop(source, count)

    def extend(self, source_end: int) -> None:
        """Let the last character written stand for the input up to `source_end`."""
        if self.length:
            self.tails[self.length - 1] = source_end

    def _write(self, text: str, source: int) -> None:
        skew = source - self.length
        if skew != self._skew:
            self._skew = skew
            self._run_clean.append(self.length)
            self._run_source.append(source)
        self._parts.append(text)
        self.length += len(text)
        self._last = text[-1]

    def ends_in_symbol(self) -> bool:
        """Whether the last thing written is a SYMBOL."""
        return self._last == SYMBOL

    def sync(self) -> None:
        """Make what was written readable in `text`."""
        if self._parts:
            self.text += "".join(self._parts)
            self._parts.clear()

    # --- reading -----------------------------------------------------------------------------

    def source_of(self, index: int) -> int:
        """Where the clean character at `index` came from."""
        run = bisect_right(self._run_clean, index) - 1
        return self._run_source[run] + index - self._run_clean[run]

    def sources(self, start: int, end: int) -> list[int]:
        """Where the clean characters of `[start, end)` came from."""
        found: list[int] = []
        run = bisect_right(self._run_clean, start) - 1
        while start < end:
            last = run + 1 == len(self._run_clean)
            stop = end if last else min(end, self._run_clean[run + 1])
            first = self._run_source[run] + start - self._run_clean[run]
            found.extend(range(first, first + stop - start))
            start = stop
            run += 1
        return found

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The input that the clean characters of `[start, end)` stand for, markup included."""
        first = self.heads.get(start)
        last = self.tails.get(end - 1)
        return (
            self.source_of(start) if first is None else first,
            self.source_of(end - 1) + 1 if last is None else last,
        )

    @property
    def source_end(self) -> int:
        """Characters ever fed."""
        return self.source_base + len(self.source)

    def kept_from(self, index: int, read: int) -> int:
        """The first character of the input that the clean text from `index` on stands for.

        Args:
            index: Clean index.
            read: Source index up to which the source is written; the answer if there is none.
        """
        if index < self.length:
            head = self.heads.get(index)
            return self.source_of(index) if head is None else head
        return read if self._head is None else self._head

    def consume(self, index: int, source: int) -> None:
        """Forget everything before clean `index` and before `source`."""
        if index > self.base:
            self.text = self.text[index - self.base :]
            self.base = index
            stale = bisect_right(self._run_clean, index) - 1
            if stale > 0:
                del self._run_clean[:stale], self._run_source[:stale]
            for marks in (self.heads, self.tails, self.breaks):
                if marks:
                    for key in [key for key in marks if key < index]:
                        del marks[key]
        if source > self.source_base:
            self.source = self.source[source - self.source_base :]
            self.source_base = source
