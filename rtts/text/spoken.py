"""From a piece of clean text to what the engine is given, with the way back to the input."""

from __future__ import annotations

import re

from rtts.text.characters import is_unspaced
from rtts.text.tape import BLANKS, BREAK, HARD, LINE, SYMBOL, Tape

_MARKED = re.compile(f"[{LINE}{HARD}{BREAK}{SYMBOL}]| ,")
_STRIPPED = f"{BLANKS}{BREAK}{SYMBOL}<"
_BLANK = frozenset(BLANKS + BREAK)
_FOLLOWS_WORD = frozenset(".,;:!?…)]}»”’%。，、！？；：）】》」』")
_CLAUSE = frozenset(",;:，、；：")
_FINAL = frozenset(".!?…。！？")


def render(tape: Tape, start: int, end: int) -> tuple[str, tuple[int, ...]]:
    """What to speak for the clean text `[start, end)`.

    Returns:
        The text, and for each of its characters the index of the input it came from (not
        decreasing). Both are empty where there is nothing to say.
    """
    clean = tape.text[start - tape.base : end - tape.base]
    left = len(clean) - len(clean.lstrip(_STRIPPED))
    clean = clean.strip(_STRIPPED)
    if not any(map(str.isalnum, clean)):
        return "", ()
    sources = tape.sources(start + left, start + left + len(clean))
    if _MARKED.search(clean) is None:
        return clean, tuple(sources)
    return _without_marks(clean, sources)


def _without_marks(clean: str, sources: list[int]) -> tuple[str, tuple[int, ...]]:
    """Join lines, and close the gaps that unspeakable things left."""
    out: list[str] = []
    came_from: list[int] = []
    after_symbol = False
    for index, character in enumerate(clean):
        if character == SYMBOL:
            after_symbol = True
            continue
        if character in _BLANK:
            character = _blank(out, clean, index)
        else:
            if character == "," or (after_symbol and character in _FOLLOWS_WORD):
                _close_gap(out, came_from, character)
            after_symbol = False
        out.extend(character)
        came_from.extend(sources[index : index + 1] * len(character))
    return "".join(out), tuple(came_from)


def _blank(out: list[str], clean: str, index: int) -> str:
    """What white space becomes: one space, or a comma where an unfinished line is joined on."""
    last = out[-1] if out else " "
    if clean[index] not in LINE + HARD:
        return "" if last == " " else " "
    following = clean[index:].lstrip(_STRIPPED)[:1]
    if last == " ":
        return ""
    if is_unspaced(last) and is_unspaced(following):
        return "，" if last.isalnum() else ""
    return ", " if last.isalnum() and not following.islower() else " "


def _close_gap(out: list[str], came_from: list[int], character: str) -> None:
    """Before a closing mark, drop the space and the clause mark that led up to a symbol."""
    while out and out[-1] == " ":
        out.pop()
        came_from.pop()
    if out and character in _FINAL and out[-1] in _CLAUSE:
        out.pop()
        came_from.pop()
