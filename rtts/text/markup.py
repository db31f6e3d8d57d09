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
from rtts.text.characters import EMOJI, EMOJI_GLUE, ZERO_WIDTH_JOINER
from rtts.text.languages import HAN, HANGUL, KANA
from rtts.text.tape import LINE_ENDS, Tape

WAIT = -1

# Longest of each construct. A tag or token longer than 64 is none; a link target of more than
# 2,048 is skipped to its end as it comes (data: URLs); labels are short.
_MAX_TAG = 64
_MAX_LABEL = 160
_MAX_ADDRESS = 2048
_MAX_ENTITY = 8
_MAX_EMPHASIS = 4  # `***` is bold italics, more is decoration
_MAX_BACKTICKS = 64
_MAX_NESTING = 4

# The longest silence one tag may ask for.
_MAX_BREAK_S = 10.0

# Control and format characters that say nothing. Joiners and variation selectors are emoji glue.
_SILENT = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffd\ue000-\uf8ff\ud800-\udfff"
)
_ALWAYS = rf"[{_SILENT}<>|]|[^\S ]|\ {{2,}}"
_PLAIN = re.compile(_ALWAYS)
_MARKUP = re.compile(
    rf"[{_SILENT}<>|*_~`\[\]!&\\{EMOJI}{EMOJI_GLUE}{ZERO_WIDTH_JOINER}]|[^\S ]|\ {{2,}}"
    r"|(?<![A-Za-z0-9@.])(?:[hH](?=[tT]|\Z)|[wW](?=[wW]|\Z))"
)
_SPACES = re.compile(r"[^\S\n\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]+")

# `<|…|>` as tokenizers spell them, and the bare names that Qwen's tokenizers turn into single
# tokens (Qwen3-TTS tokenizer_config.json; Qwen3 adds the tool and thinking tags).
_TOKEN = re.compile(r"<\|[^\s<>|]{0,60}\|>")
_TOKEN_BEGUN = re.compile(r"<(?:\|[^\s<>|]{0,60}\|?)?\Z")
_NAMED = r"/?(?:think|tool_call|tool_response|tts_[a-z_]{1,40})"
_NAMED_TOKEN = re.compile(f"<{_NAMED}>")
_NAMED_BEGUN = re.compile(r"</?[a-z_]{0,44}\Z")

_TAG = re.compile(
    r"""<(?:/?[A-Za-z][\w:.-]*(?:\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>=]+))*\s*/?|![^<>]*)>"""
)
_BREAK_TAG = re.compile(
    r"""<break\b[^<>]*?\btime\s*=\s*["']?\s*([0-9]*\.?[0-9]+)\s*(ms|s)\b""", re.I
)
_LINE_TAG = re.compile(r"</?(?:br|p|div|li|tr|h[1-6]|ul|ol|blockquote)\b", re.I)
_AUTOLINK = re.compile(r"<(?=(?:https?://|www\.|mailto:|[\w.+-]+@)[^\s<>]+>)", re.I)

_SCHEME = re.compile(r"https?://|www\.", re.I)
_SCHEMES = ("http://", "https://", "www.")
_ADDRESS_END = re.compile(
    rf"[{_SILENT}{EMOJI}{EMOJI_GLUE}\s<>\"`|\\^{{}}“”‘’«»„{HAN}{KANA}{HANGUL}\u3000-\u303f\uff00-\uffef…]"
)
_ADDRESS_TAIL = re.compile(r"[.,;:!?'*_~)\]]*\Z")
_HOST = re.compile(r"(?:https?://)?(?:[^\s/?#@]*@)?([^\s/?#:@]+)", re.I)
_TARGET_END = re.compile(r"[\s)]")
_TITLE = re.compile(r"""\s+(?:"[^"\n]*"|'[^'\n]*')\s*\Z""")

_ENTITY = re.compile(r"&(?:([a-z]{2,4})|#([0-9]{1,5})|#x([0-9a-f]{1,4}));", re.I)
_ENTITY_BEGUN = re.compile(r"&#?[A-Za-z0-9]{0,6}\Z")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " "}
_ESCAPABLE = set("\\`*_{}[]()#+-.!|~>\"'$")
_CJK = re.compile(f"[{HAN}{KANA}{HANGUL}\u3000-\u303f\uff00-\uffef]")
_GLUE = f"{EMOJI_GLUE}{ZERO_WIDTH_JOINER}"
_EMOJI = re.compile(f"[{EMOJI}][{EMOJI}{_GLUE}]*|[{_GLUE}]+")


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
        "_at",
        "_cell",
        "_code",
        "_drop_emoji",
        "_final",
        "_handlers",
        "_after_less",
        "_link_ends",
        "_lines",
        "_markup",
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
        self._markup = markup
        self._addresses = addresses
        self._drop_emoji = drop_emoji
        self._special = _MARKUP if markup else _PLAIN
        self._at = 0  # source index of the first character not yet read
        self._final = False  # nothing follows: decide without look-ahead
        self._after_less = False  # the last clean character is a literal "<"
        self._skip: re.Pattern[str] | None = None  # drop everything before the next match
        self._code = 0  # backticks that opened the inline code we are in, or 0
        self._link_ends: dict[int, int] = {}  # source index of a link's "]" -> end of its target
        self._cell = False  # a cell border is due before the next character
        self._lines = LineStart(tape) if markup else None
        handlers: dict[str, Callable[[str, int], int]] = {"<": self._angle, ">": self._greater}
        handlers |= dict.fromkeys(LINE_ENDS, self._line_end)
        if markup:
            handlers |= dict.fromkeys("*_~", self._emphasis) | dict.fromkeys("hHwW", self._address)
            handlers |= {"`": self._backticks, "[": self._bracket, "]": self._unbracket}
            handlers |= {"!": self._bang, "&": self._entity, "\\": self._escape}
        handlers["|"] = self._bar
        self._handlers = handlers

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
        return self._tape.source[self._at - self._tape.source_base :] == "!"

    def begin_line(self) -> None:
        """What comes next stands at the beginning of a line."""
        self._code = 0
        self._cell = False
        if self._lines is not None:
            self._lines.begin()

    def settle(self) -> None:
        """Give up waiting for an image after a lone "!": no more text came for a while."""
        if self.settles:
            self._literal("!", self._at)
            self._at += 1
            self._tape.sync()

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
        if match is None:
            self._plain(source, index, len(source))
            return len(source)
        start = match.start()
        if start > index:
            self._plain(source, index, start)
        if self._code and source[start] in _IN_CODE:
            self._literal(source[start], self._tape.source_base + start)
            return start + 1
        handler = self._handlers.get(source[start])
        step = handler(source, start) if handler else self._other(source, start)
        if step == WAIT and start > index:
            return start  # the plain part is done; the next step waits
        return step

    # --- plain text ------------------------------------------------------------------------------

    def _plain(self, source: str, start: int, end: int) -> None:
        """Text without anything special in it."""
        if self._cell and source[start] == " ":
            start += 1
            if start == end:
                return
        self._put(source[start:end], self._tape.source_base + start)

    def _literal(self, character: str, at: int) -> None:
        """One character that was not special after all."""
        self._put(character, at)
        self._after_less = character == "<"

    def _put(self, text: str, at: int) -> None:
        """Text to be spoken, after what is due before it."""
        if self._cell:
            self._write_cell()
        if self._after_less:
            self._part(text[0], at)
        self._tape.put(text, at)

    def _part(self, character: str, at: int) -> None:
        """Keep a "<" from growing into a token around something that was removed."""
        self._after_less = False
        if character not in _AFTER_LESS:
            self._tape.space(at)

    def _other(self, source: str, index: int) -> int:
        """White space, silent characters and emoji."""
        tape = self._tape
        at = tape.source_base + index
        spaces = _SPACES.match(source, index)
        if spaces is not None:
            if not self._cell:
                tape.space(at)
            self._after_less = False
            return spaces.end()
        if self._markup:
            emoji = _EMOJI.match(source, index)
            if emoji is not None:
                return self._emoji(emoji, at)
        tape.drop(at, 1)
        return index + 1

    def _emoji(self, match: re.Match[str], at: int) -> int:
        """A run of emoji and what joins them; a keycap's digit stays, its glue goes."""
        text = match.group()
        if not self._drop_emoji:
            self._put(text, at)
        elif _PICTURE.search(text) or self._tape.ends_in_symbol():
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
            self._cell = False
        self._after_less = False
        tape.line(at)
        if character == "\u2029":
            tape.line(at)
        return index + 1

    # --- tags and tokens -------------------------------------------------------------------------

    def _angle(self, source: str, index: int) -> int:
        """A control token goes, a tag goes or becomes silence, anything else is a "<"."""
        match = _TOKEN.match(source, index) or _NAMED_TOKEN.match(source, index)
        if match is not None:
            return self._drop_token(match, index)
        window = source[index : index + _MAX_TAG]
        begun = _TOKEN_BEGUN.match(window) or _NAMED_BEGUN.match(window)
        if begun and len(window) < _MAX_TAG and not self._final:
            return WAIT
        if self._markup and not self._code:
            step = self._tag(source, index, window)
            if step is not None:
                return step
        self._literal("<", self._tape.source_base + index)
        return index + 1

    def _drop_token(self, match: re.Match[str], index: int) -> int:
        self._tape.drop(self._tape.source_base + index, match.end() - index)
        return match.end()

    def _tag(self, source: str, index: int, window: str) -> int | None:
        """A tag at `index`: where it ends, WAIT while it may still become one, None if it is none."""
        stop = _TAG_STOP.search(window, 1)
        if stop is None:
            begun = len(window) < _MAX_TAG and not self._final and _TAG_START.match(window)
            return WAIT if begun else None
        if stop.group() != ">":
            return None
        if _AUTOLINK.match(window):
            at = self._tape.source_base + index
            self._tape.open(at, 1)
            self._link_ends[at + stop.start()] = at + stop.end()
            return index + 1
        match = _TAG.match(window)
        if match is None:
            return None
        self._drop_tag(match.group(), index)
        return index + match.end()

    def _drop_tag(self, tag: str, index: int) -> None:
        tape, at = self._tape, self._tape.source_base + index
        silence = _BREAK_TAG.match(tag)
        if silence is not None:
            seconds = float(silence.group(1)) * (0.001 if silence.group(2).lower() == "ms" else 1.0)
            self._cell = False
            tape.boundary(at, min(seconds, _MAX_BREAK_S), len(tag))
        elif _LINE_TAG.match(tag):
            self._cell = False
            tape.line(at)
            tape.drop(at, len(tag))
        elif tag.startswith("</"):
            tape.close(at, len(tag))
        else:
            tape.open(at, len(tag))

    def _greater(self, source: str, index: int) -> int:
        """A ">": the end of an autolink, otherwise itself."""
        at = self._tape.source_base + index
        if self._link_ends.pop(at, None) is not None:
            self._tape.close(at, 1)
        else:
            self._literal(">", at)
        return index + 1

    def _bar(self, source: str, index: int) -> int:
        """A "|": a cell border in a table, otherwise itself."""
        at = self._tape.source_base + index
        if self._lines is not None and self._lines.in_row:
            self._tape.drop(at, 1)
            if self._lines.row_begun(self._tape.length):
                self._cell = True
        else:
            self._literal("|", at)
        return index + 1

    def _write_cell(self) -> None:
        """Put the comma of a cell border, now that another cell follows."""
        self._cell = False
        last = self._tape.last_visible
        self._tape.insert(", " if last.isalnum() or last in "%)\"'”’" else " ")

    # --- inline markdown -------------------------------------------------------------------------

    def _emphasis(self, source: str, index: int) -> int:
        """Runs of * _ ~ around words go; `2*3*4`, `snake_case` and `~5` stay."""
        mark = source[index]
        end = _run_end(source, index, _MAX_EMPHASIS)
        if end == len(source) and not self._final and end - index < _MAX_EMPHASIS:
            return WAIT
        before = source[index - 1] if index else "\n"
        after = source[end] if end < len(source) else "\n"
        at, count = self._tape.source_base + index, end - index
        if _keeps(mark, count, before, after):
            for offset in range(count):
                self._literal(mark, at + offset)
        elif before.isspace() or before in _OPENERS:
            self._tape.open(at, count)
        else:
            self._tape.close(at, count)
        return end

    def _backticks(self, source: str, index: int) -> int:
        """Inline code is spoken as it stands, without its backticks."""
        end = _run_end(source, index, _MAX_BACKTICKS)
        if end == len(source) and not self._final and end - index < _MAX_BACKTICKS:
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
        before = source[index - 1] if index else "\n"
        if before.isspace():
            if index + 1 == len(source):
                if not self._final:
                    return WAIT
            elif source[index + 1] == "[":
                step = self._link(source, index + 1, 2)
                if step is not None:
                    return step
        self._literal("!", self._tape.source_base + index)
        return index + 1

    def _bracket(self, source: str, index: int) -> int:
        """A link is its label; a footnote mark is nothing; other brackets are text."""
        step = self._link(source, index, 1)
        if step is not None:
            return step
        self._literal("[", self._tape.source_base + index)
        return index + 1

    def _link(self, source: str, index: int, opening: int) -> int | None:
        """The link whose "[" is at `index`: where its label begins, WAIT, or None if it is none.

        Args:
            source: The tape's source.
            index: Of the "[", the last of the `opening` characters that begin the link.
            opening: 1, or 2 for an image.
        """
        close = _closing(source, index + 1, _SQUARE, _MAX_LABEL)
        if close == WAIT and not self._final:
            return WAIT
        if close < 0:
            return None
        at = self._tape.source_base + index
        if source[index + 1] == "^":
            self._tape.close(at, close + 1 - index)
            return close + 1
        target = self._target(source, close + 1)
        if target is not None and target != WAIT:
            self._link_ends[self._tape.source_base + close] = self._tape.source_base + target
            self._tape.open(at + 1 - opening, opening)
            return index + 1
        return target

    def _target(self, source: str, index: int) -> int | None:
        """Where the link target "(…)" at `index` ends; WAIT; None if there is none."""
        if index == len(source):
            return None if self._final else WAIT
        if source[index] != "(":
            return None
        close = _closing(source, index + 1, _ROUND, _MAX_ADDRESS)
        if close == WAIT and not self._final:
            return WAIT
        if close >= 0:
            target = _TITLE.sub("", source[index + 1 : close])
            plain = not _BLANK.search(target.strip()) or target.lstrip().startswith("<")
            return close + 1 if plain else None
        begun = source[index + 1 : index + 1 + _MAX_ADDRESS]
        if len(begun) == _MAX_ADDRESS and not _BLANK.search(begun):
            return index + 1 + _MAX_ADDRESS  # a data: URL; the rest is skipped after the label
        return None

    def _unbracket(self, source: str, index: int) -> int:
        """The end of a label takes the link's target with it."""
        at = self._tape.source_base + index
        end = self._link_ends.pop(at, None)
        if end is None:
            self._literal("]", at)
            return index + 1
        self._tape.close(at, end - at)
        if source[end - self._tape.source_base - 1] != ")":
            self._skip = _TARGET_END
        return end - self._tape.source_base

    def _skip_on(self, source: str, index: int) -> int:
        """Drop the rest of an over-long address."""
        assert self._skip is not None
        match = self._skip.search(source, index)
        end = len(source) if match is None else match.start()
        if match is not None:
            end += match.group() == ")"
            self._skip = None
        self._tape.drop(self._tape.source_base + index, end - index)
        return end

    def _entity(self, source: str, index: int) -> int:
        """`&amp;` and its like."""
        match = _ENTITY.match(source, index)
        at = self._tape.source_base + index
        if match is None:
            window = source[index : index + _MAX_ENTITY]
            if len(window) < _MAX_ENTITY and not self._final and _ENTITY_BEGUN.match(window):
                return WAIT
            self._literal("&", at)
            return index + 1
        character = _entity_character(match)
        if character is None:
            self._literal("&", at)
            return index + 1
        if character == " ":
            self._tape.space(at)
        elif character in "<>|":
            self._tape.drop(at, match.end() - index)  # never spell a token
        else:
            self._literal(character, at)
            self._tape.extend(at + match.end() - index)
        return match.end()

    def _escape(self, source: str, index: int) -> int:
        """A backslash before a mark makes it text."""
        if index + 1 == len(source) and not self._final:
            return WAIT
        at = self._tape.source_base + index
        if index + 1 < len(source) and source[index + 1] in _ESCAPABLE:
            self._tape.open(at, 1)
            if source[index + 1] not in "|>":
                self._literal(source[index + 1], at + 1)
                return index + 2
            return index + 1
        self._literal("\\", at)
        return index + 1

    # --- addresses -------------------------------------------------------------------------------

    def _address(self, source: str, index: int) -> int:
        """A bare URL, up to white space or a mark that cannot be in one."""
        match = _SCHEME.match(source, index)
        at = self._tape.source_base + index
        if match is None:
            rest = source[index : index + 8].lower()
            if index + len(rest) == len(source) and not self._final and _begins_scheme(rest):
                return WAIT
            self._literal(source[index], at)
            return index + 1
        end_match = _ADDRESS_END.search(source, match.end(), index + _MAX_ADDRESS)
        end = min(len(source), index + _MAX_ADDRESS) if end_match is None else end_match.start()
        if end_match is None:
            if end < index + _MAX_ADDRESS and not self._final:
                return WAIT
            if end == index + _MAX_ADDRESS:
                self._skip = _ADDRESS_END
        end = _without_tail(source, match.end(), end)
        self._speak_address(source[index:end], at)
        return end

    def _speak_address(self, address: str, at: int) -> None:
        tape = self._tape
        host = _HOST.match(address)
        if self._addresses is Addresses.DROP:
            tape.symbol(at, len(address))
        elif self._addresses is Addresses.KEEP or host is None:
            self._put(address, at)
        else:
            start = host.start(1)
            if start and address[start : start + 4].lower() == "www.":
                start += 4
            if start < host.end(1):
                tape.open(at, start)
                self._put(address[start : host.end(1)], at + start)
                tape.close(at + host.end(1), len(address) - host.end(1))


_IN_CODE = set("*_~[]!&\\hHwW")  # text inside inline code
_AFTER_LESS = set(" 0123456789=<>-+.,;:")  # what "<" may stand before as it is
_SQUARE = re.compile(rf"[\[\]{LINE_ENDS}]")
_ROUND = re.compile(rf"[(){LINE_ENDS}]")
_BLANK = re.compile(r"\s")
_PICTURE = re.compile(f"[{EMOJI}]")
_OPENERS = "([{\"'“‘«„¿¡-–—/*_~`>"
_TAG_START = re.compile(r"<(?:[A-Za-z/!]|\Z)")
_TAG_STOP = re.compile(r"[<>\n\r]")


def _keeps(mark: str, count: int, before: str, after: str) -> bool:
    """Whether a run of emphasis marks between two characters is text."""
    if before == mark or count == _MAX_EMPHASIS:
        return False
    if before.isspace() and after.isspace():
        return count == 1 and mark != "_"
    inside = before.isalnum() and after.isalnum()
    if mark == "_":
        return inside and not (_CJK.match(before) or _CJK.match(after))
    if mark == "~":
        return count == 1 and not before.isalnum()
    if not inside:
        return False
    if before.isdigit() and after.isdigit():
        return True
    return count == 1 and not (_CJK.match(before) or _CJK.match(after))


def _run_end(source: str, index: int, limit: int) -> int:
    """Where the run of the character at `index` ends, `limit` characters on at most."""
    end = index + 1
    while end < len(source) and end - index < limit and source[end] == source[index]:
        end += 1
    return end


def _closing(source: str, start: int, brackets: re.Pattern[str], limit: int) -> int:
    """Where the bracket opened before `start` closes: an index, WAIT for more, or -2 for nowhere."""
    depth = 1
    for match in brackets.finditer(source, start, start + limit):
        character = match.group()
        if character in ")]":
            depth -= 1
            if not depth:
                return match.start()
        elif character in "([":
            depth += 1
            if depth > _MAX_NESTING:
                return -2
        else:
            return -2
    return -2 if len(source) - start >= limit else WAIT


def _begins_scheme(text: str) -> bool:
    return any(scheme.startswith(text) for scheme in _SCHEMES)


def _without_tail(source: str, start: int, end: int) -> int:
    """`end` without closing punctuation; a ")" stays if the address opened it."""
    while end > start:
        tail = _ADDRESS_TAIL.search(source, start, end)
        cut = end if tail is None else tail.start()
        if cut < end and source[cut] == ")" and "(" in source[start:cut]:
            cut += 1
            if source.count("(", start, cut) >= source.count(")", start, cut):
                return cut
            cut -= 1
        return cut
    return end


def _entity_character(match: re.Match[str]) -> str | None:
    name, decimal, hexadecimal = match.groups()
    if name is not None:
        return _ENTITIES.get(name.lower())
    code = int(decimal) if decimal is not None else int(hexadecimal, 16)
    character = chr(code)
    return character if character.isprintable() and not 0xD800 <= code <= 0xDFFF else None
