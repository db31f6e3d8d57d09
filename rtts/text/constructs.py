"""Recognises the inline constructs of markup: tokens, tags, links, addresses, entities, emphasis.

Pure functions of the source. Each looks a bounded distance ahead and answers with where the
construct ends, `WAIT` when that takes more text, or None when there is none. What becomes of it is
`rtts.text.markup`'s business.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rtts.text.characters import EMOJI, EMOJI_GLUE, ZERO_WIDTH_JOINER
from rtts.text.languages import HAN, HANGUL, KANA
from rtts.text.tape import LINE_ENDS

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

# Control, format and private characters that say nothing. Joiners and variation selectors are not
# among them: they are part of emoji.
SILENT = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffd\ue000-\uf8ff\ud800-\udfff"
)
GLUE = f"{EMOJI_GLUE}{ZERO_WIDTH_JOINER}"
_ASIAN = f"{HAN}{KANA}{HANGUL}\u3000-\u303f\uff00-\uffef"
_IS_ASIAN = re.compile(f"[{_ASIAN}]")

# --- tokens and tags -----------------------------------------------------------------------------

# `<|…|>` as tokenizers spell them, and the bare names that Qwen's tokenizers turn into single
# tokens (Qwen3-TTS tokenizer_config.json; Qwen3 adds the tool and thinking tags).
_TOKEN = re.compile(
    r"<(?:\|[^\s<>|]{0,60}\||/?(?:think|tool_call|tool_response|tts_[a-z_]{1,40}))>"
)
_TOKEN_BEGUN = re.compile(r"<(?:\|[^\s<>|]{0,60}\|?|/?[a-z_]{0,44})?\Z")

_ATTRIBUTE = r"""\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>=]+)"""
_TAG = re.compile(rf"<(?:/?[A-Za-z][\w:.-]*(?:{_ATTRIBUTE})*\s*/?|![^<>]*)>")
_TAG_BEGUN = re.compile(r"<(?:[A-Za-z/!]|\Z)")
_TAG_STOP = re.compile(r"[<>\n\r]")
_PAUSE = re.compile(r"""<break\b[^<>]*?\btime\s*=\s*["']?\s*([0-9]*\.?[0-9]+)\s*(ms|s)\b""", re.I)
_AUTOLINK = re.compile(r"<(?:mailto:)?(?=(?:https?://|www\.|[A-Za-z][\w.+-]*@)[^\s<>]+>)", re.I)

# The longest silence one tag may ask for.
_MAX_PAUSE_S = 10.0


def token_end(source: str, index: int, final: bool) -> int | None:
    """Where the control token at a "<" ends."""
    match = _TOKEN.match(source, index)
    if match is not None:
        return match.end()
    window = source[index : index + _MAX_TAG]
    return WAIT if len(window) < _MAX_TAG and not final and _TOKEN_BEGUN.match(window) else None


def tag_end(source: str, index: int, final: bool) -> int | None:
    """Where the tag at a "<" ends."""
    window = source[index : index + _MAX_TAG]
    stop = _TAG_STOP.search(window, 1)
    if stop is None:
        return WAIT if len(window) < _MAX_TAG and not final and _TAG_BEGUN.match(window) else None
    match = _TAG.match(window) if stop.group() == ">" else None
    return None if match is None else index + match.end()


def autolink_span(source: str, index: int) -> tuple[int, int] | None:
    """For `<https://…>` or `<a@b.c>` at a "<": where its address begins, and its ">"."""
    window = source[index : index + _MAX_TAG]
    match = _AUTOLINK.match(window)
    return None if match is None else (index + match.end(), index + window.index(">"))


def pause_of(tag: str) -> float | None:
    """Seconds of silence that `<break time="…"/>` asks for; None for any other tag."""
    match = _PAUSE.match(tag)
    if match is None:
        return None
    seconds = float(match.group(1)) * (0.001 if match.group(2).lower() == "ms" else 1.0)
    return min(seconds, _MAX_PAUSE_S)


# --- links ---------------------------------------------------------------------------------------

_SQUARE = re.compile(rf"[\[\]{LINE_ENDS}]")
_ROUND = re.compile(rf"[(){LINE_ENDS}]")
_TITLE_QUOTES = ('""', "''", "()")


class Link(NamedTuple):
    """A link or a footnote mark.

    Attributes:
        close: Index of the "]" after its label.
        end: Where it ends, target included.
        is_footnote: There is nothing to say.
        is_cut: The target goes on beyond `end`, up to ")" or white space.
    """

    close: int
    end: int
    is_footnote: bool = False
    is_cut: bool = False


def find_link(source: str, index: int, final: bool) -> Link | int | None:
    """The link whose "[" is at `index`, WAIT, or None."""
    close = _closing(source, index + 1, _SQUARE, _MAX_LABEL)
    if close == WAIT and not final:
        return WAIT
    if close < 0:
        return None
    if source[index + 1] == "^":
        return Link(close, close + 1, is_footnote=True)
    begin = close + 1
    if begin == len(source):
        return None if final else WAIT
    if source[begin] != "(":
        return None
    end = _closing(source, begin + 1, _ROUND, _MAX_ADDRESS)
    if end == WAIT and not final:
        return WAIT
    if end >= 0:
        return Link(close, end + 1) if _is_target(source[begin + 1 : end]) else None
    target = source[begin + 1 : begin + 1 + _MAX_ADDRESS]
    if len(target) < _MAX_ADDRESS or any(map(str.isspace, target)):
        return None
    return Link(close, begin + 1 + _MAX_ADDRESS, is_cut=True)


def _is_target(text: str) -> bool:
    """Whether what is between round brackets is an address with an optional title."""
    parts = text.split(None, 1)
    if len(parts) < 2:
        return True
    title = parts[1].rstrip()
    return parts[0].startswith("<") or title[0] + title[-1] in _TITLE_QUOTES


def _closing(source: str, start: int, brackets: re.Pattern[str], limit: int) -> int:
    """Where the bracket opened before `start` closes: an index, WAIT, or -2 for nowhere."""
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


# --- addresses -----------------------------------------------------------------------------------

_SCHEME = re.compile(r"https?://|www\.", re.I)
_SCHEMES = ("http://", "https://", "www.")
ADDRESS_END = re.compile(rf"[{SILENT}{EMOJI}{GLUE}\s<>\"`|\\^{{}}“”‘’«»„{_ASIAN}…]")
_ADDRESS_TAIL = ".,;:!?'*_~)]"
_HOST = re.compile(r"(?:https?://)?(?:[^\s/?#@]*@)?([^\s/?#:@]+)", re.I)


class Address(NamedTuple):
    """A bare URL.

    Attributes:
        end: Where it ends.
        is_cut: It goes on beyond, up to the next `ADDRESS_END`.
    """

    end: int
    is_cut: bool


def find_address(source: str, index: int, final: bool) -> Address | int | None:
    """The bare URL that an "h" or "w" at `index` begins, WAIT, or None."""
    scheme = _SCHEME.match(source, index)
    if scheme is None:
        rest = source[index : index + 8].lower()
        begun = any(name.startswith(rest) for name in _SCHEMES)
        return WAIT if begun and index + len(rest) == len(source) and not final else None
    limit = index + _MAX_ADDRESS
    match = ADDRESS_END.search(source, scheme.end(), limit)
    if match is None and len(source) < limit and not final:
        return WAIT
    end = min(len(source), limit) if match is None else match.start()
    return Address(_without_tail(source, scheme.end(), end), match is None and end == limit)


def _without_tail(source: str, start: int, end: int) -> int:
    """`end` without closing punctuation; a ")" stays if the address opened it."""
    body = source[start:end]
    kept = len(body.rstrip(_ADDRESS_TAIL))
    if body[kept : kept + 1] == ")" and body.count("(", 0, kept) > body.count(")", 0, kept):
        kept += 1
    return start + kept


def host_span(address: str) -> tuple[int, int]:
    """Where the host name is in an address; a "www." behind a scheme is left out."""
    match = _HOST.match(address)
    if match is None:
        return 0, len(address)
    start, end = match.span(1)
    if start and address[start : start + 4].lower() == "www." and end > start + 4:
        start += 4
    return start, end


# --- entities and emphasis -----------------------------------------------------------------------

_ENTITY = re.compile(r"&(?:([a-z]{2,4})|#([0-9]{1,5})|#x([0-9a-f]{1,4}));", re.I)
_ENTITY_BEGUN = re.compile(r"&#?[A-Za-z0-9]{0,6}\Z")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " "}


def find_entity(source: str, index: int, final: bool) -> tuple[str, int] | int | None:
    """The character that `&amp;` and its like at `index` stand for, and where it ends."""
    match = _ENTITY.match(source, index)
    if match is None:
        window = source[index : index + _MAX_ENTITY]
        begun = len(window) < _MAX_ENTITY and _ENTITY_BEGUN.match(window)
        return WAIT if begun and not final else None
    name, decimal, hexadecimal = match.groups()
    if name is not None:
        character = _ENTITIES.get(name.lower(), "")
    else:
        character = chr(int(decimal) if decimal is not None else int(hexadecimal, 16))
    return (character, match.end()) if character.isprintable() and character else None


def run_end(source: str, index: int, final: bool) -> int:
    """Where the run of the mark at `index` ends, or a piece of it that is decided alone."""
    limit = _MAX_BACKTICKS if source[index] == "`" else _MAX_EMPHASIS
    end = index + 1
    while end < len(source) and end - index < limit and source[end] == source[index]:
        end += 1
    return WAIT if end == len(source) and end - index < limit and not final else end


def keeps_emphasis(mark: str, count: int, before: str, after: str) -> bool:
    """Whether a run of emphasis marks between two characters is text."""
    if before == mark or count == _MAX_EMPHASIS:
        return False
    if before.isspace() and after.isspace():
        return count == 1 and mark != "_"
    inside = before.isalnum() and after.isalnum()
    asian = inside and (_IS_ASIAN.match(before) or _IS_ASIAN.match(after)) is not None
    if mark == "~":
        return count == 1 and not before.isalnum()
    if mark == "_":
        return inside and not asian
    digits = before.isdigit() and after.isdigit()
    return inside and (digits or (count == 1 and not asian))
