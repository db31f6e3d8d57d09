"""When a take that does not end by itself is ended: frame budget, near-silence, repetition.

The model misses its end in about one of 300 requests (QwenLM/Qwen3-TTS #118, sglang-omni #1179) and
then sits in a near-silent or periodic state. Integers and floats only; it knows nothing of slots.
"""

from __future__ import annotations

import math
import unicodedata
from collections import deque
from enum import StrEnum

from rtts.engine.qwen.options import EndingOptions

_FRAMES_WIDE = 2.8  # a Chinese, Japanese or Korean character: about 4.5 a second
_FRAMES_DIGIT = 4.0  # a digit read as a word
_FRAMES_LETTER = 0.83  # alphabetic scripts: about 15 characters a second
_FRAMES_PAUSE = 2.0  # after . ! ? and their like
_PAUSES = frozenset(".!?;:。！？；：…")
_LONGEST_PERIOD = 8


class Ending(StrEnum):
    """Why a take ended."""

    EOS = "eos"
    BUDGET = "budget"
    STUCK = "stuck"


def expected_frames(text: str) -> float:
    """How many codec frames a text should take at an ordinary pace; a rough figure."""
    total = 0.0
    for character in text:
        if character.isdigit():
            total += _FRAMES_DIGIT
        elif unicodedata.east_asian_width(character) in "WF" and character.isalnum():
            total += _FRAMES_WIDE
        elif character.isalnum() or unicodedata.combining(character):
            total += _FRAMES_LETTER
        elif character in _PAUSES:
            total += _FRAMES_PAUSE
    return total


def budget_frames(expected: float, options: EndingOptions) -> int:
    """Most frames a take may produce for text that should take `expected`."""
    return options.budget_base_frames + math.ceil(options.budget_factor * expected)


class EndingWatch:
    """Watches one take's frames for a state it will not leave.

    Owner: engine thread.
    """

    def __init__(self, options: EndingOptions) -> None:
        self._options = options
        self._silent = 0
        self._codes: deque[int] = deque(maxlen=options.repeat_frames)

    def is_stuck(self, code: int, rms: float, *, text_consumed: bool) -> bool:
        """Take in one frame; whether the take is stuck.

        Args:
            code: The frame's group-0 code.
            rms: The frame's level, of 1.0 full scale.
            text_consumed: Whether all text of the take has been given to the talker.
        """
        is_silent = rms < self._options.silence_rms
        self._silent = self._silent + 1 if is_silent and text_consumed else 0
        self._codes.append(code)
        return self._silent >= self._options.silence_frames or self._is_periodic()

    def is_silent(self, rms: float) -> bool:
        """Whether a frame's level is near silence."""
        return rms < self._options.silence_rms

    def _is_periodic(self) -> bool:
        codes = self._codes
        if len(codes) < self._options.repeat_frames:
            return False
        recent = list(codes)
        return any(recent[period:] == recent[:-period] for period in range(1, _LONGEST_PERIOD + 1))
