"""Where sessions, their sockets and the engine meet: routing, timers and the registry.

A `SessionHost` is what one session needs around it: where its messages go, which utterances are
its own, when to wake it. The hub hands the engine's events to the right session and lets it speak
at once, in the same turn of the event loop. It knows nothing about frames, HTTP or dialects.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, get_args

from rtts.engine.interface import (
    AudioProduced,
    CancelUtterance,
    Command,
    Engine,
    EngineEvent,
    EngineReady,
    Event,
    StartUtterance,
    UtteranceEvent,
    UtteranceFailed,
    UtteranceFinished,
    WordsTimed,
)
from rtts.metrics import Metrics
from rtts.server.encoders import Encoders
from rtts.server.turns import Turns
from rtts.session import ClientReport, Service, Session, SessionOptions, UtteranceRecord

# A batch of a hundred streams' audio takes some 50 ms to encode. After this much of it the loop
# reads sockets and timers before it goes on, so that a cancel is not behind all of them.
TURN_S = 0.004
NATIVE = "rtts.v1"
_UTTERANCE_EVENTS = frozenset(get_args(UtteranceEvent))

log = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where a session's messages go."""

    def flush(self) -> None:
        """Send what `Session.next_message` has, as far as it goes."""

    def replaced(self) -> None:
        """Another socket took the session over."""

    def failed(self) -> None:
        """The session broke (our bug); it is gone."""


class SessionHost:
    """One session and what surrounds it.

    Owner: the hub.

    Attributes:
        outlet: None while the client is away and may resume.
    """

    __slots__ = (
        *("is_forgotten", "is_prewarming", "outlet"),
        *("session", "surface", "timer", "timer_at", "utterances"),
    )

    def __init__(self, session: Session, outlet: Outlet | None, surface: str = NATIVE) -> None:
        self.session = session
        self.outlet = outlet
        self.surface = surface  # whose words its client uses
        self.utterances: set[int] = set()
        self.timer: asyncio.TimerHandle | None = None  # armed for `timer_at` or earlier
        self.timer_at = math.inf
        self.is_prewarming = False  # its records are not a client's
        self.is_forgotten = False  # no longer in the hub's care


class Hub:
    """All sessions of one server.

    Owner: event loop.
    """

    def __init__(
        self,
        engine: Engine,
        service: Service,
        options: SessionOptions,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        on_engine_event: Callable[[EngineEvent, float], None],
        on_record: Callable[[UtteranceRecord | ClientReport, float], None],
        max_detached: int,
        encoders: Encoders,
    ) -> None:
        """Take the parts.

        Args:
            clock: Monotonic seconds.
            on_engine_event: Told of everything that is not about an utterance.
            on_record: Told of every finished context.
            max_detached: Sessions that may wait for their client at once; beyond it the one that
                has waited longest is ended.
            encoders: What shares the work of encoding; closed by whoever made it.
        """
        self.service = service
        self.options = options
        self.metrics = metrics
        self.clock = clock
        self.is_empty = asyncio.Event()  # no session is left
        self.is_empty.set()
        self._engine = engine
        self._on_engine_event = on_engine_event
        self._on_record = on_record
        self._max_detached = max_detached
        self._hosts: dict[str, SessionHost] = {}  # by session id
        self._tokens: dict[str, SessionHost] = {}
        self._detached: OrderedDict[str, SessionHost] = OrderedDict()  # longest away first
        self._routes: dict[int, SessionHost] = {}  # live utterances
        # Delivered, not yet handled: about the engine, and about utterances.
        self._news: deque[EngineEvent] = deque()
        self._turns = Turns()
        self._encoders = encoders
        self._is_handling = False
        self._is_draining = False
        self._is_saving_effort = False

    # --- sessions -------------------------------------------------------------------------------

    @property
    def sessions(self) -> int:
        """Sessions held, waiting ones included."""
        return len(self._hosts)

    @property
    def contexts(self) -> int:
        """Contexts that have not ended."""
        return sum(host.session.active_contexts for host in self._hosts.values())

    @property
    def queue_depth(self) -> int:
        """Contexts whose text the engine has and whose audio has not begun."""
        return sum(host.session.waiting_contexts for host in self._hosts.values())

    def open(
        self, outlet: Outlet, *, options: SessionOptions | None = None, surface: str = NATIVE
    ) -> SessionHost:
        """Begin a session whose messages go to `outlet`.

        Args:
            options: Its own limits and defaults, if they are not everybody's.
            surface: Whose words its client uses, for the record.
        """
        session = Session(
            session_id="s_" + secrets.token_hex(6),
            resume_token="r_" + secrets.token_urlsafe(24),
            options=options or self.options,
            service=self.service,
            now=self.clock(),
        )
        host = SessionHost(session, outlet, surface)
        self._hosts[session.session_id] = host
        self._tokens[session.resume_token] = host
        self.is_empty.clear()
        return host

    def find(self, token: str) -> SessionHost | None:
        """The session a client may resume with `token`."""
        host = self._tokens.get(token)
        return host if host is not None and host.session.closing is None else None

    def take_over(self, host: SessionHost, outlet: Outlet) -> None:
        """Give a session a new socket; a socket it still has is told and closed."""
        now, former = self.clock(), host.outlet
        if former is not None:
            host.outlet = None
            host.session.detach(now)
            former.replaced()
        self._detached.pop(host.session.session_id, None)
        host.outlet = outlet
        host.session.attach(now)
        self.metrics.resumed.inc()

    def lost(self, host: SessionHost, *, is_resumable: bool) -> None:
        """A session's socket is gone.

        Args:
            is_resumable: False when the client closed on purpose and will not come back.
        """
        host.outlet = None
        if host.is_forgotten:
            return
        try:
            host.session.detach(self.clock(), resumable=is_resumable)
        except Exception:  # noqa: BLE001 - a session is a task root
            self._fail(host)
            return
        self._detached[host.session.session_id] = host
        self.pump(host)
        if self._is_draining:  # nobody will come back to a server that stops
            self.stop(host)
        while len(self._detached) > self._max_detached:
            self.stop(next(iter(self._detached.values())))

    def discard(self, host: SessionHost) -> None:
        """Forget a session that never spoke (its socket resumed another)."""
        host.outlet = None
        self._forget(host)

    def pump(self, host: SessionHost) -> None:
        """Carry out what the session decided: commands, messages, records, its next deadline.

        Called after every call into a session, in the same turn of the loop.
        """
        if host.is_forgotten:
            return
        session = host.session
        try:
            self._submit(host)
            if host.outlet is not None:
                host.outlet.flush()
                self._submit(host)
            for record in session.take_records():
                if host.surface != NATIVE and isinstance(record, UtteranceRecord):
                    record = replace(record, surface=host.surface)
                if not host.is_prewarming:
                    self._on_record(record, self.clock())
            if host.is_forgotten:  # flushing ended it
                return
            self._arm(host)
            if session.is_over:
                self._forget(host)
            elif self._is_draining and not session.active_contexts:
                self.stop(host)
        except Exception:  # noqa: BLE001 - a session is a task root
            self._fail(host)

    def broke(self, host: SessionHost) -> None:
        """Call in an `except` block: the session raised. Its client is told; nobody else is hurt."""
        self._fail(host)

    # --- the engine -----------------------------------------------------------------------------

    def deliver(self, batch: Sequence[Event]) -> None:
        """Take the engine's events; called on the event loop."""
        for event in batch:
            if type(event) in _UTTERANCE_EVENTS:
                self._turns.push(event)  # type: ignore[arg-type]
            else:
                self._news.append(event)  # type: ignore[arg-type]
        if not self._is_handling:
            self._is_handling = True
            self._handle_events()

    def _handle_events(self) -> None:
        try:
            self._take_turn()
        finally:  # also after a bug: one that stopped the hub would silence everybody
            if self._has_turn:
                asyncio.get_running_loop().call_soon(self._handle_events)
            else:
                self._is_handling = False

    @property
    def _has_turn(self) -> bool:
        """Whether something can be handled now; if not, the end of what is being encoded calls."""
        if self._news:
            return True
        return bool(self._turns) and (self._encoders.has_room or self._turns.is_urgent)

    def _take_turn(self) -> None:
        """Give each event to its session, and let that speak."""
        now = self.clock()
        turn_ends = now + TURN_S
        silent: SessionHost | None = None  # was given events and has not spoken yet
        while self._has_turn:
            if self._news:
                self._tell_server(self._news.popleft())
                continue
            event, is_awaited = self._turns.pop(now)
            host = self._routes[event.utterance_id]
            if self._begin_encoding(host, event):
                now = self.clock()
                continue
            if silent is not None and silent is not host:
                self.pump(silent)
            self._hand_over(host, event, now)
            silent = host
            # Marks go out with the audio they are of.
            if is_awaited and not isinstance(event, WordsTimed):
                self.pump(host)
                silent = None
            now = self.clock()
            if now > turn_ends:
                break
        if silent is not None:
            self.pump(silent)

    def _begin_encoding(self, host: SessionHost, event: UtteranceEvent) -> bool:
        """Have the event's audio encoded on a thread, if that pays; the event then waits for it.

        So do all later ones of its utterance. What has to wait for something else first, somebody's
        first audio above all, is encoded when the session takes it.
        """
        if not self._encoders.width or not isinstance(event, AudioProduced):
            return False
        speech = host.session.speech_of(event)
        if speech is None:
            return False
        speech.expect(event.pcm)
        self._turns.hold(event.utterance_id)
        self._encoders.begin(speech.encode_expected, partial(self._encoded, event))
        return True

    def _encoded(self, event: AudioProduced) -> None:
        self._turns.release(event.utterance_id)
        host = self._routes.get(event.utterance_id)
        if host is not None:  # else its session broke, or its engine died
            self._hand_over(host, event, self.clock())
            self.pump(host)
        if self._has_turn and not self._is_handling:
            self._is_handling = True
            self._handle_events()

    def _tell_server(self, event: EngineEvent) -> None:
        if isinstance(event, EngineReady):
            self._turns.rate_hz = event.capabilities.sample_rate_hz
        try:
            self._on_engine_event(event, self.clock())
        except Exception:
            log.exception("handling %r failed", type(event).__name__)

    def _hand_over(self, host: SessionHost, event: UtteranceEvent, now: float) -> None:
        if isinstance(event, UtteranceFinished | UtteranceFailed):
            self._forget_utterance(event.utterance_id)
            host.utterances.discard(event.utterance_id)
        try:
            host.session.engine_event(event, now)
        except Exception:  # noqa: BLE001 - a session is a task root
            self._fail(host)
            return
        if isinstance(event, AudioProduced) and not host.is_prewarming:
            self.metrics.encode.observe(self.clock() - now)

    def _forget_utterance(self, utterance_id: int) -> None:
        self._routes.pop(utterance_id, None)
        self._turns.end(utterance_id)

    def _submit(self, host: SessionHost) -> None:
        commands: Sequence[Command] = host.session.take_commands(self.clock())
        if not commands:
            return
        for command in commands:
            if isinstance(command, StartUtterance):
                self._routes[command.utterance_id] = host
                host.utterances.add(command.utterance_id)
                self._turns.begin(command.utterance_id)
        self._engine.submit(commands)
        self._note_effort()

    def _note_effort(self) -> None:
        effort = self.service.effort
        if effort.is_saving != self._is_saving_effort:
            self._is_saving_effort = effort.is_saving
            log.warning(
                "opus complexity is now %d (%d utterances)",
                effort.level,
                self.service.live_utterances,
            )

    # --- time -----------------------------------------------------------------------------------

    def _arm(self, host: SessionHost) -> None:
        """Make sure the session is woken at its deadline.

        A timer that would fire too early is left alone: it looks again when it fires. Deadlines
        move with every message, and nearly always later.
        """
        deadline = host.session.next_deadline()
        if deadline is None or deadline >= host.timer_at:
            return
        if host.timer is not None:
            host.timer.cancel()
        # Rounded up to the loop's millisecond: a timer that fires early fires twice.
        delay_s = math.ceil(max(0.0, deadline - self.clock()) * 1000) / 1000
        loop = asyncio.get_running_loop()
        host.timer_at = deadline
        host.timer = loop.call_later(delay_s, self._wake, host)

    def _wake(self, host: SessionHost) -> None:
        host.timer, host.timer_at = None, math.inf
        now = self.clock()
        try:
            deadline = host.session.next_deadline()
            if deadline is not None and deadline <= now:
                host.session.timer(now)
        except Exception:  # noqa: BLE001 - a session is a task root
            self._fail(host)
            return
        self.pump(host)

    # --- endings --------------------------------------------------------------------------------

    def drain(self, timeout_s: float) -> None:
        """Ask every client to go: running contexts may finish within `timeout_s`."""
        self._is_draining = True
        now = self.clock()
        for host in list(self._hosts.values()):
            if host.outlet is None:
                self.stop(host)
                continue
            try:
                host.session.drain(timeout_s, now)
            except Exception:  # noqa: BLE001 - a session is a task root
                self._fail(host)
                continue
            self.pump(host)

    def stop_all(self) -> None:
        """End every session now: `done` with `shutdown`, then the close."""
        for host in list(self._hosts.values()):
            self.stop(host)

    def stop(self, host: SessionHost) -> None:
        """End one session: `done` with `shutdown` for what runs, then the close."""
        if host.is_forgotten or host.session.closing is not None:
            return
        try:
            host.session.shutdown(self.clock())
        except Exception:  # noqa: BLE001 - a session is a task root
            self._fail(host)
            return
        self.pump(host)

    def _forget(self, host: SessionHost) -> None:
        host.is_forgotten = True
        if host.timer is not None:
            host.timer.cancel()
            host.timer = None
        self._hosts.pop(host.session.session_id, None)
        self._tokens.pop(host.session.resume_token, None)
        self._detached.pop(host.session.session_id, None)
        if not self._hosts:
            self.is_empty.set()

    def _fail(self, host: SessionHost) -> None:
        """Our bug: log it, stop the session's speech, tell its client, keep everybody else."""
        log.exception("session %s failed", host.session.session_id)
        cancels = [CancelUtterance(utterance_id) for utterance_id in host.utterances]
        for command in cancels:
            self._forget_utterance(command.utterance_id)
        if cancels:
            self._engine.submit(cancels)
        host.session.abandon()
        self._forget(host)
        outlet, host.outlet = host.outlet, None
        if outlet is not None:
            try:
                outlet.failed()
            except Exception:
                log.exception("telling the client of session %s failed", host.session.session_id)
