"""A simulated player: counts, from arrival times alone, what a listener would hear as gaps."""

from __future__ import annotations

# Shorter than a sample: the rounding of float seconds, not a gap.
_NO_GAP_S = 1e-6


class Player:
    """Plays in real time once enough is buffered; a gap ends with the audio that ends it.

    A gap is a stall of the server only as far as the text of the audio that ended it was already
    there; before that the writer was still thinking, and the time counts as starved.

    Attributes:
        underruns: Gaps with a stall in them.
        stalls_s: Length of each.
        starved_s: Silence waiting for the writer.
        audio_s: Audio received.
        started_at: When playback began; None before.
    """

    def __init__(self, buffer_s: float = 0.0) -> None:
        """Make one that starts with `buffer_s` seconds of audio, or when there is no more."""
        self.audio_s = 0.0
        self.stalls_s: list[float] = []
        self.starved_s = 0.0
        self.started_at: float | None = None
        self._buffer_s = buffer_s
        self._dry_at = 0.0  # when what is there will have been played

    @property
    def underruns(self) -> int:
        """Gaps with a stall in them."""
        return len(self.stalls_s)

    @property
    def stalled_s(self) -> float:
        """Silence the server caused."""
        return sum(self.stalls_s)

    @property
    def ends_at(self) -> float:
        """When everything received will have been played (0 before it starts)."""
        return self._dry_at

    def feed(self, duration_s: float, at: float, text_ready_at: float) -> None:
        """Audio arrived.

        Args:
            at: When.
            text_ready_at: When the last character of its segment had been sent.
        """
        self.audio_s += duration_s
        if self.started_at is None:
            if self.audio_s >= self._buffer_s:
                self._start(at)
            return
        if at > self._dry_at + _NO_GAP_S:
            waited_s = min(max(text_ready_at, self._dry_at), at) - self._dry_at
            stalled_s = at - self._dry_at - waited_s
            self.starved_s += waited_s
            if stalled_s > _NO_GAP_S:
                self.stalls_s.append(stalled_s)
            self._dry_at = at
        self._dry_at += duration_s

    def end(self, at: float) -> None:
        """No more audio comes."""
        if self.started_at is None and self.audio_s:
            self._start(at)

    def _start(self, at: float) -> None:
        self.started_at = at
        self._dry_at = at + self.audio_s
