"""Whose audio is encoded next: the listener's who would run dry first.

An engine that is ahead hands over seconds of many replies at once, and encoding them takes longer
than handing over. Taken in order of arrival, one reply gets five seconds ahead while another falls
silent. So every utterance has a line of its own, and the line is next whose listener has audio up
to the earliest moment. Who has heard nothing yet comes before all, and what costs nothing (an end,
a refusal) is never kept waiting. Between listeners who have plenty, a line keeps its turn for a few
pieces, which then share one write. Knows nothing about sessions or sockets.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque

from rtts.engine.interface import AudioProduced, UtteranceEvent, WordsTimed

_BYTES_PER_SAMPLE = 2
_AT_ONCE = 0.0
# A listener with this much in hand can wait for others' turns, and for company in a write.
COMFORT_S = 1.0
# How much audio such a line may take in one turn: 4 messages of 80 ms.
TURN_AUDIO_S = 0.32


class _Line:
    """What waits of one utterance, and until when its listener has audio (0 before the first)."""

    __slots__ = ("heard_until", "is_due", "is_held", "number", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: deque[UtteranceEvent] = deque()
        self.heard_until = _AT_ONCE
        self.is_held = False
        self.is_due = False  # its one entry is in the heap


class Turns:
    """Events of all utterances, in the order in which they should be handled.

    Events of one utterance keep their order. Owner: event loop.
    """

    def __init__(self) -> None:
        self.rate_hz = 24_000  # of the engine's PCM
        self._lines: dict[int, _Line] = {}
        # One entry for each line with something in it: (when it is due, rank among equals, id).
        self._due: list[tuple[float, int, int]] = []
        self._order = itertools.count()
        self._now = 0.0  # of the last `pop`

    def __bool__(self) -> bool:
        while self._due and not self._is_open(self._due[0][2]):
            line = self._lines.get(heapq.heappop(self._due)[2])
            if line is not None:
                line.is_due = False
        return bool(self._due)

    def _is_open(self, utterance_id: int) -> bool:
        """Whether a line has not ended and is not held."""
        line = self._lines.get(utterance_id)
        return line is not None and not line.is_held

    @property
    def is_urgent(self) -> bool:
        """Whether the next event, which there is, is one that nothing should keep waiting."""
        return self._due[0][0] == _AT_ONCE

    @property
    def utterances(self) -> int:
        """Utterances that have begun and not ended."""
        return len(self._lines)

    def begin(self, utterance_id: int) -> None:
        """An utterance was sent to the engine."""
        self._lines[utterance_id] = _Line(next(self._order))

    def end(self, utterance_id: int) -> None:
        """An utterance is over; what still waits of it is dropped."""
        self._lines.pop(utterance_id, None)

    def push(self, event: UtteranceEvent) -> None:
        """Take an event; that of an unknown or ended utterance is dropped."""
        line = self._lines.get(event.utterance_id)
        if line is None:
            return
        line.waiting.append(event)
        self._enter(event.utterance_id, line)

    def hold(self, utterance_id: int) -> None:
        """Give out nothing more of an utterance until `release`: its last event is not through."""
        self._lines[utterance_id].is_held = True

    def release(self, utterance_id: int) -> None:
        """The event that was waited for is through; nothing, if the utterance has ended."""
        line = self._lines.get(utterance_id)
        if line is None:
            return
        line.is_held = False
        self._enter(utterance_id, line)

    def pop(self, now: float) -> tuple[UtteranceEvent, bool]:
        """Take the next event, while there is one.

        Returns:
            The event, and whether somebody waits for it: what comes of it should be written at
            once.
        """
        assert self, "nothing waits"
        self._now = now
        utterance_id = heapq.heappop(self._due)[2]
        line = self._lines[utterance_id]
        line.is_due = False
        event = line.waiting.popleft()
        is_awaited = line.heard_until < now + COMFORT_S
        if isinstance(event, AudioProduced) and event.pcm:
            duration_s = len(event.pcm) / _BYTES_PER_SAMPLE / self.rate_hz
            line.heard_until = max(line.heard_until, now) + duration_s
        self._enter(utterance_id, line)
        return event, is_awaited

    def _enter(self, utterance_id: int, line: _Line) -> None:
        if not line.waiting or line.is_held or line.is_due:
            return
        line.is_due = True
        due, rank = line.heard_until, next(self._order)
        if not isinstance(line.waiting[0], AudioProduced | WordsTimed):
            due = _AT_ONCE
        elif due > self._now + COMFORT_S:
            # Equal until the line is through with its turn, and then behind the others.
            due, rank = due - due % TURN_AUDIO_S, line.number
        heapq.heappush(self._due, (due, rank, utterance_id))
