"""What was heard: from a position in the audio back to a place in the client's own text.

Word times come from the engine, or are estimated here by letting each word take its share of the
segment's audio. Offsets are characters of the context's text as the client sent it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rtts.engine.interface import Word, WordsTimed
from rtts.text import Segment
from rtts.text.languages import words


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word of the client's text and when it sounds, in seconds of the context's audio."""

    start: int
    end: int
    start_s: float
    end_s: float


@dataclass(slots=True)
class SpokenSegment:
    """A segment that went to the engine.

    Attributes:
        handed_at: When it did.
        estimate_s: Predicted length of its audio.
        pause_s: Silence still to insert before it.
        at_s: Where its audio begins in the context's audio; None until it does.
        words: Its words on the context's clock; empty until known.
        is_skipped: The voice could not speak it: nothing of it is heard.
    """

    index: int
    segment: Segment
    handed_at: float
    estimate_s: float
    pause_s: float
    at_s: float | None = None
    timed: WordsTimed | None = None
    words: list[HeardWord] = field(default_factory=list)
    is_skipped: bool = False


def place(segment: Segment, timed: Sequence[Word], at_s: float) -> list[HeardWord]:
    """Put an engine's word times of one segment on the context's clock and text.

    A word takes along the marks that touch it in the client's text ("there" becomes "there."), so
    that the words of a transcript put together are the text.
    """
    offsets, placed, behind = segment.offsets, [], 0
    known = [word for word in timed if 0 <= word.start < word.end <= len(offsets)]
    limits = [word.start for word in known[1:]] + [len(offsets)]
    for word, limit in zip(known, limits, strict=True):
        start, end = word.start, word.end
        while start > behind and _touches(segment, start - 1, start):
            start -= 1
        while end < limit and _touches(segment, end, end):
            end += 1
        behind = end
        placed.append(
            HeardWord(
                start=offsets[start],
                end=offsets[end - 1] + 1,
                start_s=at_s + word.start_s,
                end_s=at_s + word.end_s,
            )
        )
    return placed


def _touches(segment: Segment, index: int, joint: int) -> bool:
    """Whether `spoken[index]` is a mark, beside what is across `joint` in the client's text too."""
    character, offsets = segment.spoken[index], segment.offsets
    is_mark = not character.isspace() and not character.isalnum()
    return is_mark and offsets[joint] == offsets[joint - 1] + 1


def estimate(spoken: str, duration_s: float) -> list[Word]:
    """Word times by share of characters; each word keeps the pause after it out.

    Args:
        spoken: What the engine was given.
        duration_s: Length of the segment's audio, known or predicted.
    """
    spans = words(spoken)
    if not spans:
        return []
    first, last = spans[0][0], spans[-1][1]
    per_character_s = duration_s / max(1, last - first)
    return [
        Word(start, end, (start - first) * per_character_s, (end - first) * per_character_s)
        for start, end in spans
    ]


def characters_heard(timeline: Sequence[HeardWord], played_s: float) -> int:
    """Offset into the text behind the last word heard at least to its middle."""
    heard = 0
    for word in timeline:
        if (word.start_s + word.end_s) / 2 > played_s:
            break
        heard = max(heard, word.end)
    return heard


def timeline(segments: Sequence[SpokenSegment]) -> list[HeardWord]:
    """The words of all segments whose audio has begun; estimated where still unknown."""
    heard_words: list[HeardWord] = []
    for spoken in segments:
        if spoken.at_s is None:
            break
        if spoken.is_skipped:
            continue
        heard_words += spoken.words or place(
            spoken.segment, estimate(spoken.segment.spoken, spoken.estimate_s), spoken.at_s
        )
    return heard_words
