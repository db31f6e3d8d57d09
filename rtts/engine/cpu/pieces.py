"""Where a segment is cut into the pieces that the network speaks one at a time, and their pauses.

A piece is a sentence, or a clause of a long one. The network computes a piece's prosody as a whole,
so that a shorter piece is heard sooner and holds up its neighbours less; but a cut inside a
sentence costs some of its melody. Hence: always after a sentence, otherwise only at , ; : or a dash,
and between words alone only where a piece would be longer than the network can bear.

Knows nothing about networks or audio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rtts.engine.cpu.reading import Chunk

# Phonemes.
_HARD_LIMIT: Final = 300  # beyond, memory and time grow with the square
_SHORTEST: Final = 20  # about 1.3 s: a shorter clause sounds like a sentence of its own

_SENTENCE_END: Final = frozenset(".!?…")
_CLAUSE_END: Final = frozenset(",;:—")
_CLOSERS: Final = '"”)“ '


@dataclass(frozen=True, slots=True)
class Piece:
    """Some chunks of a reading, spoken in one go.

    Attributes:
        chunks: Never empty.
        mark: The punctuation it ends with, or empty.
    """

    chunks: tuple[Chunk, ...]
    mark: str

    @property
    def phonemes(self) -> str:
        """What the network reads."""
        return " ".join(chunk.phonemes for chunk in self.chunks)


def cut(chunks: Sequence[Chunk], *, first: int, later: int) -> list[Piece]:
    """Cut a reading into pieces.

    Args:
        chunks: Of the whole segment.
        first: Phonemes over which the first piece is cut at a clause, if it has one. Small where
            somebody waits for the first sound.
        later: Likewise, of every other piece.
    """
    pieces: list[Piece] = []
    rest = _split_giants(chunks)
    while rest:
        size = _size_of_next(rest, later if pieces else first)
        pieces.append(Piece(tuple(rest[:size]), mark_of(rest[size - 1])))
        rest = rest[size:]
    return pieces


def mark_of(chunk: Chunk) -> str:
    """The pause mark a chunk ends with, looking through quotes; empty if there is none."""
    last = chunk.phonemes.rstrip(_CLOSERS)[-1:]
    return last if last in _SENTENCE_END or last in _CLAUSE_END else ""


def _split_giants(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks, with any that is longer than a piece may be cut in parts of the same word."""
    out: list[Chunk] = []
    for chunk in chunks:
        phonemes = chunk.phonemes
        while len(phonemes) > _HARD_LIMIT:
            out.append(Chunk(phonemes[:_HARD_LIMIT].strip() or phonemes[0], chunk.word))
            phonemes = phonemes[_HARD_LIMIT:]
        if phonemes.strip():
            out.append(Chunk(phonemes.strip(), chunk.word))
    return out


def _size_of_next(chunks: Sequence[Chunk], longest: int) -> int:
    """How many chunks the next piece takes.

    Up to the end of its sentence, if that is near enough; else up to the last clause mark inside
    `longest`, the first one after it, or the last word inside the hard limit.
    """
    clause = last_fit = 0
    length = 0
    for count, chunk in enumerate(chunks, 1):
        length += len(chunk.phonemes) + (count > 1)
        if length > _HARD_LIMIT:
            return clause or last_fit or 1
        mark = mark_of(chunk)
        if mark in _SENTENCE_END and mark and _has_words(chunks[:count]):
            return count if length <= longest or not clause else clause
        if length > longest and clause:
            return clause
        if mark and length >= _SHORTEST and _remaining(chunks[count:]) >= _SHORTEST:
            clause = count
        last_fit = count
    return len(chunks) if length <= longest or not clause else clause


def _has_words(chunks: Sequence[Chunk]) -> bool:
    return any(chunk.word >= 0 for chunk in chunks)


def _remaining(chunks: Sequence[Chunk]) -> int:
    """Phonemes to the end of the sentence, as far as `_SHORTEST` matters."""
    length = 0
    for chunk in chunks:
        length += len(chunk.phonemes) + 1
        if length > _SHORTEST or mark_of(chunk) in _SENTENCE_END and mark_of(chunk):
            break
    return length
