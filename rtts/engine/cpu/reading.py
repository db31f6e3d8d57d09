"""From a segment's text to phonemes, with every word's place in the text.

Runs hibari's English G2P over the units of `speakable` and keeps track of which phonemes speak
which characters. The G2P's normaliser rewrites text ("Jan. 5th" becomes "January fifth") without
saying what became of what; the boundaries that survive it are found by normalising prefixes. Where
a boundary does not survive, the words on both sides share one span: a span may be wide, never
wrong.

Knows nothing about audio or durations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Protocol

import hibari
from hibari.g2p import G2P
from hibari.g2p.normalize import normalize
from hibari.g2p.oov import OOV

from rtts.engine.cpu.speakable import Speakable, Unit, speakable

# Phonemes of the model's alphabet that are pauses or quotation marks: nothing is pronounced.
SILENT_PHONEMES: Final = frozenset(';:,.!?—…"()“” ')
NO_WORD: Final = -1
ASSETS: Final = Path(hibari.__file__).parent / "assets"  # of the package hibari-tts
_QUOTES: Final = frozenset('"“”()')

# Punctuation around a word that does not belong to it; "$", "%", "+", "#" and "°" are spoken.
_EDGE = re.compile(r"^[^\w$€£¥₹₩%&@#+=°§~½¼¾-]*(.*?)[^\w$€£¥₹₩%&@#+=°§½¼¾²³™®©]*$", re.DOTALL)
_OOV_CACHE = 20_000  # words; 3 MB. A miss costs one run of the letter network, 0.25 ms


class Phonemizer(Protocol):
    """The G2P as it is used here."""

    def tokenize(self, text: str) -> list[object]:
        """Split and tag normalised text."""

    def phonemize_tokens(self, tokens: list[object]) -> Sequence[PhonemizedToken]:
        """Give tokens their phonemes."""


class PhonemizedToken(Protocol):
    """A token of the G2P."""

    text: str
    whitespace: str
    phonemes: str | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The phonemes of what stands between two spaces of the normalised text.

    Attributes:
        phonemes: In the model's alphabet; never empty, without spaces at its ends.
        word: Index into `Reading.spans` of the word it speaks, `NO_WORD` where it only pauses.
    """

    phonemes: str
    word: int


@dataclass(frozen=True, slots=True)
class Reading:
    """How a segment is pronounced.

    Attributes:
        chunks: In order; the chunks of one word are neighbours.
        spans: `[start, end)` of each word in the segment's text, ascending, not overlapping.
        unknown: Number of letters that were left out, by script.
    """

    chunks: tuple[Chunk, ...]
    spans: tuple[tuple[int, int], ...]
    unknown: Counter[str]


@cache
def english_g2p(*, is_british: bool = False) -> G2P:
    """The G2P of hibari, everything loaded, unknown words remembered; one a process and accent."""
    letters = ASSETS / ("oov_gb.onnx" if is_british else "oov.onnx")
    remember = lru_cache(maxsize=_OOV_CACHE)
    return G2P(oov=remember(OOV(str(letters))), british=is_british)


def read(text: str, g2p: Phonemizer, vocabulary: frozenset[str]) -> Reading:
    """Phonemes of a segment.

    Args:
        text: The segment, as appended.
        g2p: Called from one thread at a time for one text; holds no state of it.
        vocabulary: Phonemes the model knows; others are dropped.

    Returns:
        A reading without chunks where there is nothing to say.
    """
    said = speakable(text)
    if not said.can_be_said:
        return Reading((), (), said.unknown)
    source = [word for unit in said.units for word in unit.reading.split(" ")]
    normalized = normalize(" ".join(source)).split(" ")
    phonemes = _phonemes_by_chunk(g2p, normalized, vocabulary)
    if phonemes is None:
        groups = [(0, len(source), 0, len(normalized))]
        phonemes = _phonemes_as_one(g2p, normalized, vocabulary)
    else:
        groups = align(source, normalized)
    return _reading(text, said, _join_units(groups, said.units), phonemes)


# --- phonemes ------------------------------------------------------------------------------------


def _tokens(g2p: Phonemizer, normalized: Sequence[str]) -> Sequence[PhonemizedToken]:
    return g2p.phonemize_tokens(g2p.tokenize(" ".join(normalized)))


def _phonemes_by_chunk(
    g2p: Phonemizer, normalized: Sequence[str], vocabulary: frozenset[str]
) -> list[str] | None:
    """Phonemes of each word of the normalised text; None if the tokens do not show where each ends."""
    chunks = [""]
    for token in _tokens(g2p, normalized):
        chunks[-1] += _known(token.phonemes, vocabulary)
        if token.whitespace:
            chunks.append("")
    if len(chunks) == len(normalized) + 1 and not chunks[-1]:
        chunks.pop()
    return chunks if len(chunks) == len(normalized) else None


def _phonemes_as_one(
    g2p: Phonemizer, normalized: Sequence[str], vocabulary: frozenset[str]
) -> list[str]:
    """All phonemes in the first place, for a text whose words cannot be told apart."""
    parts = [
        _known(token.phonemes, vocabulary) + token.whitespace for token in _tokens(g2p, normalized)
    ]
    return ["".join(parts), *("" for _ in normalized[1:])]


def _known(phonemes: str | None, vocabulary: frozenset[str]) -> str:
    return "".join(char for char in phonemes or "" if char in vocabulary)


# --- which words became which --------------------------------------------------------------------

# Words [a, b) of the source became words [c, d) of the normalised text.
Group = tuple[int, int, int, int]


def align(source: Sequence[str], normalized: Sequence[str]) -> list[Group]:
    """Pair the words of a text with those of its normalised form.

    A boundary between two words is kept where the normalised text goes on, after the last kept
    boundary, with what the words in between become when they are normalised alone; or where it
    begins with what all words before the boundary become. Words that are equal at both ends of the
    texts need no such proof.

    Returns:
        Groups in order, covering both texts.
    """
    head = _common(source, normalized)
    if head == len(source) == len(normalized):
        return [(i, i + 1, i, i + 1) for i in range(head)]
    tail = _common(source[head:][::-1], normalized[head:][::-1])
    # One equal word is given up at each seam: what changed may have reached it.
    head, tail = max(0, head - 1), max(0, tail - 1)
    bounds = [(i, i) for i in range(head + 1)]
    for end in range(head + 1, len(source) - tail):
        reached = _reached(source, normalized, bounds[-1], end)
        if bounds[-1][1] < reached < len(normalized):
            bounds.append((end, reached))
    shift = len(normalized) - len(source)
    bounds += [(i, i + shift) for i in range(len(source) - tail, len(source) + 1)]
    return [(a, b, c, d) for (a, c), (b, d) in zip(bounds, bounds[1:], strict=False) if a < b]


def _reached(
    source: Sequence[str], normalized: Sequence[str], proven: tuple[int, int], end: int
) -> int:
    """How many words of the normalised text the first `end` words became; 0 if that is unclear."""
    for first, at in dict.fromkeys((proven, (0, 0))):
        became = normalize(" ".join(source[first:end])).split(" ")
        if normalized[at : at + len(became)] == became:
            return at + len(became)
    return 0


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _join_units(
    groups: Iterable[Group], units: Sequence[Unit]
) -> Iterator[tuple[int, int, int, int]]:
    """Turn source words into the units they belong to, joining groups that share a unit."""
    owner = [i for i, unit in enumerate(units) for _ in unit.reading.split(" ")]
    pending: tuple[int, int, int, int] | None = None
    for a, b, c, d in groups:
        first, last = owner[a], owner[b - 1]
        if pending is not None and first <= pending[1]:
            pending = (pending[0], last, pending[2], d)
            continue
        if pending is not None:
            yield pending
        pending = (first, last, c, d)
    if pending is not None:
        yield pending


def _reading(
    text: str,
    said: Speakable,
    groups: Iterable[tuple[int, int, int, int]],
    phonemes: Sequence[str],
) -> Reading:
    chunks: list[Chunk] = []
    spans: list[tuple[int, int]] = []
    for first, last, begin, end in groups:
        own = [part for part in (phonemes[i].strip() for i in range(begin, end)) if part]
        is_word = any(not SILENT_PHONEMES.issuperset(part) for part in own)
        if is_word:
            spans.append(_trim(text, said.units[first].start, said.units[last].end))
        word = len(spans) - 1 if is_word else NO_WORD
        chunks.extend(Chunk(part, word) for part in own)
    return Reading(tuple(chunks), tuple(spans), said.unknown)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the punctuation around it, or whole where it is nothing but punctuation."""
    match = _EDGE.match(text[start:end])
    if match is None or match.start(1) == match.end(1):
        return start, end
    first, last = start + match.start(1), start + match.end(1)
    if first > start and text[first - 1] == "(" and ")" in text[first:last]:
        first -= 1  # "(555) 123-4567"
    return first, last
