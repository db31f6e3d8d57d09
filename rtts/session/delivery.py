"""Messages out: what of a context waits to be sent, what was sent, and what has arrived.

Owns the outbox, the playback clock and the log that a resumed socket is told from. Knows nothing
about engines, text or the bytes of a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rtts.protocol.events import Audio, ServerMessage, Started
from rtts.session.pacing import Pacer
from rtts.session.replay import SentLog

# Delivery is confirmed at least this often; a quarter of the lead where that is shorter.
MARKER_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class DeliveryMarker:
    """A mark in the message stream; the shell sends it so that the peer's socket answers it."""

    marker: int


Outgoing = ServerMessage | DeliveryMarker
_MARKER_DUE = DeliveryMarker(0)  # in an outbox: its number is still to come


class Delivery:
    """The sending half of a context.

    Owner: its context.

    Attributes:
        sent_seq: Last audio message handed to the transport, -1 before.
        sent_pts: Decoder samples handed to the transport, at the format's rate.
    """

    def __init__(
        self,
        pacer: Pacer,
        *,
        rate_hz: int,
        window_s: float,
        patience_s: float,
        next_marker: Callable[[], int],
    ) -> None:
        self.pacer = pacer
        self.sent_seq = -1
        self.sent_pts = 0
        self._rate_hz = rate_hz
        self._next_marker = next_marker
        self._outbox: deque[Outgoing] = deque()
        self._n_samples: deque[int] = deque()  # of each audio message that waits, in order
        self._log = SentLog(window_s, patience_s)
        self._markers: dict[int, float] = {}  # marker -> seconds of audio before it
        self._mark_at_s = 0.0  # audio after which the next marker is due

    def __bool__(self) -> bool:
        return bool(self._outbox)

    def push(self, *messages: ServerMessage) -> None:
        """Queue messages behind what waits."""
        self._outbox.extend(messages)

    def push_audio(self, sounds: Iterable[tuple[Audio, int]]) -> None:
        """Queue new audio messages, each with its decoder samples at the format's rate."""
        for message, n_samples in sounds:
            self._outbox.append(message)
            self._n_samples.append(n_samples)

    def next(self) -> Outgoing:
        """Take the next message."""
        message = self._outbox.popleft()
        # Numbered as it leaves: an answer confirms every lower number of the whole conversation.
        return self._new_marker() if isinstance(message, DeliveryMarker) else message

    def sent(self, message: Outgoing, now: float, owed_since: float) -> bool:
        """`message` was handed to the transport.

        Args:
            owed_since: When the text of this audio went to the engine.

        Returns:
            Whether this was the context's first audio.
        """
        if isinstance(message, DeliveryMarker):
            return False
        self._log.add(message, now)
        if not isinstance(message, Audio) or message.seq <= self.sent_seq:
            return False  # a replay was counted the first time
        n_samples = self._n_samples.popleft()
        self.pacer.sent(n_samples / self._rate_hz, now, owed_since)
        self.sent_seq = message.seq
        self.sent_pts += n_samples
        if self.pacer.confirms_delivery and self.pacer.sent_s >= self._mark_at_s:
            self._place_marker()
        return message.seq == 0

    def push_front(self, message: ServerMessage) -> None:
        """Queue a message before what waits, but never before the news that the context exists."""
        is_new = bool(self._outbox) and isinstance(self._outbox[0], Started)
        self._outbox.insert(1 if is_new else 0, message)

    def drop_waiting(self) -> None:
        """Drop everything that waits except the news that the context exists."""
        self._outbox = deque(message for message in self._outbox if isinstance(message, Started))
        self._n_samples.clear()

    def delivered(self, marker: int) -> bool:
        """The peer's socket has everything before `marker`; returns whether that is news."""
        passed = [known for known in self._markers if known <= marker]
        for known in passed:
            self.pacer.confirm(self._markers.pop(known))
        return bool(passed)

    def take_waiting(self) -> list[ServerMessage]:
        """Take everything that waits (another context takes over the name)."""
        waiting = [message for message in self._outbox if not isinstance(message, DeliveryMarker)]
        self._outbox.clear()
        return waiting

    def replay(self, ack: int) -> bool:
        """Queue again what was sent after audio `ack`; returns False if some of it is lost."""
        replay = self._log.after(ack)
        self._markers.clear()  # those of the lost socket will never be answered
        self._mark_at_s = 0.0
        waiting = [message for message in self._outbox if not isinstance(message, DeliveryMarker)]
        self._outbox = deque([*replay.messages])
        if self.pacer.confirms_delivery and replay.messages:
            self._outbox.append(_MARKER_DUE)  # credit waits for what the gap swallowed
        self._outbox.extend(waiting)
        return replay.is_whole

    @property
    def log_bytes(self) -> int:
        """Size of what is kept for a resume."""
        return self._log.n_bytes

    def forget_log(self) -> None:
        """Give up what is kept for a resume."""
        self._log.clear()

    def trim(self, now: float) -> None:
        """Forget what no resume can ask for any more."""
        if self.pacer.confirms_delivery:
            confirmed_pts = self.pacer.confirmed_s * self._rate_hz
            self._log.trim(now, lambda audio: audio.pts <= confirmed_pts)
        else:
            self._log.trim(now, lambda _: True)

    def _place_marker(self) -> None:
        lead_s = self.pacer.max_lead_s or 4 * MARKER_INTERVAL_S
        self._mark_at_s = self.pacer.sent_s + min(MARKER_INTERVAL_S, lead_s / 4)
        self._outbox.appendleft(_MARKER_DUE)

    def _new_marker(self) -> DeliveryMarker:
        marker = self._next_marker()
        self._markers[marker] = self.pacer.sent_s
        return DeliveryMarker(marker)
