"""Words as pieces of the text they are in, so that what was heard reads as it was written."""

from __future__ import annotations

from livekit.agents.voice.io import TimedString
from rtts_client import Marks


class Words:
    """Cuts the text of one reply at its words."""

    def __init__(self) -> None:
        self._text = ""
        self._end = 0  # of what was handed out

    def say(self, text: str) -> None:
        """The text goes on."""
        self._text += text

    def timed(self, marks: Marks) -> list[TimedString]:
        """The words of a segment, each with the text before it that nobody had yet."""
        timed = []
        for (word, start_ms, end_ms), (_, end) in zip(marks.items, marks.chars, strict=True):
            piece = self._text[self._end : end] if end > self._end else word
            self._end = max(end, self._end)
            timed.append(TimedString(piece, start_time=start_ms / 1000, end_time=end_ms / 1000))
        return timed

    def rest(self, at_s: float) -> list[TimedString]:
        """What comes after the last word, which is heard at the end."""
        piece, self._end = self._text[self._end :], len(self._text)
        return [TimedString(piece, start_time=at_s, end_time=at_s)] if piece else []
