"""Text in: what a context received, what of it waits, and when a quiet writer forces a cut.

Owns the splitter of one context. Knows nothing about engines, audio or messages; how much is still
to be heard is an argument, because it decides whether there is time to merge short sentences.
"""

from __future__ import annotations

from rtts.errors import TextBufferFullError, TextTooLongError
from rtts.text import Segment, Splitter, SplitterOptions

# Above this much audio still to be heard there is time to merge short sentences (splitter rule).
COMFORT_S = 2.0
# Deadlines are kept as floats; a timer that fires this much early is not early.
_TICK_S = 1e-6


class Intake:
    """The writing half of a context.

    Owner: its context.

    Attributes:
        n_chars: Characters received.
        first_at: When the first text came; 0 before.
        last_at: When the last text came.
    """

    def __init__(self, options: SplitterOptions, max_chars: int, now: float) -> None:
        self._splitter = Splitter(options)
        self._max_chars = max_chars
        self._received: list[str] = []
        self._stall_tried_s = -1.0  # the quiet time at which `stall` was last asked
        self.n_chars = 0
        self.first_at = 0.0
        self.last_at = now

    @property
    def text(self) -> str:
        """Everything received, verbatim."""
        return "".join(self._received)

    def feed(
        self, text: str, now: float, *, n_spoken_chars: int | None, queued_s: float
    ) -> list[Segment]:
        """Take text; returns the segments it completes.

        Args:
            n_spoken_chars: Characters whose audio is complete; the rest is buffered. None when no
                segment waits for its audio: what had nothing to speak in it waits for nothing.
            queued_s: Audio of this context that is still to be heard.

        Raises:
            TextTooLongError: One message is over the buffer's size.
            TextBufferFullError: It does not fit now; nothing of it was taken.
        """
        if len(text) > self._max_chars:
            raise TextTooLongError(
                f"{len(text)} characters in one message, the limit is {self._max_chars}"
            )
        n_waiting = self._splitter.pending
        if n_spoken_chars is not None:
            n_waiting = self.n_chars - n_spoken_chars
        if n_waiting + len(text) > self._max_chars:
            raise TextBufferFullError(
                f"{n_waiting} characters wait to be spoken; {len(text)} more are over the limit "
                f"of {self._max_chars}",
                retry_after_s=max(0.1, queued_s / 2),
            )
        if not self.n_chars:
            self.first_at = now
        self._received.append(text)
        self.n_chars += len(text)
        self.last_at = now
        self._stall_tried_s = -1.0
        return self._splitter.feed(text, queued_s)

    def flush(self) -> list[Segment]:
        """Everything that waits, whatever it is."""
        return self._splitter.flush()

    def timer(self, now: float, *, is_idle: bool, queued_s: float) -> list[Segment]:
        """What quiet, or audio running low, completes by `now`.

        Args:
            is_idle: Nothing of the context is playing or on its way.
        """
        if not self._splitter.pending:
            return []
        segments: list[Segment] = []
        if self._splitter.held and queued_s <= COMFORT_S + _TICK_S:
            segments += self._splitter.release()
        due_s = self._due_s(is_idle)
        quiet_s = now - self.last_at
        if due_s is not None and quiet_s >= due_s - _TICK_S:
            self._stall_tried_s = due_s
            segments += self._splitter.stall(max(quiet_s, due_s), is_idle)
        return segments

    def deadlines(
        self, now: float, *, is_idle: bool, queued_s: float, is_all_produced: bool
    ) -> list[float]:
        """When `timer` may have something, as far as can be known now.

        Args:
            is_all_produced: Nothing is with the engine, so `queued_s` falls at real time.
        """
        if not self._splitter.pending:
            return []
        times: list[float] = []
        if self._splitter.held:
            times.append(now + max(0.0, queued_s - COMFORT_S))
        due_s = self._due_s(is_idle)
        if due_s is not None:
            times.append(self.last_at + due_s)
        if not is_idle and is_all_produced:
            later_s = self._due_s(True)
            if later_s is not None:
                times.append(max(self.last_at + later_s, now + queued_s))
        return times

    def _due_s(self, is_idle: bool) -> float | None:
        due_s = self._splitter.next_stall_s(is_idle)
        return due_s if due_s is not None and due_s > self._stall_tried_s else None
