"""One context: the client's text on its way to the engine, and its speech on the way back.

The wire says *context*, the engine *utterance*; this is where one becomes the other. A context
queues commands for the engine and messages for the client; it raises typed errors for what the
client did wrong and its session answers them. Time is an argument, nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rtts.audio.formats import AudioFormat
from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    Command,
    FinishReason,
    FinishText,
    GrantAudio,
    SegmentSkipped,
    SegmentWarned,
    StartUtterance,
    UtteranceEvent,
    UtteranceFailed,
    UtteranceFinished,
    UtteranceStats,
    Voice,
    WordsTimed,
)
from rtts.errors import BadRequestError, EngineDeadError, OverloadedError, TextBufferFullError
from rtts.protocol.events import Audio, Done, Error, Started
from rtts.session import heard, wording
from rtts.session.delivery import Delivery, Outgoing
from rtts.session.intake import Intake
from rtts.session.latency import FirstPacket
from rtts.session.options import SessionOptions
from rtts.session.pacing import Pacer, file_lead_s
from rtts.session.phase import Cause, Phase, next_phase
from rtts.session.record import ClientReport
from rtts.session.service import Service
from rtts.session.speech import Speech
from rtts.session.voicing import SILENCE_PIECE_S, Voicing
from rtts.text import Segment, SplitterOptions

_CUT_SHORT = {
    FinishReason.BUDGET: "the voice did not stop by itself and was cut off",
    FinishReason.STUCK: "the voice got stuck and was cut off",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOptions:
    """What `start` asked for, resolved against defaults and capabilities."""

    name: str
    stream: int
    voice: Voice
    language: str
    instructions: str
    speed: float
    seed: int | None
    audio_format: AudioFormat
    splitter: SplitterOptions
    word_marks: bool
    max_lead_s: float
    budget_s: float
    traceparent: str = ""


class Context:
    """One context from `start` to its terminal message.

    Owner: its session.

    Attributes:
        phase: Only `_move` changes it.
        reason: Of the terminal message, "" before.
        utterance_id: The engine's number for it; 0 before its first segment.
        is_with_engine: Whether the engine still works on it.
        next_n: Number of the next numbered `text`.
        refused: Why the text of that number was not taken; None if it has not come yet.
        client_figures: What the client measured itself, seconds and counts.
        cancelled_by: "client" or "disconnect"; "" unless cancelled.
        stopped_at: When it was cancelled, 0 before.
        silent_at: When the message that ended it was handed to the transport, 0 before.
    """

    def __init__(
        self,
        options: ContextOptions,
        *,
        limits: SessionOptions,
        service: Service,
        commands: list[Command],
        next_marker: Callable[[], int],
        now: float,
        ref: str | None = None,
    ) -> None:
        assert service.capabilities is not None, "admission comes before a context"
        self.options = options
        self.phase = Phase.OPEN
        self.reason = ""
        self.code = ""
        self.utterance_id = 0
        self.is_with_engine = False
        self.next_n = 0
        self.refused: TextBufferFullError | None = None
        self.latency = FirstPacket()
        self.stats = UtteranceStats()
        self.started_at = now
        self.client_figures: dict[str, float] = {}
        self.cancelled_by = ""
        self.stopped_at = 0.0
        self.silent_at = 0.0
        self._limits = limits
        self._service = service
        self._commands = commands
        self.intake = Intake(options.splitter, limits.max_text_chars, now)
        self.speech = Speech(
            options.name,
            options.stream,
            options.audio_format,
            source_rate_hz=service.capabilities.sample_rate_hz,
            packets_per_message=limits.packets_per_message,
            effort=service.effort,
        )
        self.pacer = Pacer(
            options.max_lead_s,
            limits.delivery_markers,
            file_lead_s(options.audio_format.bitrate / 8),
        )
        self.delivery = Delivery(
            self.pacer,
            rate_hz=self.speech.rate_hz,
            window_s=limits.resume_window_s,
            patience_s=limits.slow_consumer_s,
            next_marker=next_marker,
        )
        self.voicing = Voicing(
            options.name,
            speech=self.speech,
            delivery=self.delivery,
            latency=self.latency,
            word_marks=options.word_marks,
        )
        self._granted_s = 0.0  # on the engine's clock
        self._active_at = now  # when something last came, went or was made
        self.delivery.push(
            Started(
                ctx=options.name,
                stream=options.stream,
                format=self.speech.describe(),
                voice=options.voice.id,
                language=options.language,
                budget_ms=wording.ms(options.budget_s),
                ref=ref,
            )
        )

    # --- text in -----------------------------------------------------------------------------

    def text(self, text: str, now: float) -> None:
        """Take more text.

        Raises:
            BadRequestError: After `end`.
            TextTooLongError: One message is over the buffer's size.
            TextBufferFullError: It does not fit now; nothing of it was taken.
        """
        if self.is_text_ended:
            raise BadRequestError("no text can follow the end of a context")
        segments = self.intake.feed(
            text,
            now,
            n_spoken_chars=None if self.voicing.is_all_produced else self.voicing.n_spoken_chars,
            queued_s=self._queued_s(now),
        )
        self._active_at = now
        self.latency.first_text_at = self.intake.first_at
        self._submit(segments, now)

    def flush(self, now: float) -> None:
        """Speak everything received."""
        self._active_at = now
        self._submit(self.intake.flush(), now)

    def acknowledge_flush(self, message_id: str | None) -> None:
        """Queue `flushed` behind the audio of everything received so far."""
        self.voicing.acknowledge_flush(message_id)

    def end(self, now: float) -> None:
        """No more text. A second time it does nothing."""
        if self.is_text_ended:
            return
        self.flush(now)
        if self.phase is Phase.DONE:  # what was flushed could not be started
            return
        self.voicing.is_text_ended = True
        if self.phase is Phase.SPEAKING:
            self._commands.append(FinishText(self.utterance_id))
            self._move(Cause.END)
            return
        self._move(Cause.END)
        if self.intake.n_chars:
            self.voicing.warn("no_speakable_text", "there is nothing to speak in this text")
        nothing = UtteranceFinished(0, FinishReason.COMPLETED)
        self._finish(self.voicing.take(nothing, now, self._room_s(now)), now)

    @property
    def is_text_ended(self) -> bool:
        """Whether no more text is taken."""
        return self.voicing.is_text_ended

    def _submit(self, segments: list[Segment], now: float) -> None:
        for segment in segments:
            if segment.spoken:
                self._speak(segment, now)
            self.voicing.owe_pause(segment.pause_s)

    def _speak(self, segment: Segment, now: float) -> None:
        if self.phase is Phase.OPEN and not self._start_utterance(now):
            return
        if self.phase is Phase.DONE:
            return
        self._move(Cause.SEGMENT)
        index = self.voicing.expect(segment, now, self.options.speed)
        self._commands.append(AppendText(self.utterance_id, index, segment.spoken))

    def _start_utterance(self, now: float) -> bool:
        try:
            self._service.check_capacity(now)
        except (OverloadedError, EngineDeadError) as error:
            self.fail(error.code, error.message, error.retry_after_s, now)
            return False
        options = self.options
        self.utterance_id = self._service.next_utterance_id()
        self.is_with_engine = True
        self._service.utterance_started(now)
        self._granted_s = self.pacer.allowed_until_s(now)
        self.latency.received_at = now
        self._commands.append(
            StartUtterance(
                utterance_id=self.utterance_id,
                voice=options.voice.id,
                language=options.language,
                instructions=options.instructions,
                speed=options.speed,
                seed=options.seed,
                until_s=self._granted_s,
                budget_s=options.budget_s,
            )
        )
        return True

    # --- speech back -------------------------------------------------------------------------

    def engine_event(self, event: UtteranceEvent, now: float) -> None:
        """Take what the engine made of this context's utterance."""
        if self.phase is Phase.DONE:
            return
        self._active_at = now
        match event:
            case WordsTimed():
                self.voicing.time_words(event)
            case UtteranceFailed():
                self.fail(event.code, event.message, event.retry_after_s, now)
            case SegmentWarned():
                self.voicing.warn(event.code, event.message, event.segment)
            case AudioProduced() | SegmentSkipped() | UtteranceFinished():
                self._finish(self.voicing.take(event, now, self._room_s(now)), now)

    def speech_of(self, event: AudioProduced) -> Speech | None:
        """What will encode this event as soon as it comes; None where that is not certain."""
        return None if self.phase is Phase.DONE else self.voicing.speech_of(event)

    def _work(self, now: float) -> None:
        self._finish(self.voicing.work(now, self._room_s(now)), now)

    def _room_s(self, now: float) -> float:
        return self.pacer.allowed_until_s(now)

    def _finish(self, event: UtteranceFinished | None, now: float) -> None:
        if event is None:
            return
        self.stats = event.stats
        if event.reason is FinishReason.CANCELLED:
            self.fail("utterance_failed", "the engine gave the utterance up", None, now)
            return
        if event.reason in _CUT_SHORT:
            self.voicing.warn("cut_short", _CUT_SHORT[event.reason])
        self.voicing.finish()
        self.forget_utterance(now)
        self.voicing.is_text_ended = True
        if self.phase is not Phase.SENDING:
            self._move(Cause.SPOKEN)

    # --- credit and time ---------------------------------------------------------------------

    def _queued_s(self, now: float) -> float:
        """Audio of this context that is still to be heard; estimated where not yet made."""
        return self.voicing.owed_s() + self.buffered_s(now)

    def _is_idle(self, queued_s: float) -> bool:
        # Not "<= 0": less than a float of the clock can tell apart would never be over.
        return self.voicing.is_all_produced and queued_s <= 1e-6

    def buffered_s(self, now: float) -> float:
        """Audio made and not yet heard."""
        return max(0.0, self.speech.position_s - self.pacer.position_s(now))

    @property
    def _grant_step_s(self) -> float:
        # A quarter of the lead keeps commands rare and the engine never short of credit.
        return (self.options.max_lead_s or self.pacer.file_lead_s) / 4

    @property
    def _wants_credit(self) -> bool:
        if self.voicing.is_all_produced or self.voicing.is_blocked or not self.is_with_engine:
            return False
        made_s = self.speech.position_s - self.voicing.inserted_s
        return made_s > self._granted_s - 2 * self._grant_step_s

    def _grant(self, now: float) -> None:
        if not self._wants_credit:
            return
        until_s = self.pacer.allowed_until_s(now) - self.voicing.inserted_s
        if until_s >= self._granted_s + self._grant_step_s - 1e-6:
            self._granted_s = until_s
            self._commands.append(GrantAudio(self.utterance_id, until_s))

    def timer(self, now: float) -> None:
        """Do what is due: cut a stalled sentence, insert silence, raise credit, expire."""
        if self.phase is Phase.DONE:
            return
        self._work(now)
        self._grant(now)
        if self.phase in (Phase.OPEN, Phase.SPEAKING):
            queued_s = self._queued_s(now)
            is_idle = self._is_idle(queued_s)
            self._submit(self.intake.timer(now, is_idle=is_idle, queued_s=queued_s), now)
        if now >= self._expires_at(now) - 1e-6:
            self.stop("expired", now)

    def _expires_at(self, now: float) -> float:
        """When this has gone on for too long: neither text nor audio, and only the client's turn."""
        is_clients_turn = self.voicing.is_all_produced or (
            self._wants_credit and self._rises_at(now) == float("inf")
        )
        expires_at = self._active_at + self._limits.idle_timeout_s
        return expires_at if is_clients_turn else float("inf")

    def _rises_at(self, now: float) -> float:
        """When time alone raises the engine's credit by a step."""
        target_s = self._granted_s + self.voicing.inserted_s + self._grant_step_s
        return self.pacer.rises_by_itself_at(target_s, now)

    def next_deadline(self, now: float) -> float:
        """When `timer` should be called, if nothing else happens before."""
        if self.phase is Phase.DONE:
            return float("inf")
        times = [self._expires_at(now)]
        if self._wants_credit:
            times.append(self._rises_at(now))
        if self.voicing.has_waiting and not self.voicing.is_blocked:
            target_s = self.speech.position_s + SILENCE_PIECE_S / 2
            times.append(self.pacer.rises_by_itself_at(target_s, now))
        if self.phase in (Phase.OPEN, Phase.SPEAKING):
            queued_s = self._queued_s(now)
            times += self.intake.deadlines(
                now,
                is_idle=self._is_idle(queued_s),
                queued_s=queued_s,
                is_all_produced=self.voicing.is_all_produced,
            )
        return min(times)

    # --- messages out ------------------------------------------------------------------------

    @property
    def has_message(self) -> bool:
        """Whether `next_message` has something."""
        return bool(self.delivery) or (self.phase is Phase.SENDING and not self.voicing.has_waiting)

    def next_message(self, now: float) -> Outgoing:
        """Take the next message; only if `has_message`."""
        if not self.delivery:
            self._move(Cause.SENT)
            self.reason = "completed"
            return wording.done(self, n_samples=self.speech.samples_out)
        message = self.delivery.next()
        if isinstance(message, Audio) and message.seq == 0:
            self.latency.built_at = self.latency.built_at or now
        return message

    def sent(self, message: Outgoing, now: float) -> None:
        """`message` was handed to the transport."""
        handed_at = self.started_at
        if isinstance(message, Done):
            self.silent_at = self.silent_at or now  # a replay says it again
        if isinstance(message, Audio):
            self._active_at = now
            if self.voicing.segments:
                handed_at = self.voicing.segments[message.segment].handed_at
        if self.delivery.sent(message, now, handed_at):
            self.latency.sent_at = now
            self.delivery.push_front(wording.first_audio(self))
            self._work(now)  # what was left aside so that the first audio need not wait for it

    def delivered(self, marker: int, now: float) -> None:
        """The peer's socket has everything before that marker."""
        if self.delivery.delivered(marker):
            self._work(now)
            self._grant(now)

    def report(self, played_s: float, now: float) -> None:
        """The client says how far it has played."""
        self._active_at = now
        self.pacer.report(played_s, now)
        self._work(now)
        self._grant(now)

    def note_figures(self, report: ClientReport) -> ClientReport:
        """Remember what the client measured; the last value of each counts.

        Returns:
            What was not known before: a latency once, of what grows the growth.
        """
        news: dict[str, Any] = {}
        for name in ("first_packet_s", "first_sound_s", "underruns", "stalled_s"):
            value, known = getattr(report, name), self.client_figures.get(name)
            if value is None:
                continue
            self.client_figures[name] = value
            if known is not None:
                growth = value - known if name in ("underruns", "stalled_s") else 0
                news[name] = growth if growth > 0 else None
        return replace(report, **news)

    def set_blocked(self, is_blocked: bool, now: float) -> None:
        """The transport's buffer filled up or drained."""
        self.voicing.is_blocked = is_blocked
        if not is_blocked:
            self._work(now)
            self._grant(now)

    # --- endings -----------------------------------------------------------------------------

    def stop(
        self,
        reason: str,
        now: float,
        played_s: float | None = None,
        *,
        code: str = "",
        by: str = "",
    ) -> None:
        """End now: drop what waits, tell the engine, queue the terminal message.

        Args:
            code: Of the error that ended it, if one did.
            by: Who cancelled it, if it was: "client", "disconnect".
        """
        if self.phase is Phase.DONE:
            return
        self.code, self.cancelled_by = code, by
        self.stopped_at = now
        if self.is_with_engine:
            self._commands.append(CancelUtterance(self.utterance_id))
        self.delivery.drop_waiting()
        n_samples = self.speech.samples_through(self.delivery.sent_pts)
        self._end(reason, now, played_s, n_samples, self.delivery.sent_seq)

    def fail(self, code: str, message: str, retry_after_s: float | None, now: float) -> None:
        """End with an error; audio that is ready is still sent."""
        if self.phase is Phase.DONE:
            return
        self.code = code
        self.voicing.finish()
        self.delivery.push(
            Error(
                code=code,
                message=message,
                fatal=False,
                ctx=self.options.name,
                retry_after_ms=wording.whole_ms(retry_after_s),
            )
        )
        self._end("error", now, None, self.speech.samples_out, self.speech.seq - 1)

    def _end(
        self, reason: str, now: float, played_s: float | None, n_samples: int, last_seq: int
    ) -> None:
        self._move(Cause.STOP)
        self.reason = reason
        self.voicing.is_text_ended = True
        self.voicing.drop()
        self.forget_utterance(now)
        played_s = self.pacer.position_s(now) if played_s is None else played_s
        offset = heard.characters_heard(heard.timeline(self.voicing.segments), played_s)
        self.delivery.push(
            wording.done(
                self,
                n_samples=n_samples,
                last_seq=last_seq,
                played_s=played_s,
                n_heard_chars=offset,
            )
        )

    def forget_utterance(self, now: float) -> None:
        """Give the utterance's place back, once."""
        if self.is_with_engine:
            self.is_with_engine = False
            self._service.utterance_ended(now + self.buffered_s(now), now)

    def _move(self, cause: Cause) -> None:
        self.phase = next_phase(self.phase, cause)
