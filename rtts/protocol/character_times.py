"""When each character is heard, from the times of words, or from nothing but the text.

For dialects whose clients are told times of characters. A segment's characters come at once, with the
first audio that is sent when they are known, and a space stands behind each segment for the white space
that follows it. Where the engine has no times, they are estimated before the audio is there: by a
usual pace that is corrected by every segment that has ended. Knows no wire format.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rtts.protocol.events import Audio, AudioFlags, Marks, SegmentStarted

# An ordinary voice at speed 1: 15 letters, or 4.5 ideographs (from U+2E80 on), a second.
_LETTER_MS = 1000 / 15
_WIDE_MS = 1000 / 4.5
_FIRST_WIDE = "\u2e80"
_SLOWEST, _FASTEST = 3.0, 0.3  # bounds of the correction


class Character(NamedTuple):
    """A character, and when it is heard on the context's clock."""

    char: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class Heard:
    """Characters that are told with one audio message.

    Attributes:
        at_ms: Where the message's audio begins.
        end_ms: Where it ends.
        characters: In order; they may be heard before and after this audio.
        is_end: A segment ends with this audio, and its last character is the space behind it.
    """

    at_ms: float
    end_ms: float
    characters: list[Character]
    is_end: bool


class CharacterTimes:
    """The characters of one context.

    Owner: a dialect's context.
    """

    def __init__(self, rate_hz: int, *, is_exact: bool) -> None:
        """Begin.

        Args:
            rate_hz: Of the context's format, in which `Audio.pts` counts.
            is_exact: The engine knows the times of its words, and they are worth waiting for.
        """
        self._rate_hz = rate_hz
        self._is_exact = is_exact
        self._segment: SegmentStarted | None = None  # whose characters have no times yet
        self._began_ms = 0.0  # of the segment that is heard
        self._guess_ms = 0.0  # its length by the usual pace, until it has ended
        self._owes_space = False  # it has ended, before its times were known
        self._queue: list[Character] = []
        self._guessed_ms = 0.0  # of the segments that have ended
        self._lasted_ms = 0.0
        self._end_ms = 0.0  # of the audio so far

    def begin(self, segment: SegmentStarted) -> None:
        """A segment is about to be heard."""
        self._settle()
        self._segment = segment
        self._began_ms = segment.at_ms
        self._guess_ms = sum(map(_usual_ms, segment.text))
        if not self._is_exact:
            self._guess(self._guess_ms * self._pace)

    def learn(self, marks: Marks) -> None:
        """The times of a segment's words."""
        segment = self._segment
        if segment is None or segment.segment != marks.segment:
            return
        words = [
            (start - segment.chars[0], end - segment.chars[0], start_ms, end_ms)
            for (start, end), (_, start_ms, end_ms) in zip(marks.chars, marks.items, strict=True)
        ]
        self._queue += spread(segment.text, segment.at_ms, words)
        self._segment = None

    def hear(self, audio: Audio) -> Heard | None:
        """What is told with this audio; None where nothing is."""
        at_ms = 1000 * audio.pts / self._rate_hz
        self._end_ms = max(self._end_ms, at_ms + audio.duration_ms)
        is_end = False
        if self._owes_space and self._segment is None:
            self._add_space()
        if audio.flags & AudioFlags.LAST_OF_SEGMENT:
            self._guessed_ms += self._guess_ms
            self._lasted_ms += max(0.0, self._end_ms - self._began_ms)
            self._owes_space = True
            if self._segment is None:
                self._add_space()
                is_end = True
        return self._give(at_ms, is_end=is_end)

    def rest(self) -> Heard | None:
        """What was not told with any audio; nothing follows."""
        self._settle()
        return self._give(self._end_ms, is_end=True)

    @property
    def _pace(self) -> float:
        """By how much the voice is slower than usual."""
        if not self._guessed_ms:
            return 1.0
        return min(max(self._lasted_ms / self._guessed_ms, _FASTEST), _SLOWEST)

    def _guess(self, length_ms: float) -> None:
        """The segment's characters take their usual shares of a length."""
        segment, self._segment = self._segment, None
        assert segment is not None, "a segment is guessed once"
        scale, at_ms = length_ms / (self._guess_ms or 1.0), segment.at_ms
        for char in segment.text:
            end_ms = at_ms + scale * _usual_ms(char)
            self._queue.append(Character(char, at_ms, end_ms))
            at_ms = end_ms

    def _settle(self) -> None:
        """No more is learned of the segment before."""
        if self._segment is not None:
            self._guess(max(0.0, self._end_ms - self._segment.at_ms))
        if self._owes_space:
            self._add_space()

    def _add_space(self) -> None:
        self._owes_space = False
        if self._queue:
            start_ms = min(self._queue[-1].end_ms, self._end_ms)
        else:
            start_ms = self._end_ms
        self._queue.append(Character(" ", start_ms, self._end_ms))

    def _give(self, at_ms: float, *, is_end: bool) -> Heard | None:
        if not self._queue:
            return None
        characters, self._queue = self._queue, []
        return Heard(at_ms, self._end_ms, characters, is_end)


def spread(
    text: str, at_ms: float, words: Iterable[tuple[int, int, float, float]]
) -> list[Character]:
    """The characters of a segment from the times of its words.

    Args:
        text: Of the segment.
        at_ms: Where it begins.
        words: Place in `text` [start, end), and when it is heard, of each; in order.

    Returns:
        Every character of `text`. What stands between words fills the time between them, and what
        stands around them takes none.
    """
    timed: list[Character] = []
    done, clock_ms = 0, at_ms
    for start, end, start_ms, end_ms in words:
        begins_ms = max(clock_ms, start_ms)
        gap_ms = begins_ms if not timed else clock_ms
        _fill(timed, text[done:start], gap_ms, begins_ms)
        clock_ms = max(begins_ms, end_ms)
        _fill(timed, text[start:end], begins_ms, clock_ms)
        done = end
    _fill(timed, text[done:], clock_ms, clock_ms)
    return timed


def _fill(timed: list[Character], text: str, start_ms: float, end_ms: float) -> None:
    each_ms = (end_ms - start_ms) / max(1, len(text))
    for index, char in enumerate(text):
        timed.append(Character(char, start_ms + index * each_ms, start_ms + (index + 1) * each_ms))


def _usual_ms(char: str) -> float:
    return _WIDE_MS if char >= _FIRST_WIDE else _LETTER_MS
