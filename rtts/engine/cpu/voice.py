"""What the CPU engine asks of a voice, whichever model is behind it.

Knows nothing about models, utterances or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from rtts.engine.interface import Word

SAMPLE_RATE_HZ: Final = 24_000  # of every voice here

FloatArray = npt.NDArray[np.float32]
SILENCE: Final[FloatArray] = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Trim:
    """How much silence stays around speech.

    Attributes:
        leading_s: Before the first sound.
        trailing_s: After a sentence; less after a clause.
    """

    leading_s: float
    trailing_s: float

    def pause_s(self, mark: str) -> float:
        """Silence to keep after speech that ends with a punctuation mark, "" for none."""
        return self.trailing_s * _PAUSE_SHARE.get(mark, 1.0)


# Of the pause after a sentence. Inside a sentence the model itself pauses 25 to 110 ms at commas
# and up to 350 ms at ; and : (21 pauses measured).
_PAUSE_SHARE: Final[Mapping[str, float]] = {"": 0.15, ",": 0.25, ";": 0.6, ":": 0.6, "—": 0.6}


@dataclass(frozen=True, slots=True)
class Speech:
    """Some of a segment's speech.

    Attributes:
        samples: `[S]` float32 at 24 kHz, not yet amplified or limited; may be empty.
        words: Words whose times became known; times from the start of the segment's speech.
        planned_s: What it took to decide how the text is to sound, before any of it was made.
        rendered_s: What it took to make samples of spectra; 0 where one network does all.
    """

    samples: FloatArray
    words: tuple[Word, ...] = ()
    planned_s: float = 0.0
    rendered_s: float = 0.0


class SegmentSpeech(Protocol):
    """The speech of one segment, made bit by bit. Used by one thread at a time."""

    @property
    def unknown(self) -> Mapping[str, int]:
        """Number of letters of the text that are left out, by script, most frequent first."""

    @property
    def is_done(self) -> bool:
        """Nothing is left to make; true from the start where nothing can be said."""

    def advance(self) -> Speech:
        """Do one bounded piece of work. The samples of all calls are the segment's speech."""


class CpuVoice(Protocol):
    """A loaded voice. Holds no state of what it speaks: shared freely between threads."""

    def begin(
        self, text: str, *, speed: float, seed: tuple[int, ...], is_first: bool
    ) -> SegmentSpeech:
        """Begin to speak a segment; the text is read, no sound is made yet.

        Args:
            text: The segment, as appended.
            speed: 1.0 is the voice's own pace.
            seed: Non-negative; fixes every random draw.
            is_first: Somebody waits for the first sound of the utterance.
        """
