"""Where a segment may end: what a final mark, a line end or a clause mark at some place means.

Pure functions of clean text. Each looks a bounded distance past the mark and says `WAIT` when what
it needs has not come yet, so a decision never depends on how the text was cut into messages. They
know nothing about lengths, queues or time.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from rtts.text.characters import is_unspaced
from rtts.text.marks import CLOSING_MARKS, FINAL_MARKS, QUOTES, Horizon, View, closers_end, run_end
from rtts.text.sentences import (
    ends_sentence,
    follows_marker,
    is_marker,
    is_risky,
    token_before,
    unfinished,
)
from rtts.text.tape import BREAK, HARD, LINE, SYMBOL

CLAUSE_MARKS = ",;:—–，、；：﹐､"
BULLETS = "•‣▪●⁃"


class Kind(Enum):
    """What a place is."""

    WAIT = "wait"  # more text is needed
    GO_ON = "go on"  # nothing ends here
    CLAUSE = "clause"
    END = "end"


Decision = tuple[Kind, int]  # and where the segment would end, or where to read on


class _Stop(NamedTuple):
    """A run of final marks with white space after it.

    Attributes:
        begin: Where the run begins.
        run: The marks.
        cut: Where the segment would end, closing quotes included.
        blank_end: Where the white space after it ends.
        first: The first letter after that, quotes and dashes looked through.
    """

    begin: int
    run: str
    cut: int
    blank_end: int
    first: int


# Marks looked through on the way to the next word, and letters of that word looked at.
_MAX_LOOK_THROUGH = 16
_MAX_WORD = 24

# Where sentences begin with capitals, a stop after so few letters and before a small one
# abbreviates.
_MAX_ABBREVIATION = 6

_WIDE_FINAL = frozenset("。！？｡")
_SPANISH_OPENERS = frozenset("¿¡")
_ASIDES = frozenset("）】》〉")
_NO_START = frozenset(",;:，、；：)]}）】》〉」』”’%％")
_NO_WORD = frozenset("/+=|\\×÷^%")
_BLANKS = re.compile(f"[ {LINE}{HARD}]*")
_LOOK_THROUGH = re.compile(
    rf"[ \"'“”‘’«»„‹›(\[{{¿¡—–\-−*_#>`~•·⁃「『（【《〈…{SYMBOL}{LINE}{HARD}]*"
)
_WORD_END = re.compile(r"[\s.,;:!?…)\]}\"”»'’—–\x1d\x1a\x1e]")
_GOES_ON_JA = re.compile(r"[」』][とっなのはがをにもで]")
_LETTERED = re.compile(r"\([a-z]{1,4}\)|[a-z][.)]\s")
_LETTER_BEGUN = re.compile(r"\([a-z]{0,4}\Z|[a-z][.)]?\Z")
_ITEM = re.compile(
    r"(?:[-*+•◦‣▪●·⁃|#>]|[A-Za-z0-9]{1,4}[.)])(?:\s|\Z)|[|•#>(]|\([A-Za-z0-9]{1,4}\)"
)
_ITEM_BEGUN = re.compile(r"[A-Za-z0-9]{1,4}[.)]?\Z|\([A-Za-z0-9]{0,4}\Z|[-*+]\Z")


def read_final_mark(view: View, index: int) -> Decision:
    """What the run of final marks that begins at `index` means."""
    text = view.text
    end = run_end(view, index)
    cut = None if end is None else closers_end(view, index, end)
    if end is None or cut is None:
        return Kind.WAIT, index
    run = text[index:end]
    wide = not _WIDE_FINAL.isdisjoint(run)
    if cut == len(text):
        return (Kind.END if wide or _worth_ending(view, index, run) else Kind.GO_ON), cut
    following = text[cut]
    if following == BREAK:
        return Kind.GO_ON, cut  # the break ends it
    if wide:
        return _after_wide(text, cut, end)
    if run[0] == "．" and following.isalnum():
        return (Kind.GO_ON if following.isdigit() else Kind.END), cut
    if following.isspace():
        return _after_blank(view, index, run, cut)
    if following == SYMBOL or is_unspaced(following):
        return _before_unspaced(view, index, run, cut)
    return Kind.GO_ON, cut


def _after_wide(text: str, cut: int, end: int) -> Decision:
    """A 。！？ ends unless what follows belongs to it."""
    if text[cut] in _NO_START:
        return Kind.GO_ON, cut
    if cut > end and (text[cut - 1] in _ASIDES or _GOES_ON_JA.match(text, cut - 1)):
        return Kind.GO_ON, cut  # 《吧！》好吗, 「行こう！」と
    return Kind.END, cut


def _before_unspaced(view: View, index: int, run: str, cut: int) -> Decision:
    """ASCII marks or an ellipsis with an ideograph, kana or emoji right after them."""
    text = view.text
    if text[cut] in _NO_START:
        return Kind.GO_ON, cut
    if run.strip("…") == "" or run.count(".") > 1:
        return Kind.CLAUSE, cut
    if run == "." and text[cut] != SYMBOL:
        token = text[token_before(text, view.start, index) : index]
        left = text[view.start : index]
        if not token or token.isdecimal() or not ends_sentence(left, token, "", view.latin):
            return Kind.GO_ON, cut
    return Kind.END, cut


# --- marks before white space --------------------------------------------------------------------


def _after_blank(view: View, index: int, run: str, cut: int) -> Decision:
    """ASCII marks with white space after them: the next word decides."""
    text = view.text
    blank_end = _end(_BLANKS, text, cut)
    if LINE in text[cut:blank_end] or HARD in text[cut:blank_end]:
        marker = run == "." and view.fresh and is_marker(text[view.start : index])
        return (Kind.GO_ON if marker else Kind.END), cut
    if text[blank_end : blank_end + 1] == BREAK:
        return Kind.GO_ON, cut  # the break ends it
    first = _end(_LOOK_THROUGH, text, blank_end, blank_end + _MAX_LOOK_THROUGH)
    if first == len(text):
        if view.open:
            return Kind.WAIT, index
        return (Kind.END if _worth_ending(view, index, run) else Kind.GO_ON), cut
    stop = _Stop(index, run, cut, blank_end, first)
    decision = _by_neighbours(view, stop)
    if decision is not None:
        return decision
    if run == ".":
        return _judge(view, stop)
    if "!" in run or "?" in run:
        return _after_exclamation(view, stop)
    return _after_ellipsis(view, stop)


def _by_neighbours(view: View, stop: _Stop) -> Decision | None:
    """What the marks around the white space say, before any word is looked at."""
    text = view.text
    after, closers = text[stop.blank_end], text[stop.begin + len(stop.run) : stop.cut]
    if after in _NO_START or text[stop.first] in _NO_WORD:
        return Kind.GO_ON, stop.cut
    if after in QUOTES and not QUOTES.isdisjoint(closers):
        return Kind.END, stop.cut  # one speaker after the other
    if text[stop.first].islower() and not CLOSING_MARKS.isdisjoint(closers):
        return Kind.GO_ON, stop.cut  # "Stop!" and left
    if not _SPANISH_OPENERS.isdisjoint(text[stop.blank_end : stop.first]):
        return Kind.END, stop.cut
    return None


def _after_exclamation(view: View, stop: _Stop) -> Decision:
    """`!` and `?` end unless the sentence goes on in lower case: "What?" — he said."""
    if not view.text[stop.first].islower():
        return Kind.END, stop.cut
    dash = view.text[stop.blank_end] in "-–—"
    return (Kind.GO_ON if dash or not view.casual else Kind.END), stop.cut


def _after_ellipsis(view: View, stop: _Stop) -> Decision:
    """`...` and `…` end before a capital, except "I", which goes on more often than not."""
    text, first = view.text, stop.first
    goes_on = Kind.CLAUSE if "…" in stop.run else Kind.GO_ON
    if text[first].islower() or text[stop.begin - 1 : stop.begin] in ("(", "["):
        return goes_on, stop.cut
    if text[first] == "I" and view.latin in ("", "en"):
        if first + 1 == len(text) and view.open:
            return Kind.WAIT, stop.begin
        if text[first + 1 : first + 2] in ("", " ", "'", "’"):
            return goes_on, stop.cut
    return Kind.END, stop.cut


def _judge(view: View, stop: _Stop) -> Decision:
    """A single full stop before white space and a word."""
    text, index = view.text, stop.begin
    begin = token_before(text, view.start, index)
    left = text[view.start : index]
    if view.fresh:
        if follows_marker(text[view.start : begin], text[begin:index]):
            return Kind.END, begin
        if is_marker(left):
            return Kind.GO_ON, stop.cut
    token = text[begin:index].strip()
    following = _following(view, stop, token)
    if following is None:
        return Kind.WAIT, index
    if following[0].islower() and not view.casual and len(token) <= _MAX_ABBREVIATION:
        return Kind.GO_ON, stop.cut
    return (Kind.END if ends_sentence(left, token, following, view.latin) else Kind.GO_ON), stop.cut


def _following(view: View, stop: _Stop, token: str) -> str | None:
    """As much of the next word as it takes to judge a stop after `token`; None to wait."""
    text, first = view.text, stop.first
    following = text[first]
    if is_risky(token) and not is_unspaced(following):
        end = _WORD_END.search(text, first, first + _MAX_WORD)
        if end is None and len(text) < first + _MAX_WORD and view.open:
            return None
        following = text[first : first + _MAX_WORD if end is None else end.start()] or following
    if following.islower() and (first == stop.blank_end or text[stop.blank_end] == "("):
        if view.open and _LETTER_BEGUN.match(text, stop.blank_end):
            return None
        if _LETTERED.match(text, stop.blank_end):  # "(b)" and "b." begin one like any capital
            return "The" if first == stop.blank_end else "(The"
    return following


def _worth_ending(view: View, index: int, run: str) -> bool:
    """Whether a mark with nothing after it is to be taken for the end of a sentence."""
    if view.horizon is Horizon.CLOSED or "!" in run or "?" in run:
        return True
    left = view.text[view.start : index]
    if run != "." or (view.fresh and is_marker(left)):
        return False
    token = view.text[token_before(view.text, view.start, index) : index].strip()
    return not unfinished(left, token, view.latin)


def _end(pattern: re.Pattern[str], text: str, start: int, limit: int | None = None) -> int:
    """Where a match of `pattern` at `start` ends; `start` if there is none."""
    match = pattern.match(text, start, len(text) if limit is None else limit)
    return start if match is None else match.end()


# --- lines, items and clauses --------------------------------------------------------------------


def read_line_end(view: View, index: int) -> Decision:
    """What the line end at `index` means: the end of a segment, or a space."""
    text, length = view.text, len(view.text)
    end = _end(_BLANKS, text, index)
    if is_certain_line_end(text[index:end]):
        return Kind.END, index
    first = _end(_LOOK_THROUGH, text, end, end + _MAX_LOOK_THROUGH)
    if first == length and text[end : end + 1] != SYMBOL:
        return (Kind.WAIT, index) if view.open else (Kind.END, index)
    if text[end] in BREAK + SYMBOL or not text[first].islower():
        return Kind.END, index
    if view.open and _ITEM_BEGUN.match(text, end):
        return Kind.WAIT, index
    return (Kind.END, index) if _ITEM.match(text, end) else (Kind.GO_ON, end)


def is_certain_line_end(blanks: str) -> bool:
    """Whether white space ends a line whatever comes next: a blank line, or an item's end."""
    return HARD in blanks or blanks.count(LINE) > 1


def is_blank_line(text: str, index: int) -> bool | None:
    """Whether a blank line follows `index`, where a segment ends; None while that is not known."""
    end = _end(_BLANKS, text, index)
    if text.count(LINE, index, end) > 1:
        return True
    return None if end == len(text) and text.count(LINE, index, end) else False


def read_bullet(view: View, index: int) -> Decision:
    """A bullet in the middle of a line begins an item; the one before ends."""
    if index == view.start or not view.text[index - 1].isspace():
        return Kind.GO_ON, index + 1
    return Kind.END, index


def read_closing_bracket(view: View, index: int) -> Decision:
    """`b)` after an item that began with `a)` begins the next item."""
    begin = token_before(view.text, view.start, index)
    if view.fresh and follows_marker(view.text[view.start : begin], view.text[begin:index]):
        return Kind.END, begin
    return Kind.GO_ON, index + 1


_WIDE_CLAUSE = "，、；：﹐､"
_CLAUSE_CLOSERS = re.compile(r"[\"'”’»)\]}』」》】）〉*_~`—]{0,16}")


def read_clause_mark(view: View, index: int) -> Decision:
    """What the mark at `index` means: the end of a clause, or part of a token."""
    text, length = view.text, len(view.text)
    cut = _end(_CLAUSE_CLOSERS, text, index + 1)
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
