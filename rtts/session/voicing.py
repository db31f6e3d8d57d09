"""Speech back: what the engine makes of a context's segments, as messages in the right order.

Owns the segments, the audio clock and the pauses between segments. Engine events wait here while a
pause is inserted ahead of them, because silence obeys credit like everything else. Knows nothing
about phases, commands or sockets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from rtts.engine.interface import AudioProduced, SegmentSkipped, UtteranceFinished, WordsTimed
from rtts.protocol.events import Flushed, SegmentStarted, Warned
from rtts.session import heard, wording
from rtts.session.delivery import Delivery
from rtts.session.heard import SpokenSegment
from rtts.session.latency import FirstPacket
from rtts.session.speech import Speech
from rtts.text import Segment
from rtts.text.languages import estimate_duration_s

# Inserted silence is encoded in pieces of this length, so that no piece holds up the event loop.
SILENCE_PIECE_S = 0.5
# Breaks in a row add up to this at most: they are a few characters each, and wait for no engine.
MAX_PAUSE_S = 60.0

# The first audio message of a context has no more than this, or one packet: encoding 80 ms at once
# costs half a millisecond that somebody waits for in silence.
FIRST_PIECE_S = 0.02

Spoken = AudioProduced | SegmentSkipped | UtteranceFinished


class Voicing:
    """The speaking half of a context.

    Owner: its context.

    Attributes:
        segments: Everything that went to the engine, in order.
        n_closed: Segments whose audio is complete.
        inserted_s: Silence inserted so far; the engine's clock does not have it.
        is_text_ended: No segment follows the ones that are here.
        is_blocked: The transport's buffer is full: no silence is inserted.
    """

    def __init__(
        self,
        ctx: str,
        *,
        speech: Speech,
        delivery: Delivery,
        latency: FirstPacket,
        word_marks: bool,
    ) -> None:
        self.segments: list[SpokenSegment] = []
        self.n_closed = 0
        self.inserted_s = 0.0
        self.is_text_ended = False
        self.is_blocked = False
        self._ctx = ctx
        self._speech = speech
        self._delivery = delivery
        self._latency = latency
        self._word_marks = word_marks
        self._pause_s = 0.0  # silence owed before whatever comes next
        self._inbox: deque[tuple[Spoken, float]] = deque()
        self._flushes: deque[tuple[str | None, int]] = deque()  # (id, segments it waits for)

    # --- what is expected --------------------------------------------------------------------

    def expect(self, segment: Segment, now: float, speed: float) -> int:
        """A segment goes to the engine; returns its number."""
        spoken = SpokenSegment(
            index=len(self.segments),
            segment=segment,
            handed_at=now,
            estimate_s=estimate_duration_s(segment.spoken) / speed,
            pause_s=self._pause_s,
        )
        self._pause_s = 0.0
        self.segments.append(spoken)
        return spoken.index

    def owe_pause(self, pause_s: float) -> None:
        """Silence follows what was expected last."""
        self._pause_s = min(self._pause_s + pause_s, MAX_PAUSE_S)

    def acknowledge_flush(self, message_id: str | None) -> None:
        """Say `flushed` behind the audio of everything expected so far."""
        self._flushes.append((message_id, len(self.segments)))
        self._answer_flushes()

    @property
    def is_all_produced(self) -> bool:
        """Whether the engine owes nothing."""
        return self.n_closed == len(self.segments)

    @property
    def has_waiting(self) -> bool:
        """Whether engine events wait for a pause to be inserted."""
        return bool(self._inbox)

    @property
    def n_spoken_chars(self) -> int:
        """Offset behind the last segment whose audio is complete."""
        return self.segments[self.n_closed - 1].segment.end if self.n_closed else 0

    def owed_s(self) -> float:
        """Estimated audio of segments that are not complete, less what is made of them."""
        waiting = self.segments[self.n_closed :]
        owed_s = sum(spoken.estimate_s for spoken in waiting)
        if waiting and waiting[0].at_s is not None:
            owed_s -= min(self._speech.position_s - waiting[0].at_s, waiting[0].estimate_s)
        return owed_s

    # --- what comes --------------------------------------------------------------------------

    def time_words(self, event: WordsTimed) -> None:
        """Take a segment's word times."""
        spoken = self.segments[event.segment]
        spoken.timed = event
        self._mark(spoken)

    def speech_of(self, event: AudioProduced) -> Speech | None:
        """What will encode this event as soon as it is taken; None where something comes before it.

        Nothing may be asked of this context between the call and `take`, but for later events.
        """
        spoken = self.segments[event.segment]
        is_next = self._speech.seq and not self._inbox
        if not is_next or not event.pcm or (spoken.at_s is None and spoken.pause_s > 0):
            return None
        return self._speech if self._speech.is_dear else None

    def take(self, event: Spoken, now: float, room_s: float) -> UtteranceFinished | None:
        """Take what the engine made; see `work`."""
        self._inbox.append((event, now))
        return self.work(now, room_s)

    def work(self, now: float, room_s: float) -> UtteranceFinished | None:
        """Turn waiting events into messages, as far as credit for silence goes.

        Args:
            room_s: Position in the context's audio up to which silence may be inserted now.

        Returns:
            The end of the utterance, once everything before it is out.
        """
        while self._inbox:
            event, arrived_at = self._inbox[0]
            if isinstance(event, UtteranceFinished):
                self._pause_s = self._insert_silence(self._pause_s, now, room_s)
                if self._pause_s > 0:
                    return None
                self._inbox.clear()
                self._close_all()
                return event
            spoken = self.segments[event.segment]
            if spoken.at_s is None and not self._open(spoken, now, room_s):
                return None
            self._inbox.popleft()
            if isinstance(event, SegmentSkipped):
                spoken.is_skipped = True
                self.warn(event.code, event.message, event.segment)
                self._close(spoken)
            elif self._speech.seq == 0:
                self._hear_first(event, spoken, arrived_at)
                if self._speech.seq:
                    return None  # the rest is encoded once this is sent
            else:
                self._hear(event, spoken, arrived_at)
        return None

    def drop(self) -> None:
        """Forget what waits; the context has ended."""
        self._inbox.clear()
        self._flushes.clear()

    def finish(self) -> None:
        """Send the encoder's last packets."""
        self._delivery.push_audio(self._speech.finish())

    def warn(self, code: str, message: str, segment: int | None = None) -> None:
        """Tell the client that something did not go as asked."""
        self._delivery.push(Warned(code=code, message=message, ctx=self._ctx, segment=segment))

    def _open(self, spoken: SpokenSegment, now: float, room_s: float) -> bool:
        spoken.pause_s = self._insert_silence(spoken.pause_s, now, room_s)
        if spoken.pause_s > 0:
            return False
        spoken.at_s = self._speech.position_s
        segment = spoken.segment
        self._delivery.push(
            SegmentStarted(
                ctx=self._ctx,
                segment=spoken.index,
                text=segment.text,
                chars=(segment.start, segment.end),
                at_ms=wording.ms(spoken.at_s),
                spoken=segment.spoken if segment.spoken != segment.text else None,
            )
        )
        return True

    def _hear_first(self, event: AudioProduced, spoken: SpokenSegment, arrived_at: float) -> None:
        """Encode the first piece; what remains of the event waits at the front."""
        piece_s = max(FIRST_PIECE_S, self._speech.packet_s)
        n_bytes = 2 * round(piece_s * self._speech.source_rate_hz)
        if len(event.pcm) > n_bytes:
            self._inbox.appendleft((replace(event, pcm=event.pcm[n_bytes:]), arrived_at))
            event = replace(event, pcm=event.pcm[:n_bytes], last_of_segment=False)
        self._hear(event, spoken, arrived_at)

    def _hear(self, event: AudioProduced, spoken: SpokenSegment, arrived_at: float) -> None:
        if event.pcm and not self._latency.back_at:
            self._latency.begun_at = event.begun_s
            self._latency.parts_s = event.parts_s
            self._latency.back_at = arrived_at
        is_last = event.last_of_segment
        is_final = (
            is_last
            and self.is_text_ended
            and spoken.index == len(self.segments) - 1
            and self._pause_s <= 0
        )
        self._delivery.push_audio(
            self._speech.say(event.pcm, spoken.index, is_last=is_last, is_final=is_final)
        )
        self._mark(spoken)
        if is_last:
            self._close(spoken)

    def _close(self, spoken: SpokenSegment) -> None:
        self.n_closed += 1
        if spoken.timed is None and spoken.at_s is not None and not spoken.is_skipped:
            words = heard.estimate(spoken.segment.spoken, self._speech.position_s - spoken.at_s)
            spoken.timed = WordsTimed(0, spoken.index, tuple(words), exact=False)
            self._mark(spoken)
        self._answer_flushes()

    def _close_all(self) -> None:
        for spoken in self.segments[self.n_closed :]:
            self._close(spoken)

    def _mark(self, spoken: SpokenSegment) -> None:
        """Place a segment's word times once both they and its beginning are known; tell once."""
        if spoken.at_s is None or spoken.timed is None or spoken.words:
            return
        spoken.words = heard.place(spoken.segment, spoken.timed.words, spoken.at_s)
        if self._word_marks and spoken.words:
            self._delivery.push(
                wording.marks(self._ctx, spoken.segment, spoken.timed, spoken.words)
            )

    def _answer_flushes(self) -> None:
        while self._flushes and self._flushes[0][1] <= self.n_closed:
            message_id, _ = self._flushes.popleft()
            at_ms = wording.ms(self._speech.position_s)
            self._delivery.push(Flushed(ctx=self._ctx, at_ms=at_ms, id=message_id))

    def _insert_silence(self, pause_s: float, now: float, room_s: float) -> float:
        """Insert what there is room for; returns what is left of the pause."""
        rate_hz = self._speech.source_rate_hz
        n_left = round(pause_s * rate_hz)
        piece_s = min(SILENCE_PIECE_S, max(0.0, room_s - self._speech.position_s))
        n_piece = min(n_left, int(piece_s * rate_hz))
        if n_piece <= 0 or self.is_blocked:
            return n_left / rate_hz
        if not self._latency.back_at:
            self._latency.received_at = self._latency.received_at or now
            self._latency.back_at = now
        self._delivery.push_audio(self._speech.silence(n_piece))
        self.inserted_s += n_piece / rate_hz
        return (n_left - n_piece) / rate_hz
