"""One conversation: what a client asks, what the engine answers, and who is told what when.

Sans-I/O: messages, engine events and time go in; commands, messages and deadlines come out. A
session outlives its socket for the resume window. It never raises for what a client sent: the
client is told, and too many mistakes end the conversation. It holds no socket and no engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts.engine.interface import AudioProduced, Command, StartUtterance, UtteranceEvent
from rtts.errors import (
    BadRequestError,
    IdleTimeoutError,
    ProtocolError,
    RateLimitedError,
    RttsError,
    SlowConsumerError,
    UnknownContextError,
)
from rtts.protocol.error_table import is_fatal
from rtts.protocol.events import (
    AnyClientMessage,
    Auth,
    Cancel,
    Close,
    Done,
    End,
    Flush,
    GoAway,
    Ping,
    Playback,
    Pong,
    Resume,
    Resumed,
    ResumedContext,
    Start,
    Stats,
    StatsRequest,
    Text,
    Warned,
)
from rtts.session import wording
from rtts.session.context import Context
from rtts.session.delivery import DeliveryMarker, Outgoing
from rtts.session.lifetime import Due, Lifetime
from rtts.session.options import SessionOptions
from rtts.session.reception import Reception
from rtts.session.record import ClientReport, UtteranceRecord
from rtts.session.roster import Roster
from rtts.session.service import Service
from rtts.session.speech import Speech
from rtts.session.tolerance import MessageRate, Strikes

# A conversation that has lasted its time has this long to finish what runs.
LEAVE_S = 20.0
# What is kept for a resume is looked through this often.
FORGET_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Closing:
    """The socket is to be closed once everything queued was sent.

    Attributes:
        code: An error code, or "" for a normal close.
        reason: One short sentence.
    """

    code: str
    reason: str = ""


class Session:
    """One conversation.

    Owner: event loop.

    Attributes:
        closing: Set once, when the conversation is to end.
        is_attached: Whether a socket is there.
    """

    def __init__(
        self,
        *,
        session_id: str,
        resume_token: str,
        options: SessionOptions,
        service: Service,
        now: float,
    ) -> None:
        self.session_id = session_id
        self.resume_token = resume_token
        self.closing: Closing | None = None
        self.is_attached = True
        self._options = options
        self._service = service
        self._roster = Roster()
        self._reception = Reception(
            session_id=session_id, roster=self._roster, options=options, service=service
        )
        self._outbox = self._reception.outbox
        self._lifetime = Lifetime(options, now)
        self._rate = MessageRate(options.max_messages_per_s, now)
        self._strikes = Strikes()
        self._speaker: Context | None = None  # whose message `next_message` gave out last
        self._records: list[UtteranceRecord | ClientReport] = []
        self._now = now  # of the last call
        self._is_resumable = options.resume_window_s > 0
        self._stats_every_s = float("inf")
        self._stats_at = float("inf")
        self._forget_at = float("inf")  # when something kept for a resume may be too old

    # --- what the shell asks -----------------------------------------------------------------

    @property
    def active_contexts(self) -> int:
        """Contexts that are not finished."""
        return len(self._roster.running)

    @property
    def waiting_contexts(self) -> int:
        """Contexts whose text the engine has and whose audio has not begun."""
        running = self._roster.running.values()
        return sum(c.is_with_engine and not c.latency.back_at for c in running)

    @property
    def is_over(self) -> bool:
        """Nothing is left to do and nobody can resume: forget the session."""
        if self.is_attached or self._roster.running:
            return False
        return self.closing is not None or not self._is_resumable

    def greet(self, protocol: str, now: float) -> None:
        """Queue `ready`, the first message on a new socket."""
        self._outbox.append(
            wording.ready(
                protocol,
                session_id=self.session_id,
                resume_token=self.resume_token if self._is_resumable else None,
                options=self._options,
                service=self._service,
                now=now,
            )
        )

    def take_commands(self, now: float) -> list[Command]:
        """Commands for the engine since the last call, in order."""
        commands = self._reception.commands[:]
        self._reception.commands.clear()
        for command in commands:
            if isinstance(command, StartUtterance):
                context = self._roster.of_utterance(command.utterance_id)
                if context is not None:
                    context.latency.handed_at = now
        return commands

    def take_records(self) -> list[UtteranceRecord | ClientReport]:
        """What was written down since the last call."""
        records = [*self._records, *self._reception.reports]
        self._records.clear()
        self._reception.reports.clear()
        return records

    # --- messages in -------------------------------------------------------------------------

    def receive(self, message: AnyClientMessage, now: float) -> None:
        """Take one decoded message."""
        if self.closing is not None:
            return
        self._now = now
        self._lifetime.active(now)
        try:
            self._rate.take(now)
            self._dispatch(message, now)
        except RttsError as error:
            self.reject(error, now, ctx=getattr(message, "ctx", None), ref=message.id)

    def reject(
        self, error: RttsError, now: float, *, ctx: str | None = None, ref: str | None = None
    ) -> None:
        """Answer a message that could not be taken; too many of them end the conversation."""
        if self.closing is not None:
            return
        self._now = now
        self._lifetime.active(now)
        # One message too many is an error of that message; only going on with it is fatal.
        about = "one message" if isinstance(error, RateLimitedError) else ctx
        is_last = is_fatal(error.code, ctx=about) or (
            not self._is_late(error, ctx) and self._strikes.is_out(error.code, now)
        )
        message = wording.error(error, ctx=ctx, ref=ref, is_last=is_last)
        context = self._roster.running.get(ctx or "")
        if context is not None and not is_last:
            context.delivery.push_front(message)
        elif ctx is not None and self._reception.would_open(_type_of(error), ctx):
            # Its text is on the way and must not open the context with defaults instead.
            self._reception.refuse(ctx, error, ref=ref, is_last=is_last)
        else:
            self._outbox.append(message)
        if is_last:
            self._close(Closing(error.code, error.message), "error", now)

    def _is_late(self, error: RttsError, ctx: str | None) -> bool:
        """Whether text crossed the end of its context on the way, which is nobody's mistake."""
        return isinstance(error, UnknownContextError) and ctx in self._roster.ended

    def _dispatch(self, message: AnyClientMessage, now: float) -> None:
        reception = self._reception
        match message:
            case Text():
                reception.text(message, now)
            case Start():
                reception.start(message, now)
            case Flush():
                reception.flush(message, now)
            case End():
                reception.end(message, now)
            case Playback():
                reception.playback(message, now)
            case Cancel():
                reception.cancel(message, now)
            case _:
                self._answer(message, now)

    def _answer(self, message: Ping | StatsRequest | Close | Resume | Auth, now: float) -> None:
        match message:
            case Ping():
                self._outbox.append(Pong(time_ms=self._service.time_ms(now), t=message.t))
            case StatsRequest():
                self._request_stats(message, now)
            case Close():
                self._close(Closing(""), "cancelled", now)
            case Resume():
                raise BadRequestError("resume is only possible as the first message on a socket")
            case Auth():
                pass  # this socket is authorised already

    # --- engine events in --------------------------------------------------------------------

    def engine_event(self, event: UtteranceEvent, now: float) -> None:
        """Take what the engine made; events of contexts that are gone are dropped."""
        self._now = now
        context = self._roster.of_utterance(event.utterance_id)
        if context is not None:
            context.engine_event(event, now)
            self._roster.settle(context)

    def speech_of(self, event: AudioProduced) -> Speech | None:
        """What will encode this event's audio in the next `engine_event`.

        The caller may have it encode beforehand (`Speech.expect`, `Speech.encode_expected`), and
        then has to hand the event over before anything else is asked of the session.

        Returns:
            None where that is not certain, or not worth it.
        """
        context = self._roster.of_utterance(event.utterance_id)
        return None if context is None else context.speech_of(event)

    # --- messages out ------------------------------------------------------------------------

    def next_message(self, now: float) -> Outgoing | None:
        """The next message to send, contexts taking turns; None when there is none."""
        self._now = now
        self._speaker = None
        if not self.is_attached:
            return None
        if self._outbox:
            return self._outbox.popleft()
        self._speaker = context = self._roster.next_speaker()
        if context is None:
            return None
        message = context.next_message(now)
        self._roster.settle(context)
        return message

    def sent(self, message: Outgoing, now: float) -> None:
        """The message that `next_message` gave out was handed to the transport."""
        self._now = now
        if isinstance(message, DeliveryMarker):
            self._lifetime.marker_sent(message.marker, now)
        context = self._speaker
        if context is not None:
            was_measured = context.latency.is_measured
            context.sent(message, now)
            if context.latency.is_measured and not was_measured:
                self._service.note_first_packet(
                    context.latency.total_s, budget_s=context.options.budget_s, now=now
                )
        self._forget_at = min(self._forget_at, now + self._options.resume_window_s + FORGET_EVERY_S)
        if isinstance(message, Done):
            self._roster.bound_logs()
            self._record_silent(now)

    def _record_silent(self, now: float) -> None:
        """Write down the finished contexts that have nothing more to say."""
        for context in self._roster.take_silent(is_heard=self.is_attached):
            capabilities = self._service.capabilities
            record = wording.record(
                context,
                session_id=self.session_id,
                engine=capabilities.engine if capabilities else "",
                now=now,
            )
            if record.rtf is not None:
                self._service.note_rtf(record.rtf)
            self._records.append(record)

    def unsent(self, n_bytes: int, now: float) -> None:
        """So many bytes wait in the transport's buffer."""
        self._now = now
        is_blocked = n_bytes > self._options.unsent_high_bytes
        if is_blocked == self._lifetime.is_blocked:
            return
        if is_blocked:
            self._lifetime.blocked(now)
        else:
            self._lifetime.unblocked()
        for context in self._roster.running.values():
            context.set_blocked(is_blocked, now)

    def delivered(self, marker: int, now: float) -> None:
        """The peer's socket answered `marker`: it has everything before it."""
        self._now = now
        self._lifetime.marker_answered(marker)
        for context in list(self._roster.running.values()):
            context.delivered(marker, now)
            self._roster.settle(context)

    def _request_stats(self, message: StatsRequest, now: float) -> None:
        if message.interval_ms is None:
            self._outbox.append(self._stats(now))
        elif message.interval_ms == 0:
            self._stats_at = float("inf")
        else:
            self._stats_every_s = message.interval_ms / 1000
            self._stats_at = now

    def _stats(self, now: float) -> Stats:
        return wording.stats(self._roster.running.values(), self._service, now)

    # --- time --------------------------------------------------------------------------------

    def timer(self, now: float) -> None:
        """Do what is due."""
        self._now = now
        for context in list(self._roster.running.values()):
            context.timer(now)
            self._roster.settle(context)
        if now >= self._stats_at:
            self._outbox.append(self._stats(now))
            self._stats_at = now + self._stats_every_s
        if now >= self._forget_at:
            self._forget(now)
        if self.closing is None:
            self._expire(now)

    def _forget(self, now: float) -> None:
        """Drop what no resume can ask for any more."""
        n_bytes = 0
        for context in self._roster.all():
            context.delivery.trim(now)
            n_bytes += context.delivery.log_bytes
        self._forget_at = now + FORGET_EVERY_S if n_bytes else float("inf")

    def _expire(self, now: float) -> None:
        options = self._options
        match self._lifetime.due(now, n_running=len(self._roster.running)):
            case Due.RESUME:
                self._close(Closing(""), "expired", now)
            case Due.SLOW:
                slow = f"nothing was taken for {options.slow_consumer_s:g} s"
                self.reject(SlowConsumerError(slow), now)
            case Due.LEAVE:
                self._close(
                    Closing("shutting_down", "this connection was asked to go away"),
                    "shutdown",
                    now,
                )
            case Due.IDLE:
                idle = f"nothing came for {options.idle_timeout_s:g} s"
                self.reject(IdleTimeoutError(idle), now)
            case Due.AGE:
                self.drain(LEAVE_S, now, reason="max_session")
            case None:
                pass

    def next_deadline(self) -> float | None:
        """When `timer` should be called, if nothing else happens before; None for never."""
        if self.closing is not None:
            return None
        running = self._roster.running.values()
        earliest = min(
            self._lifetime.next_at(self._now, n_running=len(running)),
            self._stats_at,
            self._forget_at,
            *(context.next_deadline(self._now) for context in running),
        )
        return None if earliest == float("inf") else earliest

    # --- coming and going --------------------------------------------------------------------

    def detach(self, now: float, resumable: bool = True) -> None:
        """The socket is gone.

        Args:
            resumable: False when the client closed on purpose: a silent barge-in must not cost
                the speech of a whole resume window.
        """
        self._now = now
        self.is_attached = False
        self._stats_at = float("inf")
        if self.closing is not None or not resumable or not self._is_resumable:
            self._is_resumable = False
            self._close(Closing(""), "cancelled", now)
            return
        self._lifetime.detached(now)
        for context in self._roster.running.values():
            context.pacer.hold(now)

    def attach(self, now: float) -> None:
        """A new socket took the session over; `resumed` follows."""
        self._now = now
        self._lifetime.attached(now)
        self.is_attached = True
        for context in self._roster.running.values():
            context.pacer.release(now)
            context.set_blocked(False, now)

    def resumed(self, acks: dict[str, int], now: float) -> None:
        """Tell the new socket where things stand, and again what it missed.

        Args:
            acks: For each context the client waits for: the last audio it has, -1 for none.
        """
        self._now = now
        known = dict(self._roster.running)
        known.update({n: c for n, c in self._roster.ended.items() if n in acks and n not in known})
        lost: list[Warned] = []
        for name, context in known.items():
            if not context.delivery.replay(acks.get(name, -1)):
                lost.append(
                    Warned("replay_incomplete", "some audio was sent too long ago", ctx=name)
                )
            self._roster.give_turn(context)
        self._outbox.extendleft(reversed(lost))
        self._outbox.appendleft(
            Resumed(
                session=self.session_id,
                contexts={
                    name: ResumedContext(
                        stream=context.options.stream,
                        next_seq=context.delivery.sent_seq + 1,
                        next_n=context.next_n,
                        text_ended=context.is_text_ended,
                    )
                    for name, context in known.items()
                },
            )
        )

    def drain(self, deadline_s: float, now: float, reason: str = "draining") -> None:
        """Ask the client to go; running contexts may finish within `deadline_s`."""
        self._now = now
        if self.closing is not None or self._lifetime.is_leaving:
            return
        self._lifetime.leave(now + deadline_s)
        self._reception.is_leaving = True
        self._outbox.append(GoAway(reason=reason, deadline_ms=round(1000 * deadline_s)))
        if not self._roster.running:
            self._expire(now)

    def abandon(self) -> None:
        """Give back the capacity of what runs; the session is never called again (our bug)."""
        for context in self._roster.running.values():
            context.forget_utterance(self._now)

    def shutdown(self, now: float) -> None:
        """End everything now."""
        self._now = now
        if self.closing is None:
            self._close(Closing("shutting_down", "the server is shutting down"), "shutdown", now)

    def _close(self, closing: Closing, reason: str, now: float) -> None:
        self._is_resumable = False
        code = closing.code if reason == "error" else ""
        by = "disconnect" if reason == "cancelled" else ""
        self._reception.stop_all(reason, now, code=code, by=by)
        if self.closing is None:
            self.closing = closing
        if not self.is_attached:
            self._record_silent(now)


def _type_of(error: RttsError) -> str | None:
    """Of the message that could not be read."""
    return error.message_type if isinstance(error, ProtocolError) else None
