"""Where a segment may end: what a final mark, a line end or a clause mark at some place means.

Pure functions of clean text. Each looks a bounded distance past the mark and says `WAIT` when what
it needs has not come yet, so a decision never depends on how the text was cut into messages. They
know nothing about lengths, queues or time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from rtts.text.characters import EMOJI, EMOJI_GLUE, ZERO_WIDTH_JOINER, is_unspaced
from rtts.text.languages import HAN, HANGUL, KANA
from rtts.text.sentences import (
    ends_sentence,
    follows_marker,
    is_marker,
    is_risky,
    token_before,
    unfinished,
)
from rtts.text.tape import BREAK, HARD, LINE, SYMBOL

FINAL_MARKS = ".!?…。！？｡．‼⁉"
BULLETS = "•‣▪●⁃"
CLAUSE_MARKS = ",;:—–，、；：﹐､"
OPENERS = "([{（【《〈「『"
CLOSERS = ")]}）】》〉」』"
PAIRS = dict(zip(OPENERS, CLOSERS, strict=True))

# Closing marks and openers after a final mark, spaces included, that are looked through.
_MAX_CLOSERS = 16
_MAX_OPENERS = 16
_MAX_WORD = 24
_MAX_RUN = 256


class Kind(Enum):
    """What a place is."""

    WAIT = "wait"  # more text is needed
    GO_ON = "go on"  # nothing ends here
    CLAUSE = "clause"
    END = "end"


class Horizon(Enum):
    """What follows the text at hand."""

    OPEN = "open"  # more may come at any moment
    QUIET = "quiet"  # nothing came for a while, but more may
    CLOSED = "closed"  # nothing


@dataclass(frozen=True, slots=True)
class View:
    """The text a decision is about.

    Attributes:
        text: Clean text at hand.
        start: Where the current segment begins in it.
        horizon: What follows it.
        latin: The language of its Latin letters.
        fresh: The segment begins where a sentence does.
    """

    text: str
    start: int
    horizon: Horizon
    latin: str
    fresh: bool = True

    @property
    def open(self) -> bool:
        """Whether running out of text means to wait."""
        return self.horizon is Horizon.OPEN


Decision = tuple[Kind, int]  # and where the segment would end, or where to read on

_RUN = re.compile(f"[{FINAL_MARKS}]+")
_ASCII_FINAL = ".!?…"
_WIDE_FINAL = frozenset("。！？｡")
_ALWAYS_CLOSING = frozenset("\"'”’»›)]}』」》】）〉*_~`")
_CITATION = re.compile(r"(?: ?\[[0-9]{1,3}(?:[,–-] ?[0-9]{1,3})*\]){1,8}")
_CITATION_BEGUN = re.compile(
    r"(?: ?\[[0-9]{1,3}(?:[,–-] ?[0-9]{1,3})*\]){0,8} ?(?:\[[0-9,–\- ]{0,12}\]?)?\Z"
)
_SMILEY = re.compile(r" [:;=8][-o'^]?[()DPpOo/\\|*](?![^\s])")
_SMILEY_BEGUN = re.compile(r" [:;=8][-o'^]?[()DPpOo/\\|*]?\Z")
_PICTURES = re.compile(
    f" ?[{SYMBOL}{EMOJI}](?: ?[{SYMBOL}{EMOJI}]|[{EMOJI_GLUE}{ZERO_WIDTH_JOINER}])*"
)
_BLANKS = re.compile(f"[ {LINE}{HARD}]*")
_LOOK_THROUGH = re.compile(
    rf"[ \"'“”‘’«»„‹›(\[{{¿¡—–\-−*_#>`~•·⁃「『（【《〈…{SYMBOL}{LINE}{HARD}]*"
)
_WORD_END = re.compile(r"[\s.,;:!?…)\]}\"”»'’—–\x1d\x1a\x1e]")
_GOES_ON_JA = re.compile(r"[」』][とっなのはがをにもで]")
_QUOTES = frozenset("\"'“”‘’«»„`")
_SPANISH_OPENERS = frozenset("¿¡")
_NO_START = frozenset(",;:，、；：)]}）】》〉」』”’%％")


def read_final_mark(view: View, index: int) -> Decision:
    """What the run of final marks that begins at `index` means."""
    text, length = view.text, len(view.text)
    end = _run_end(view, index)
    if end is None:
        return Kind.WAIT, index
    cut = _after_closers(view, index, end)
    if cut is None:
        return Kind.WAIT, index
    run = text[index:end]
    wide = not _WIDE_FINAL.isdisjoint(run)
    if cut == length:
        if view.open:
            return Kind.WAIT, index
        if wide or _worth_ending(view, index, run):
            return Kind.END, cut
        return Kind.GO_ON, cut
    if wide:
        return _after_wide(text, cut, end)
    following = text[cut]
    if run[0] == "．" and following.isalnum():
        return (Kind.GO_ON if following.isdigit() else Kind.END), cut
    if following.isspace() or following == BREAK:
        return _after_blank(view, index, run, cut)
    if following == SYMBOL or is_unspaced(following):
        return _before_unspaced(view, index, run, cut)
    return Kind.GO_ON, cut


def _run_end(view: View, index: int) -> int | None:
    """Where the run of final marks ends, `. . .` and ` ! ? ` included; None to wait."""
    text, length = view.text, len(view.text)
    match = _RUN.match(text, index, index + _MAX_RUN)
    assert match is not None
    end = match.end()
    while end < length and text[end] == " " and end - index < _MAX_RUN:
        if end + 1 == length or text[end + 1] not in _ASCII_FINAL:
            break
        match = _RUN.match(text, end + 1)
        assert match is not None
        if match.end() == length and view.open:
            return None
        if match.end() < length and text[match.end()].isalnum():
            break  # ". .NET"
        end = match.end()
    return None if end == length and view.open else end


def _after_closers(view: View, index: int, end: int) -> int | None:
    """Where the closing quotes, brackets, footnotes and emoji after a run end; None to wait."""
    text, length = view.text, len(view.text)
    cut = end
    while cut < length and cut - end < _MAX_CLOSERS:
        closes = _closes(view, index, cut)
        if closes is None:
            return None
        if not closes:
            break
        cut += 1
    if cut == length:
        return None if view.open else cut
    for pattern, begun in ((_CITATION, _CITATION_BEGUN), (_SMILEY, _SMILEY_BEGUN)):
        if text[cut] in " [":
            if view.open and begun.match(text, cut) and text[cut:] != " ":
                return None  # a space alone waits further down, for whatever comes
            match = pattern.match(text, cut)
            if match is not None:
                cut = match.end()
                if cut == length:
                    return None if view.open else cut
    spaced = _spaced_closer(view, index, cut)
    if spaced is None:
        return None
    pictures = _PICTURES.match(text, spaced)
    cut = spaced if pictures is None else pictures.end()
    if view.open and text[cut:] in ("", " "):
        return None
    return cut


def _closes(view: View, index: int, cut: int) -> bool | None:
    """Whether the mark at `cut`, after a final mark, closes something; None to wait."""
    text, start = view.text, view.start
    mark = text[cut]
    if mark in _ALWAYS_CLOSING:
        return True
    if mark == "“":  # closes in German, opens elsewhere; a blank after it tells
        if text.rfind("„", start, index) > text.rfind("“", start, index):
            return True
        if cut + 1 == len(text):
            return None if view.open else True
        return text[cut + 1].isspace()
    if mark == "«":  # closes where »…« is the custom
        return text.rfind("»", start, index) > text.rfind("«", start, index)
    return False


def _spaced_closer(view: View, index: int, cut: int) -> int | None:
    """Past a closing quote that a space parts from the mark: French ` »`, tokenised ` ''`."""
    text, length = view.text, len(view.text)
    if text[cut] != " " or cut + 1 == length:
        return cut
    quote = text[cut + 1]
    if quote == "»":
        return cut + 2 if _is_open_guillemet(view, index) else cut
    if quote not in "\"'":
        return cut
    end = cut + 2
    if end < length and text[end] == quote:
        end += 1
    if end == length:
        return None if view.open else end
    if not text[end].isspace() or not _is_open_quote(text[view.start : index], text[cut + 1 : end]):
        return cut
    return end


def _is_open_guillemet(view: View, index: int) -> bool:
    """Whether a « that opens (it stands after white space) waits for its »."""
    opener = view.text.rfind("«", view.start, index)
    if opener < 0 or opener < view.text.rfind("»", view.start, index):
        return False
    return opener == view.start or not view.text[opener - 1].isalnum()


def _is_open_quote(left: str, quote: str) -> bool:
    """Whether a quote made of straight marks is open at the end of `left`."""
    if quote == "'":
        return len(re.findall(r"(?:^|\s)['`]", left)) > len(re.findall(r"['`](?:\s|$)", left))
    return left.count(quote) % 2 == 1


def _after_wide(text: str, cut: int, end: int) -> Decision:
    """A 。！？ ends unless what follows belongs to it."""
    if text[cut] in _NO_START:
        return Kind.GO_ON, cut
    if cut > end and _GOES_ON_JA.match(text, cut - 1):
        return Kind.GO_ON, cut
    return Kind.END, cut


def _before_unspaced(view: View, index: int, run: str, cut: int) -> Decision:
    """ASCII marks, an ellipsis or a full-width stop with an ideograph, kana or emoji after them."""
    text = view.text
    following = text[cut]
    if following in _NO_START:
        return Kind.GO_ON, cut
    if run.strip("…") == "" or run.count(".") > 1:
        return (Kind.CLAUSE, cut)
    if run == "." and following not in SYMBOL:
        begin, _ = token_before(text, view.start, index)
        if not text[begin:index] or text[begin:index].isdigit():
            return Kind.GO_ON, cut
        if not ends_sentence(text[view.start : index], text[begin:index], "", view.latin):
            return Kind.GO_ON, cut
    return Kind.END, cut


def _after_blank(view: View, index: int, run: str, cut: int) -> Decision:
    """ASCII marks with white space after them: the next word decides."""
    text, length = view.text, len(view.text)
    blanks = _BLANKS.match(text, cut)
    assert blanks is not None
    if text[cut] == BREAK or (blanks.end() < length and text[blanks.end()] == BREAK):
        return Kind.END, cut
    if LINE in blanks.group() or HARD in blanks.group():
        if run == "." and _is_marker(view, index):
            return Kind.GO_ON, cut
        return Kind.END, cut
    through = _LOOK_THROUGH.match(text, blanks.end(), blanks.end() + _MAX_OPENERS)
    assert through is not None
    first = through.end()
    if first == length:
        if view.open:
            return Kind.WAIT, index
        return (Kind.END if _worth_ending(view, index, run) else Kind.GO_ON), cut
    if text[blanks.end()] in _NO_START:
        return Kind.GO_ON, cut
    closed = not _QUOTES.isdisjoint(text[index + len(run) : cut])
    if closed and text[blanks.end()] in _QUOTES:
        return Kind.END, cut  # one speaker after the other
    lower = text[first].islower()
    if lower and not _ALWAYS_CLOSING.isdisjoint(text[index + len(run) : cut]):
        return Kind.GO_ON, cut  # "Stop!" and left
    if text[first] in _NO_WORD:
        return Kind.GO_ON, cut
    if not _SPANISH_OPENERS.isdisjoint(text[blanks.end() : first]):
        return Kind.END, cut
    if run == ".":
        return _judge(view, index, cut, blanks.end(), first)
    if "!" in run or "?" in run:
        dash = text[blanks.end()] in "-–—"  # "? — спросила"
        return (Kind.GO_ON if lower and (dash or not _is_casual(view)) else Kind.END), cut
    if text[index - 1 : index] in ("(", "[") or lower:
        return (Kind.CLAUSE if "…" in run else Kind.GO_ON), cut
    if text[first] == "I" and view.latin in ("", "en"):  # goes on more often than not
        if first + 1 == length and view.open:
            return Kind.WAIT, index
        if text[first : first + 2] in ("I", "I ", "I'", "I’"):
            return (Kind.CLAUSE if "…" in run else Kind.GO_ON), cut
    return Kind.END, cut


def _judge(view: View, index: int, cut: int, blank_end: int, first: int) -> Decision:
    """A single full stop before white space, then marks from `blank_end`, a word from `first` on."""
    text = view.text
    begin, _ = token_before(text, view.start, index)
    if follows_marker(text[view.start : begin], text[begin:index]):
        return Kind.END, begin
    if _is_marker(view, index):
        return Kind.GO_ON, cut
    token = text[begin:index].strip()
    following = text[first]
    if is_risky(token) and not is_unspaced(following):
        end = _WORD_END.search(text, first, first + _MAX_WORD)
        if end is None and len(text) < first + _MAX_WORD and view.open:
            return Kind.WAIT, index
        following = text[first : first + _MAX_WORD if end is None else end.start()] or following
    if following.islower() and text[blank_end] == "(":
        if view.open and _ITEM_BEGUN.match(text, blank_end):
            return Kind.WAIT, index
        if _LETTERED.match(text, blank_end):
            following = "The"
    if ends_sentence(text[view.start : index], token, following, view.latin):
        return Kind.END, cut
    return Kind.GO_ON, cut


def _worth_ending(view: View, index: int, run: str) -> bool:
    """Whether a mark with nothing after it is to be taken for the end of a sentence."""
    if view.horizon is Horizon.CLOSED or run != ".":
        return view.horizon is Horizon.CLOSED or "!" in run or "?" in run
    if _is_marker(view, index):
        return False
    begin, _ = token_before(view.text, view.start, index)
    token = view.text[begin:index].strip()
    return not unfinished(view.text[view.start : index], token, view.latin)


def _is_marker(view: View, index: int) -> bool:
    """Whether the stop at `index` belongs to a list marker that begins the segment or its line."""
    return view.fresh and is_marker(view.text[view.start : index])


def _is_casual(view: View) -> bool:
    """Whether this writer does not begin sentences with a capital."""
    if not view.fresh:
        return False
    for character in view.text[view.start : view.start + 64]:
        if character.isalpha():
            return character.islower()
    return False


# --- lines and clauses ---------------------------------------------------------------------------

_ITEM = re.compile(
    r"(?:[-*+•◦‣▪●·⁃|#>]|[A-Za-z0-9]{1,4}[.)])(?:\s|\Z)|[|•#>(]|\([A-Za-z0-9]{1,4}\)"
)
_LETTERED = re.compile(r"\([A-Za-z0-9]{1,4}\)")
_NO_WORD = frozenset("/+=|\\×÷^%")
_ITEM_BEGUN = re.compile(r"[A-Za-z0-9]{1,4}[.)]?\Z|\([A-Za-z0-9]{0,4}\Z|[-*+]\Z")


def read_line_end(view: View, index: int) -> Decision:
    """What the line end at `index` means: the end of a segment, or a space."""
    text, length = view.text, len(view.text)
    blanks = _BLANKS.match(text, index)
    assert blanks is not None
    end = blanks.end()
    if HARD in blanks.group() or blanks.group().count(LINE) > 1:
        return Kind.END, index
    if end == length:
        return (Kind.WAIT, index) if view.open else (Kind.END, index)
    if text[end] in BREAK + SYMBOL:
        return Kind.END, index
    through = _LOOK_THROUGH.match(text, end, end + _MAX_OPENERS)
    assert through is not None
    first = through.end()
    if first == length:
        return (Kind.WAIT, index) if view.open else (Kind.END, index)
    if not text[first].islower():
        return Kind.END, index
    if view.open and _ITEM_BEGUN.match(text, end):
        return Kind.WAIT, index
    return (Kind.END if _ITEM.match(text, end) else Kind.GO_ON), end


def read_bullet(view: View, index: int) -> Decision:
    """A bullet in the middle of a line begins an item; the one before ends."""
    if index == view.start or not view.text[index - 1].isspace():
        return Kind.GO_ON, index + 1
    return Kind.END, index


def read_closing_bracket(view: View, index: int) -> Decision:
    """`b)` after an item that began with `a)` begins the next item."""
    begin, _ = token_before(view.text, view.start, index)
    if follows_marker(view.text[view.start : begin], view.text[begin:index]):
        return Kind.END, begin
    return Kind.GO_ON, index + 1


def is_blank_line(text: str, index: int) -> bool | None:
    """Whether a blank line follows `index`, where a segment ends; None while that is not known."""
    blanks = _BLANKS.match(text, index)
    assert blanks is not None
    if blanks.group().count(LINE) > 1:
        return True
    return None if LINE in blanks.group() and blanks.end() == len(text) else False


_WIDE_CLAUSE = "，、；：﹐､"
_CLAUSE_CLOSERS = re.compile(r"[\"'”’»)\]}』」》】）〉*_~`—]{0,16}")


def read_clause_mark(view: View, index: int) -> Decision:
    """What the mark at `index` means: the end of a clause, or part of a token."""
    text, length = view.text, len(view.text)
    match = _CLAUSE_CLOSERS.match(text, index + 1)
    assert match is not None
    cut = match.end()
    if cut == length:
        return (Kind.WAIT, index) if view.open else (Kind.GO_ON, cut)
    if text[index] in _WIDE_CLAUSE:
        return Kind.CLAUSE, cut
    if text[index] == "—":
        closed = text[cut] in FINAL_MARKS or text[cut] in CLAUSE_MARKS
        return (Kind.GO_ON if closed or index == view.start else Kind.CLAUSE), cut
    if not text[cut].isspace() and text[cut] != BREAK:
        return Kind.GO_ON, index + 1
    if text[index] == "–" and (index == view.start or text[index - 1] != " "):
        return Kind.GO_ON, cut
    return Kind.CLAUSE, cut
