"""A conversation without sockets, threads or waiting: one session, a tone engine, a manual clock."""

from __future__ import annotations

from collections.abc import Callable

from rtts.engine.interface import (
    Command,
    EngineDown,
    EngineLoad,
    EngineReady,
    Event,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.protocol.events import Audio, Done, ServerMessage, Text
from rtts.session import DeliveryMarker, Service, Session, SessionOptions

START = 1000.0
_OF_ENGINE = (EngineReady, EngineDown, EngineLoad, VoiceLoaded, VoiceEvicted, VoiceFailed)


class World:
    """One client's view of one session.

    `messages` is what reached the client, in order. With `reads` off the client takes what it is
    sent but its socket never answers a delivery marker; with `writable` off nothing is sent at all.
    """

    def __init__(
        self,
        options: SessionOptions | None = None,
        tone: ToneOptions | None = None,
        *,
        core: ToneEngine | None = None,
    ) -> None:
        self.now = START
        self.options = options or SessionOptions()
        self.core = core or ToneEngine(tone or ToneOptions())
        self.service = Service(epoch_s=1_796_000_000.0)
        self.messages: list[ServerMessage] = []
        self.sent_at: list[float] = []
        self.commands: list[Command] = []
        self.events: list[Event] = []
        self.reads = True
        self.last_marker = 0
        self.writable = True
        self.engine_runs = True
        self.filter: Callable[[Event], bool] = lambda event: True
        self._step_engine()
        self.session = self.make_session("s_1", "r_1")

    def make_session(self, session_id: str, token: str) -> Session:
        return Session(
            session_id=session_id,
            resume_token=token,
            options=self.options,
            service=self.service,
            now=self.now,
        )

    # --- acting ------------------------------------------------------------------------------

    def send(self, *messages) -> None:
        for message in messages:
            self.session.receive(message, self.now)
            self.pump()

    def say(self, text: str, ctx: str = "a", end: bool = True) -> None:
        self.send(Text(ctx=ctx, text=text, end=end))

    def pump(self) -> None:
        """Let everything happen that can happen without time passing."""
        for _ in range(100_000):
            commands = self.session.take_commands(self.now)
            for command in commands:
                self.core.apply(command)
            self.commands += commands
            moved = bool(commands)
            moved |= self._step_engine()
            moved |= self._drain()
            if not moved:
                return
        raise AssertionError("the world does not come to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end = self.now + seconds
        for _ in range(100_000):
            self.pump()
            due = [self.session.next_deadline()]
            if self.engine_runs and self.core.has_work():
                due.append(self.core.next_due_s(self.now))
            at = min((t for t in due if t is not None), default=end)
            if at > end:
                break
            self.now = max(self.now, at)
            self.session.timer(self.now)
            self.pump()
            if at >= end:
                break
        else:
            raise AssertionError("deadlines do not move on")
        self.now = max(self.now, end)
        self.session.timer(self.now)
        self.pump()

    def _step_engine(self) -> bool:
        moved = False
        while self.engine_runs and self.core.has_work():
            events = self.core.step(self.now)
            if not events:
                break
            moved = True
            for event in events:
                self.deliver(event)
        return moved

    def deliver(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, _OF_ENGINE):
            self.service.on_engine_event(event, self.now)
        elif self.filter(event):
            self.session.engine_event(event, self.now)

    def _drain(self) -> bool:
        moved = False
        while self.writable:
            message = self.session.next_message(self.now)
            if message is None:
                return moved
            moved = True
            self.session.sent(message, self.now)
            if isinstance(message, DeliveryMarker):
                assert message.marker > self.last_marker, "markers leave in order of their numbers"
                self.last_marker = message.marker
                if self.reads:
                    self.session.delivered(message.marker, self.now)
                continue
            self.messages.append(message)
            self.sent_at.append(self.now)
        return moved

    # --- looking -----------------------------------------------------------------------------

    def of(self, kind, ctx: str | None = None) -> list:
        return [
            m
            for m in self.messages
            if isinstance(m, kind) and (ctx is None or getattr(m, "ctx", None) == ctx)
        ]

    def done(self, ctx: str = "a") -> Done:
        found = self.of(Done, ctx)
        assert len(found) == 1, found
        return found[0]

    def audio_s(self, ctx: str = "a") -> float:
        return sum(m.duration_ms for m in self.of(Audio, ctx)) / 1000
