"""From what an LLM writes to what a voice can say: markdown, tags, addresses and emoji, as they come.

`MarkupFilter` reads the source side of a tape and writes its clean side. It decides every mark
with a bounded look-ahead, so the result does not depend on how the input was cut into messages,
and it never looks back further than one character. It knows nothing about sentences: a full stop
is a letter to it.

What must never reach a model is removed whatever the options say: control tokens, control
characters and zero-width characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from rtts.text.blocks import LineStart
from rtts.text.characters import EMOJI
from rtts.text.constructs import (
    ADDRESS_END,
    GLUE,
    SILENT,
    WAIT,
    Address,
    Link,
    autolink_span,
    find_address,
    find_entity,
    find_link,
    host_span,
    keeps_emphasis,
    pause_of,
    run_end,
    tag_end,
    token_end,
)
from rtts.text.tape import LINE_ENDS, Tape

_PLAIN = re.compile(rf"[{SILENT}<]|[^\S ]|\ {{2,}}")
_MARKUP = re.compile(
    rf"[{SILENT}<>|*_~`\[\]!&\\{EMOJI}{GLUE}]|[^\S ]|\ {{2,}}"
    r"|(?<![A-Za-z0-9@.])(?:[hH](?=[tT]|\Z)|[wW](?=[wW]|\Z))"
)
_SPACES = re.compile(rf"[^\S{LINE_ENDS}\x1c-\x1f]+")
_EMOJI = re.compile(f"[{EMOJI}][{EMOJI}{GLUE}]*|[{GLUE}]+")
_PICTURE = re.compile(f"[{EMOJI}]")
_LINE_TAG = re.compile(r"</?(?:br|p|div|li|tr|h[1-6]|ul|ol|blockquote)\b", re.I)
_TARGET_END = re.compile(r"[\s)]")

_TEXT_IN_CODE = frozenset("*_~[]!&\\hHwW")
_MAY_FOLLOW_LESS = frozenset(" 0123456789=<>-+.,;:")
_OPENERS = frozenset("([{\"'“‘«„¿¡-–—/*_~`>")
_ESCAPABLE = frozenset("\\`*_{}[]()#+-.!|~>\"'$")
_CELL_NEEDS_COMMA = frozenset("%)\"'”’")


class Addresses(Enum):
    """What becomes of a bare URL."""

    HOST = "host"
    DROP = "drop"
    KEEP = "keep"


class MarkupFilter:
    """Turns source into clean text. Owner: one splitter.

    Args:
        tape: Where both are.
        markup: Whether markdown, tags, addresses and emoji are interpreted at all.
        addresses: What becomes of a bare URL.
        drop_emoji: Whether emoji are unspeakable.
    """

    __slots__ = (
        "_addresses",
        "_after_less",
        "_at",
        "_cell",
        "_code",
        "_drop_emoji",
        "_final",
        "_handlers",
        "_lines",
        "_link_ends",
        "_skip",
        "_special",
        "_tape",
    )

    def __init__(
        self,
        tape: Tape,
        *,
        markup: bool = True,
        addresses: Addresses = Addresses.HOST,
        drop_emoji: bool = True,
    ) -> None:
        self._tape = tape
        self._addresses = addresses
        self._drop_emoji = drop_emoji
        self._special = _MARKUP if markup else _PLAIN
        self._at = 0  # source index of the first character not yet read
        self._final = False  # nothing follows: decide without look-ahead
        self._after_less = False  # the last clean character is a literal "<"
        self._skip: re.Pattern[str] | None = None  # drop everything before the next match
        self._code = 0  # backticks that opened the inline code we are in, or 0
        self._cell = False  # a cell border is due before the next character
        self._link_ends: dict[int, int] = {}  # source index of a link's closer -> end of the link
        self._lines = LineStart(tape) if markup else None
        self._handlers = _MARKUP_HANDLERS if markup else _PLAIN_HANDLERS

    @property
    def at(self) -> int:
        """Source characters read so far; the rest waits for its look-ahead."""
        return self._at

    def run(self, final: bool = False) -> None:
        """Read what the tape's source holds, as far as it can be decided.

        Args:
            final: Nothing follows (end or flush), so everything is decided.
        """
        self._final = final
        source, base = self._tape.source, self._tape.source_base
        index, end = self._at - base, len(source)
        while index < end:
            step = self._step(source, index)
            if step == WAIT:
                break
            index = step
        self._at = base + index
        self._tape.sync()

    @property
    def settles(self) -> bool:
        """Whether all that waits is a "!" that could begin an image."""
        return self._tape.source_end - self._at == 1 and self._tape.source[-1] == "!"

    def settle(self) -> None:
        """Give up waiting for that image: no more text came for a while."""
        if self.settles:
            self._literal("!", self._at)
            self._at += 1
            self._tape.sync()

    def restart(self) -> None:
        """All is read and spoken; what comes next stands at the beginning of a line."""
        self._tape.restart()
        self._code = 0
        self._cell = self._after_less = False
        if self._lines is not None:
            self._lines.begin()

    def _step(self, source: str, index: int) -> int:
        """Read one piece at `index`; returns where the next begins, or WAIT."""
        if self._skip is not None:
            return self._skip_on(source, index)
        lines = self._lines
        if lines is not None and lines.pending:
            if source[index] in LINE_ENDS and not lines.in_fence:
                return self._line_end(source, index)
            return lines.read(source, index, self._final)
        match = self._special.search(source, index)
        start = len(source) if match is None else match.start()
        if start > index:
            self._plain(source, index, start)
            return start
        if self._code and source[start] in _TEXT_IN_CODE:
            return self._text(source, start)
        return self._handlers.get(source[start], MarkupFilter._other)(self, source, start)

    # --- plain text ------------------------------------------------------------------------------

    def _plain(self, source: str, start: int, end: int) -> None:
        """Text without anything special in it."""
        if self._cell and source[start] == " ":
            self._tape.drop(self._tape.source_base + start, 1)
            start += 1
            if start == end:
                return
        self._put(source[start:end], self._tape.source_base + start)

    def _text(self, source: str, index: int) -> int:
        """One character that is not special after all."""
        self._literal(source[index], self._tape.source_base + index)
        return index + 1

    def _literal(self, character: str, at: int) -> None:
        self._put(character, at)
        self._after_less = character == "<"

    def _put(self, text: str, at: int) -> None:
        """Text to be spoken, after what is due before it."""
        if self._cell:
            self._write_cell()
        if self._after_less:  # it must not grow into a token around something that was removed
            self._after_less = False
            if text[0] not in _MAY_FOLLOW_LESS:
                self._tape.space(at)
        self._tape.put(text, at)

    def _other(self, source: str, index: int) -> int:
        """White space, emoji and silent characters."""
        tape = self._tape
        at = tape.source_base + index
        match = _SPACES.match(source, index)
        if match is not None:
            if self._cell:
                tape.drop(at, match.end() - index)
            else:
                tape.space(at, match.end() - index)
            self._after_less = False
            return match.end()
        match = _EMOJI.match(source, index)
        if match is not None:
            return self._emoji(match, at)
        tape.drop(at, 1)
        return index + 1

    def _emoji(self, match: re.Match[str], at: int) -> int:
        """A run of emoji and what joins them; a keycap's digit stays, its glue goes."""
        text = match.group()
        if not self._drop_emoji:
            self._put(text, at)
        elif _PICTURE.match(text) or self._tape.ends_in_symbol():
            self._tape.symbol(at, len(text))
        else:
            self._tape.close(at, len(text))
        return match.end()

    def _line_end(self, source: str, index: int) -> int:
        """The end of a line, however it is spelt."""
        tape = self._tape
        at = tape.source_base + index
        character = source[index]
        if character == "\n" and index and source[index - 1] == "\r":
            tape.drop(at, 1)
            return index + 1
        if self._lines is not None:
            self._lines.end_line(at)
        self._code = 0
        self._cell = self._after_less = False
        tape.line(at)
        if character == "\u2029":
            tape.line(at)
        return index + 1

    # --- tags and tables -------------------------------------------------------------------------

    def _angle(self, source: str, index: int) -> int:
        """A control token goes, a tag goes or becomes silence, anything else is a "<"."""
        tape = self._tape
        at = tape.source_base + index
        end = token_end(source, index, self._final)
        if end is not None:
            if end != WAIT:
                tape.drop(at, end - index)
            return end
        if self._lines is None or self._code:
            return self._text(source, index)
        span = autolink_span(source, index)
        if span is not None:
            tape.open(at, span[0] - index)
            self._link_ends[tape.source_base + span[1]] = tape.source_base + span[1] + 1
            return span[0]
        end = tag_end(source, index, self._final)
        if end is None:
            return self._text(source, index)
        if end != WAIT:
            self._drop_tag(source[index:end], at)
        return end

    def _drop_tag(self, tag: str, at: int) -> None:
        tape = self._tape
        pause_s = pause_of(tag)
        if pause_s is not None:
            self._cell = False
            tape.boundary(at, pause_s, len(tag))
        elif _LINE_TAG.match(tag):
            self._cell = False
            tape.line(at)
            tape.drop(at, len(tag))
        elif tag.startswith("</"):
            tape.close(at, len(tag))
        else:
            tape.open(at, len(tag))

    def _bar(self, source: str, index: int) -> int:
        """A "|": a cell border in a table, otherwise itself."""
        lines = self._lines
        if lines is None or not lines.in_row:
            return self._text(source, index)
        self._tape.drop(self._tape.source_base + index, 1)
        self._cell = lines.row_begun(self._tape.length)
        return index + 1

    def _write_cell(self) -> None:
        """Put the comma of a cell border, now that another cell follows."""
        self._cell = False
        last = self._tape.last_visible
        self._tape.insert(", " if last.isalnum() or last in _CELL_NEEDS_COMMA else " ")

    # --- inline markdown -------------------------------------------------------------------------

    def _emphasis(self, source: str, index: int) -> int:
        """Runs of * _ ~ around words go; `2*3*4`, `snake_case` and `~5` stay."""
        end = run_end(source, index, self._final)
        if end == WAIT:
            return WAIT
        before = source[index - 1] if index else "\n"
        after = source[end] if end < len(source) else "\n"
        at, count = self._tape.source_base + index, end - index
        if keeps_emphasis(source[index], count, before, after):
            for each in range(index, end):
                self._text(source, each)
        elif before.isspace() or before in _OPENERS:
            self._tape.open(at, count)
        else:
            self._tape.close(at, count)
        return end

    def _backticks(self, source: str, index: int) -> int:
        """Inline code is spoken as it stands, without its backticks."""
        end = run_end(source, index, self._final)
        if end == WAIT:
            return WAIT
        at, count = self._tape.source_base + index, end - index
        if self._code == 0:
            self._code = count
            self._tape.open(at, count)
        else:
            self._code = 0 if count == self._code else self._code
            self._tape.close(at, count)
        return end

    def _bang(self, source: str, index: int) -> int:
        """An image is its description; any other "!" is itself."""
        if index and not source[index - 1].isspace():
            return self._text(source, index)
        if index + 1 == len(source):
            return self._text(source, index) if self._final else WAIT
        step = self._link(source, index + 1, index) if source[index + 1] == "[" else None
        return self._text(source, index) if step is None else step

    def _bracket(self, source: str, index: int) -> int:
        """A link is its label; a footnote mark is nothing; other brackets are text."""
        step = self._link(source, index, index)
        return self._text(source, index) if step is None else step

    def _link(self, source: str, index: int, start: int) -> int | None:
        """The link whose "[" is at `index` and that begins at `start`: where its label begins."""
        link = find_link(source, index, self._final)
        if not isinstance(link, Link):
            return link
        tape = self._tape
        if link.is_footnote:
            tape.close(tape.source_base + start, link.end - start)
            return link.end
        tape.open(tape.source_base + start, index + 1 - start)
        end = tape.source_base + link.end
        self._link_ends[tape.source_base + link.close] = -end if link.is_cut else end
        return index + 1

    def _closer(self, source: str, index: int) -> int:
        """The end of a label takes the link's target with it; other closers are text."""
        tape = self._tape
        at = tape.source_base + index
        end = self._link_ends.pop(at, None)
        if end is None:
            return self._text(source, index)
        if end < 0:
            end = -end
            self._skip = _TARGET_END
        tape.close(at, end - at)
        return end - tape.source_base

    def _skip_on(self, source: str, index: int) -> int:
        """Drop the rest of an over-long address."""
        assert self._skip is not None
        match = self._skip.search(source, index)
        end = len(source) if match is None else match.start()
        if match is not None:
            end += match.group() == ")" and self._skip is _TARGET_END
            self._skip = None
        self._tape.drop(self._tape.source_base + index, end - index)
        return end

    def _entity(self, source: str, index: int) -> int:
        """`&amp;` and its like; nothing that could spell a token."""
        entity = find_entity(source, index, self._final)
        if entity is None:
            return self._text(source, index)
        if isinstance(entity, int):
            return entity
        tape = self._tape
        at, (character, end) = tape.source_base + index, entity
        if character in "<>|":
            tape.drop(at, end - index)
        elif character.isspace():
            tape.space(at)
        else:
            self._literal(character, at)
            tape.extend(tape.source_base + end)
        return end

    def _escape(self, source: str, index: int) -> int:
        """A backslash before a mark makes it text."""
        after = source[index + 1 : index + 2]
        if not after and not self._final:
            return WAIT
        if not after or after not in _ESCAPABLE:
            return self._text(source, index)
        self._tape.open(self._tape.source_base + index, 1)
        return index + 1 if after in "|>" else self._text(source, index + 1)

    def _address(self, source: str, index: int) -> int:
        """A bare URL, up to white space or a mark that cannot be in one."""
        address = find_address(source, index, self._final)
        if address is None:
            return self._text(source, index)
        if not isinstance(address, Address):
            return address
        if address.is_cut:
            self._skip = ADDRESS_END
        tape, text = self._tape, source[index : address.end]
        at = tape.source_base + index
        if self._addresses is Addresses.DROP:
            tape.symbol(at, len(text))
        elif self._addresses is Addresses.KEEP:
            self._put(text, at)
        else:
            start, end = host_span(text)
            tape.open(at, start)
            self._put(text[start:end], at + start)
            tape.close(at + end, len(text) - end)
        return address.end


# Functions, not bound methods: a filter that held its own methods would keep itself, and the text it
# reads, until a late collection.
_Handler = Callable[[MarkupFilter, str, int], int]
_PLAIN_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys(LINE_ENDS, MarkupFilter._line_end),
    "<": MarkupFilter._angle,
}
_MARKUP_HANDLERS: dict[str, _Handler] = {
    **_PLAIN_HANDLERS,
    **dict.fromkeys("*_~", MarkupFilter._emphasis),
    **dict.fromkeys("hHwW", MarkupFilter._address),
    "`": MarkupFilter._backticks,
    "[": MarkupFilter._bracket,
    "]": MarkupFilter._closer,
    ">": MarkupFilter._closer,
    "|": MarkupFilter._bar,
    "!": MarkupFilter._bang,
    "&": MarkupFilter._entity,
    "\\": MarkupFilter._escape,
}
