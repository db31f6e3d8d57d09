"""Runs of final marks and what closes after them: how far `?!" [3]` goes.

Pure functions of clean text. Each looks a bounded distance ahead and returns None when what it
needs has not come yet.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from rtts.text.characters import EMOJI, EMOJI_GLUE, ZERO_WIDTH_JOINER
from rtts.text.tape import SYMBOL

FINAL_MARKS = ".!?…。！？｡．‼⁉"
CLOSING_MARKS = frozenset("\"'”’»›)]}』」》】）〉*_~`")
QUOTES = frozenset("\"'“”‘’«»„`")

# A run longer than any segment, and closers longer than anyone writes, are text.
_MAX_RUN = 256
_MAX_CLOSERS = 16

_RUN = re.compile(rf"[{FINAL_MARKS}]++(?: [.!?…]++(?!\w))*")  # but not into " .NET"
_NUMBERS = r"[0-9]{1,3}(?:[,–-] ?[0-9]{1,3})*"
_CITATION = re.compile(rf"(?: ?\[{_NUMBERS}\]){{1,8}}")
_CITATION_BEGUN = re.compile(rf"(?: ?\[{_NUMBERS}\]){{0,8}} ?(?:\[[0-9,–\- ]{{0,12}}\]?)?\Z")
_SMILEY = re.compile(r" [:;=8][-o'^]?[()DPpOo/\\|*](?!\S)")
_SMILEY_BEGUN = re.compile(r" [:;=8][-o'^]?[()DPpOo/\\|*]?\Z")
_PICTURE = f"[{SYMBOL}{EMOJI}]"
_PICTURES = re.compile(f" ?{_PICTURE}(?: ?{_PICTURE}|[{EMOJI_GLUE}{ZERO_WIDTH_JOINER}])*")
_OPEN_QUOTE = re.compile(r"(?:^|\s)['`]")
_CLOSE_QUOTE = re.compile(r"['`](?:\s|$)")


class Horizon(Enum):
    """What follows the text at hand."""

    OPEN = "open"  # more may come at any moment
    QUIET = "quiet"  # nothing came for a while, but more may
    CLOSED = "closed"  # nothing


class View(NamedTuple):
    """The text a decision is about.

    Attributes:
        text: Clean text at hand.
        start: Where the current segment begins in it.
        horizon: What follows it.
        latin: The language of its Latin letters; "" while it is not known.
        fresh: The segment begins where a sentence does.
        casual: The sentence does not begin with a capital, so the next one may not either.
    """

    text: str
    start: int
    horizon: Horizon
    latin: str
    fresh: bool
    casual: bool

    @property
    def open(self) -> bool:
        """Whether running out of text means to wait."""
        return self.horizon is Horizon.OPEN


def run_end(view: View, index: int) -> int | None:
    """Where the run of final marks at `index` ends, spaced ones (`. . .`, ` ! ?`) included."""
    match = _RUN.match(view.text, index, index + _MAX_RUN)
    assert match is not None
    end = match.end()
    return None if end == len(view.text) and view.open else end


def closers_end(view: View, index: int, end: int) -> int | None:
    """Where the quotes, brackets, citations and emoji end that close after a run.

    Args:
        view: The text.
        index: Where the run of final marks begins.
        end: Where it ends; there is text beyond, unless nothing follows at all.
    """
    length = len(view.text)
    cut: int | None = _tight_closers_end(view, index, end)
    for pattern, begun in ((_CITATION, _CITATION_BEGUN), (_SMILEY, _SMILEY_BEGUN)):
        if cut is not None and cut < length:
            cut = _suffix_end(view, cut, pattern, begun)
    if cut is not None and cut < length:
        cut = _spaced_quote_end(view, index, cut)
    if cut is None:
        return None
    pictures = _PICTURES.match(view.text, cut)
    cut = cut if pictures is None else pictures.end()
    if view.open and (cut == length or (cut + 1 == length and view.text[cut] == " ")):
        return None
    return cut


def _tight_closers_end(view: View, index: int, end: int) -> int | None:
    """Past the closing marks that stand right after the run."""
    length = len(view.text)
    cut = end
    while cut < length and cut - end < _MAX_CLOSERS:
        closes = _closes(view, index, cut)
        if closes is None:
            return None
        if not closes:
            break
        cut += 1
    return None if cut == length and view.open else cut


def _closes(view: View, index: int, cut: int) -> bool | None:
    """Whether the mark at `cut`, after a final mark, closes something."""
    text, start = view.text, view.start
    mark = text[cut]
    if mark in CLOSING_MARKS:
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


def _suffix_end(
    view: View, cut: int, pattern: re.Pattern[str], begun: re.Pattern[str]
) -> int | None:
    """Past a suffix such as ` [12]`; None while what is there may still become one."""
    text, length = view.text, len(view.text)
    if text[cut] not in " [" or (cut + 1 == length and text[cut] == " "):
        return cut  # a space alone waits further on, for whatever comes
    if view.open and begun.match(text, cut):
        return None
    match = pattern.match(text, cut)
    return cut if match is None else match.end()


def _spaced_quote_end(view: View, index: int, cut: int) -> int | None:
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
        return len(_OPEN_QUOTE.findall(left)) > len(_CLOSE_QUOTE.findall(left))
    return left.count(quote) % 2 == 1
