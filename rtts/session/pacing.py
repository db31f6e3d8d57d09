"""Credit arithmetic: how far an utterance may run ahead of the ear.

One mechanism answers the lead cap, the slow reader and the barge-in that sends no message: audio is
produced only up to `allowed_until_s`, and that number rises only while somebody seems to listen.
Pure arithmetic on seconds; this module knows nothing about sockets, engines or messages.
"""

from __future__ import annotations

from dataclasses import dataclass

# A file ("unlimited" lead) may run this far ahead of what the client's socket has confirmed; without
# a bound, a reader that never reads takes 982 s of Opus into kernel buffers (measured on Linux).
UNCONFIRMED_FILE_S = 60.0
# The same in bytes: a minute of PCM at 48 kHz is 5.8 MB, and a socket may have eight such files.
UNCONFIRMED_FILE_BYTES = 1_000_000
# Gaps shorter than this are scheduling noise no player hears.
STALL_FLOOR_S = 0.005


def file_lead_s(bytes_per_s: float) -> float:
    """How far a file of that many bytes a second may run ahead of what is confirmed."""
    return min(UNCONFIRMED_FILE_S, UNCONFIRMED_FILE_BYTES / bytes_per_s)


@dataclass(slots=True)
class Pacer:
    """The playback clock of one context and the credit that follows from it.

    The clock starts with the first audio sent, runs at real time, never passes what was sent, and
    stands still while the client is away. Playback reports replace it.

    Owner: its context.

    Attributes:
        max_lead_s: Most audio ahead of the clock; 0 is unlimited.
        file_lead_s: Most audio beyond the last confirmed position where the lead is unlimited.
        confirms_delivery: Whether `confirm` will be called; if so, credit also never passes
            `max_lead_s` beyond the last confirmed position.
        sent_s: Audio handed to the transport.
        stalls: Times the clock ran dry although text was waiting to be heard.
        stalled_s: Seconds it was dry in that way.
        widest_gap_s: Longest time between two audio messages.
        peak_lead_s: Most lead seen.
        confirmed_s: Audio known to have reached the client's socket.
    """

    max_lead_s: float
    confirms_delivery: bool
    file_lead_s: float = UNCONFIRMED_FILE_S
    sent_s: float = 0.0
    stalls: int = 0
    stalled_s: float = 0.0
    widest_gap_s: float = 0.0
    peak_lead_s: float = 0.0
    confirmed_s: float = 0.0
    _position_s: float = 0.0
    _at: float | None = None  # when _position_s was true; None: not started, or standing still
    _dry_since: float | None = None  # when the clock reached sent_s
    _reported_s: float | None = None
    _sent_at: float | None = None

    def sent(self, duration_s: float, now: float, owed_since: float) -> None:
        """Audio was handed to the transport.

        Args:
            owed_since: When the text of this audio went to the engine. Silence before that is the
                writer thinking, not a stall.
        """
        self._advance(now)
        if self._dry_since is not None:
            gap_s = now - max(self._dry_since, owed_since)
            if gap_s > STALL_FLOOR_S:
                self.stalls += 1
                self.stalled_s += gap_s
            self._dry_since = None
        if self._sent_at is not None:
            self.widest_gap_s = max(self.widest_gap_s, now - self._sent_at)
        self._sent_at = now
        self.sent_s += duration_s
        if self._at is None:
            self._at = now
        self.peak_lead_s = max(self.peak_lead_s, self.sent_s - self._position_s)

    def confirm(self, position_s: float) -> None:
        """The client's socket has received the audio up to `position_s`."""
        self.confirmed_s = max(self.confirmed_s, position_s)

    def report(self, played_s: float, now: float) -> None:
        """The client says how much it has played; it is not believed beyond what was sent."""
        self._advance(now)
        self._reported_s = min(played_s, self.sent_s)

    def hold(self, now: float) -> None:
        """The socket is lost: the clock stands still."""
        self._advance(now)
        self._at = None

    def release(self, now: float) -> None:
        """A socket is back."""
        if self.sent_s:
            self._at = now

    def position_s(self, now: float) -> float:
        """Seconds of the context's audio that have been heard, as far as can be known."""
        self._advance(now)
        return self._position_s if self._reported_s is None else self._reported_s

    def allowed_until_s(self, now: float) -> float:
        """Seconds of audio that may exist by `now`."""
        if not self.max_lead_s:
            return self.confirmed_s + self.file_lead_s if self.confirms_delivery else float("inf")
        heard_s = self.position_s(now)
        if self.confirms_delivery:
            heard_s = min(heard_s, self.confirmed_s)
        return heard_s + self.max_lead_s

    def rises_by_itself_at(self, target_s: float, now: float) -> float:
        """When `allowed_until_s` reaches `target_s` by time alone; infinity if it does not."""
        if self.allowed_until_s(now) >= target_s:
            return now
        if not self.max_lead_s or self._reported_s is not None or self._at is None:
            return float("inf")
        needed_s = target_s - self.max_lead_s
        reachable_s = min(self.sent_s, self.confirmed_s) if self.confirms_delivery else self.sent_s
        if needed_s > reachable_s:
            return float("inf")
        return now + max(0.0, needed_s - self.position_s(now))

    def _advance(self, now: float) -> None:
        if self._at is None:
            return
        position_s = self._position_s + (now - self._at)
        if position_s >= self.sent_s:
            if self._dry_since is None:
                self._dry_since = self._at + (self.sent_s - self._position_s)
            position_s = self.sent_s
        self._position_s = position_s
        self._at = now
