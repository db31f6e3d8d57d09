"""Where to cut when a segment has become too long and no sentence ends in it."""

from __future__ import annotations

import re

from rtts.text.characters import is_unspaced, joins
from rtts.text.languages import HAN
from rtts.text.tape import BLANKS

# A grapheme longer than this is cut like anything else.
_MAX_GRAPHEME = 32

_NO_START = frozenset(
    "。．，、！？；：）】》〉」』”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ%％)]},.;:!?"
)
_NO_END = frozenset("（【《〈「『“‘([{")
_PHRASE = re.compile(f"[\u3041-\u3096](?=[{HAN}\u30a1-\u30fa])")


def best_cut(text: str, start: int, limit: int, ends: list[int], clauses: list[int]) -> int:
    """Where to end a segment that begins at `start` and may not go beyond `limit`.

    The last sentence end, else clause mark, else white space, else place between ideographs in its
    final two thirds; else any white space; else between graphemes at the limit.

    Args:
        text: Has at least one character beyond `limit`.
        start: Of the segment.
        limit: Largest index it may end at; greater than `start`.
        ends: Ends of sentences found in it, ascending.
        clauses: Ends of clauses found in it, ascending.
    """
    low = start + (limit - start) // 3
    for found in (*reversed(ends), *reversed(clauses)):
        if low < found <= limit:
            return found
    space = _last_space(text, low, limit)
    if space is not None:
        return space
    unspaced = _between_ideographs(text, low, limit)
    if unspaced is not None:
        return unspaced
    space = _last_space(text, start, low)
    return space if space is not None else _between_graphemes(text, start, limit)


def last_word_end(text: str, start: int) -> int | None:
    """Where the last word ends that is certainly whole, in text that may go on; None if none does.

    White space ends words, and in Japanese a Han word after hiragana begins one. In Chinese no
    place is certain.
    """
    end = None
    for match in _PHRASE.finditer(text, start):
        end = match.end()
    spaces = [space for blank in BLANKS if (space := text.rfind(blank, start)) > start]
    return max([*spaces, *([] if end is None else [end])], default=None)


def _last_space(text: str, low: int, limit: int) -> int | None:
    """The last white space in `(low, limit]`."""
    for index in range(limit, low, -1):
        if text[index] in BLANKS:
            return index
    return None


def _between_ideographs(text: str, low: int, limit: int) -> int | None:
    """Between two characters of Chinese or Japanese; after kana and before a Han word if it can be."""
    phrase_low = limit - (limit - low) // 2
    phrase = None
    for match in _PHRASE.finditer(text, phrase_low, limit):
        phrase = match.end()
    if phrase is not None:
        return phrase
    for index in range(limit, low, -1):
        before, after = text[index - 1], text[index]
        if (
            (is_unspaced(before) or is_unspaced(after))
            and before not in _NO_END
            and after not in _NO_START
            and not joins(text, index)
        ):
            return index
    return None


def _between_graphemes(text: str, start: int, limit: int) -> int:
    low = max(start, limit - _MAX_GRAPHEME)
    for index in range(limit, low, -1):
        if not joins(text, index):
            return index
    return limit
