"""One utterance in the CPU engine: what it still has to say, how far it may go, how urgent it is.

Knows nothing about voices' insides, events or other utterances.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rtts.engine.cpu.voice import SAMPLE_RATE_HZ, CpuVoice, SegmentSpeech
from rtts.engine.interface import AppendText, StartUtterance, UtteranceStats

_PATIENCE: Final = 0.1  # of the budget: 50 ms of the usual 500 ms


class Phase(Enum):
    """Where an utterance stands."""

    OPEN = "open"  # more text may come
    CLOSING = "closing"  # FinishText came
    ENDED = "ended"  # its terminal event is out or waiting to be


@dataclass(slots=True, eq=False)
class Utterance:
    """One live utterance. Owner: the core.

    Attributes:
        order: Of arrival.
        until_s: Credit.
        voice: None until it is loaded; kept when the library evicts it.
        voice_cached: Whether it was loaded when the utterance began.
        segments: Text not yet spoken to its end; the first is being spoken.
        speech: Of the first segment; None until it is begun.
        pcm: Made and not yet given.
        begun_s: When the first segment was begun; 0 once its audio said so.
        due_s: When the first audio is due; once heard, when the listener runs dry.
        given_samples: Audio handed out.
        begun_segments: How many segments were begun.
        busy_s: Work spent.
        read_s: Work spent on reading text, and planning its sound, before the first audio.
        made_s: Work spent on the first audio after that, up to spectra.
        rendered_s: Work spent on making its samples of them, where the voice tells that apart.
    """

    start: StartUtterance
    order: int
    until_s: float
    voice: CpuVoice | None
    voice_cached: bool
    phase: Phase = Phase.OPEN
    segments: deque[AppendText] = field(default_factory=deque)
    speech: SegmentSpeech | None = None
    pcm: bytes = b""
    begun_s: float = 0.0
    due_s: float = 0.0
    given_samples: int = 0
    begun_segments: int = 0
    busy_s: float = 0.0
    read_s: float = 0.0
    made_s: float = 0.0
    rendered_s: float = 0.0

    @property
    def id(self) -> int:
        """Of the `StartUtterance`."""
        return self.start.utterance_id

    @property
    def is_heard(self) -> bool:
        """Whether any audio was handed out."""
        return self.given_samples > 0

    @property
    def is_runnable(self) -> bool:
        """Whether there is text, and credit for a sample or the middle of a segment to work out.

        Working ahead of the credit is bounded: no further than the next window.
        """
        if not self.segments:
            return False
        return self.credit_samples() >= 1 or (self.speech is not None and not self.pcm)

    def credit_samples(self) -> float:
        """Samples it may still hand out; `inf` for unlimited credit."""
        # A thousandth of a sample forgives rounding.
        credit = self.until_s * SAMPLE_RATE_HZ + 1e-3 - self.given_samples
        return math.floor(credit) if math.isfinite(credit) else credit

    def urgency(self, now: float, urgent_lead_s: float) -> tuple[int, float, int]:
        """The smaller, the sooner: about to run dry, then not heard yet, then least in hand.

        Who is not heard yet waits for those who are about to run dry, but no longer than a share
        of the budget: where more is asked of the engine than it can do, all of them suffer alike.
        """
        if self.is_heard:
            return 0 if self.due_s - now < urgent_lead_s else 2, self.due_s, self.order
        patience_ends_s = self.due_s - (1 - _PATIENCE) * self.start.budget_s
        if now >= patience_ends_s:
            return 0, patience_ends_s, self.order
        return 1, self.due_s, self.order

    def take_chunk(self, chunk_bytes: int, now: float) -> bytes:
        """Take at most that much of the audio at hand, within the credit."""
        size = int(min(chunk_bytes, len(self.pcm), 2 * max(0, self.credit_samples())))
        chunk, self.pcm = self.pcm[:size], self.pcm[size:]
        if chunk:
            # A listener who ran dry starts again now.
            begins_s = max(self.due_s, now) if self.is_heard else now
            self.due_s = begins_s + len(chunk) / 2 / SAMPLE_RATE_HZ
            self.given_samples += len(chunk) // 2
        return chunk

    def stats(self) -> UtteranceStats:
        """What it cost."""
        return UtteranceStats(
            audio_s=self.given_samples / SAMPLE_RATE_HZ,
            busy_s=self.busy_s,
            voice_cached=self.voice_cached,
        )
