"""One WebSocket of a foreign surface: frames in, a dialect's steps, frames out.

As `rtts.server.connection` does for rtts.v1, everything happens inside the callbacks of the
transport and the hub; there is no task to wake before a first packet. What a dialect makes of a
message is carried out in order: frames are written, messages are checked and given to the session.
Knows no engine, no HTTP and none of the protocols.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from rtts.errors import (
    AuthError,
    AuthTimeoutError,
    IdleTimeoutError,
    MessageTooBigError,
    ProtocolError,
    RttsError,
)
from rtts.protocol import native
from rtts.protocol.dialect import Hangup, SocketDialect, Step, Steps
from rtts.protocol.events import AnyClientMessage, Audio, Auth, Error, ServerMessage
from rtts.server.connection import LAST_WORDS_S
from rtts.server.filler import Filler
from rtts.server.hub import Hub, SessionHost
from rtts.server.websocket import WebSocket
from rtts.session import Closing, DeliveryMarker, SessionOptions

# Answers a dialect gives by itself (acknowledgements) wait for a client that does not read; with so
# many of them it is not going to.
MAX_WAITING_FRAMES = 256


class _Phase(Enum):
    AUTH = auto()  # the key is still to come
    OPEN = auto()
    CLOSED = auto()  # a close was sent, or the socket is gone


class ForeignSocket:
    """The socket side of a session. A `WebSocketHandler` and an `Outlet`.

    Owner: event loop.
    """

    def __init__(
        self,
        hub: Hub,
        socket: WebSocket,
        dialect: SocketDialect,
        *,
        options: SessionOptions,
        accepts_key: Callable[[str], bool],
        on_closed: Callable[[], None],
    ) -> None:
        """Take an accepted socket; `open` or `await_key` begins.

        Args:
            options: Of the session.
            accepts_key: Whether a key sent in a message is right.
            on_closed: Called once when the socket is gone.
        """
        self._hub = hub
        self._socket = socket
        self._dialect = dialect
        self._options = options
        self._accepts_key = accepts_key
        self._on_closed = on_closed
        self._phase = _Phase.AUTH
        self._host: SessionHost | None = None  # set once authorised
        self._filler = Filler()
        self._frames: deque[str | bytes] = deque()  # to be written before anything else
        self._hangup: Hangup | None = None  # the dialect is through
        self._timer: asyncio.TimerHandle | None = None  # the key's, then the last words'
        self._alarm: asyncio.TimerHandle | None = None  # the dialect's, for `_alarm_at` or earlier
        self._alarm_at = 0.0
        self._unsent_bytes = 0  # as last told to the session
        self._is_flushing = False
        self._admit: Callable[[], None] | None = None  # set by await_key

    # --- beginnings -----------------------------------------------------------------------------

    def open(self) -> None:
        """Begin the session and greet."""
        self._phase = _Phase.OPEN
        self._host = self._hub.open(self, options=self._options, surface=self._dialect.name)
        self._take(lambda now: self._dialect.opened(now))

    def await_key(self, timeout_s: float, admit: Callable[[], None]) -> None:
        """Begin with a message that carries the key, which has to come soon.

        Args:
            timeout_s: How soon.
            admit: Called when the key is right; raises `CapacityError` if there is no place.
        """
        self._admit = admit
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._key_is_late)

    def _key_is_late(self) -> None:
        self._timer = None
        self._refuse(AuthTimeoutError("no key came in time"))

    def _check_key(self, data: bytes) -> None:
        try:
            steps = list(self._dialect.receive(data, self._hub.clock()))
            first = steps[0] if steps else None
            if not isinstance(first, Auth) or not self._accepts_key(first.token):
                raise AuthError("the API key is missing or not valid")
            if self._admit is not None:
                self._admit()
        except RttsError as error:
            self._refuse(error)
            return
        self._stop_timer()
        self.open()
        self._take(lambda now: steps[1:])

    # --- the socket's calls ---------------------------------------------------------------------

    def on_text(self, data: bytes) -> None:
        """See `WebSocketHandler`."""
        if self._phase is _Phase.AUTH:
            self._check_key(data)
            return
        limit = self._hub.options.max_message_bytes
        if len(data) > limit:
            self._reject(
                MessageTooBigError(f"a message of {len(data)} bytes; the limit is {limit}")
            )
            return
        self._take(lambda now: self._dialect.receive(data, now))

    def on_binary(self) -> None:
        """See `WebSocketHandler`."""
        self._take(self._dialect.receive_binary)

    def on_marker(self, number: int, rtt_s: float) -> None:
        """See `WebSocketHandler`."""
        self._hub.metrics.ws_rtt.observe(rtt_s)
        host = self._host
        if host is None or self._phase is _Phase.CLOSED:
            return
        try:
            host.session.delivered(number, self._hub.clock())
        except Exception:  # noqa: BLE001 - the connection is a task root
            self._hub.broke(host)
            return
        self._hub.pump(host)

    def on_writable(self) -> None:
        """See `WebSocketHandler`."""
        if self._host is not None and not self._is_flushing:
            self._hub.pump(self._host)

    def on_lost(self, code: int, reason: str) -> None:
        """See `WebSocketHandler`. Nobody resumes here: a client that is gone has cancelled."""
        del code, reason
        self._gone()

    # --- the dialect's steps --------------------------------------------------------------------

    def _take(self, act: Callable[[float], Steps]) -> None:
        """Have the dialect act and carry out what it says."""
        host = self._host
        if host is None or self._phase is _Phase.CLOSED or self._hangup is not None:
            return
        now = self._hub.clock()
        try:
            try:
                steps = list(act(now))
            except ProtocolError as wrong:
                host.session.reject(wrong, now, ctx=wrong.ctx, ref=wrong.ref)
            else:
                self._obey(host, steps, now)
        except Exception:  # noqa: BLE001 - the connection is a task root
            self._hub.broke(host)
            return
        if len(self._frames) > MAX_WAITING_FRAMES:
            self._close(1008, "a client that sends has to read")
            return
        self._hub.pump(host)

    def _obey(self, host: SessionHost, steps: list[Step], now: float) -> None:
        for step in steps:
            if self._hangup is not None:
                return
            if isinstance(step, str | bytes):
                self._frames.append(step)
            elif isinstance(step, Hangup):
                self._hangup = step
            else:
                _tell(host, step, now)

    def _reject(self, error: ProtocolError) -> None:
        def say(now: float) -> Steps:
            raise error

        self._take(say)

    def _set_alarm(self) -> None:
        """Wake the dialect at its deadline; a timer that would fire too early looks again."""
        deadline = self._dialect.deadline
        if deadline is None or self._phase is _Phase.CLOSED:
            return
        if self._alarm is not None:
            if deadline >= self._alarm_at:
                return
            self._alarm.cancel()
        delay_s = max(0.001, deadline - self._hub.clock())
        self._alarm_at = deadline
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        deadline = self._dialect.deadline
        if deadline is not None and deadline <= self._hub.clock():
            self._take(self._dialect.timer)
        self._set_alarm()

    # --- the hub's calls ------------------------------------------------------------------------

    def flush(self) -> None:
        """See `Outlet`: write what there is, straight into the kernel."""
        host = self._host
        if host is None or self._phase is _Phase.CLOSED or self._is_flushing:
            return
        self._is_flushing = True
        try:
            is_all = self._write_messages(host)
        finally:
            self._is_flushing = False
        self._set_alarm()
        unsent = self._socket.write_buffer_size()
        if unsent != self._unsent_bytes:
            self._unsent_bytes = unsent
            host.session.unsent(unsent, self._hub.clock())
        closing, hangup = host.session.closing, self._hangup
        if hangup is None and closing is not None:
            hangup = Hangup(self._dialect.close_code(closing.code), closing.reason)
        if hangup is None:
            return
        if is_all or (self._hangup is not None and not self._frames):
            self._close(hangup.code, hangup.reason)
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LAST_WORDS_S, self._close_unheard, closing, hangup)

    def _close_unheard(self, closing: Closing | None, hangup: Hangup) -> None:
        """The last words do not get out: the error they hold is counted here instead."""
        if closing is not None and closing.code:
            self._hub.metrics.errors.labels(closing.code).inc()
        self._close(hangup.code, hangup.reason)

    def _write_messages(self, host: SessionHost) -> bool:
        """Returns whether there is nothing more to say."""
        session, socket, clock = host.session, self._socket, self._hub.clock
        is_all = False
        while socket.is_writable:
            self._write_frames(more=True)
            if self._frames or self._hangup is not None:
                break
            message = session.next_message(clock())
            if message is None:
                is_all = True
                break
            if isinstance(message, DeliveryMarker):
                socket.send_marker(message.marker, more=True)
                session.sent(message, clock())
                continue
            later = self._translate(message)
            # What comes before audio goes out with it, and audio waits for nothing.
            self._write_frames(more=not isinstance(message, Audio))
            session.sent(message, clock())
            self._obey(host, later, clock())
        socket.flush()
        return is_all and not self._frames

    def _translate(self, message: ServerMessage) -> list[Step]:
        """Queue the frames of a message; returns the steps that wait until it counts as sent."""
        if isinstance(message, Error):
            self._hub.metrics.errors.labels(message.code).inc()
            if message.code == IdleTimeoutError.code:
                return []  # hosted services close idle sockets without a word
        later: list[Step] = []
        for each in self._filler.fill(message):
            for step in self._dialect.send(each):
                if isinstance(step, str | bytes):
                    self._frames.append(step)
                else:
                    later.append(step)
        return later

    def _write_frames(self, *, more: bool) -> None:
        while self._frames and self._socket.is_writable:
            frame = self._frames.popleft()
            self._socket.send_now(frame, more=more or bool(self._frames))

    def replaced(self) -> None:
        """See `Outlet`. Does not happen: nothing here can be resumed."""
        self._close(1011, "")

    def failed(self) -> None:
        """See `Outlet`."""
        self._host = None
        self._close(1011, "the server failed; this is not your fault")

    # --- endings --------------------------------------------------------------------------------

    def _refuse(self, error: RttsError) -> None:
        """Say why, in the dialect's own words, and close."""
        said = Error(code=error.code, message=error.message, fatal=True)
        self._translate(said)
        self._write_frames(more=False)
        self._close(self._dialect.close_code(error.code), error.message)

    def _close(self, code: int, reason: str) -> None:
        self._socket.close(code, reason)
        self._gone()

    def _gone(self) -> None:
        """The socket is of no more use to the session."""
        if self._phase is _Phase.CLOSED:
            return
        self._phase = _Phase.CLOSED
        self._stop_timer()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._frames.clear()
        host, self._host = self._host, None
        if host is not None:
            self._hub.lost(host, is_resumable=False)
        self._on_closed()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _tell(host: SessionHost, message: AnyClientMessage, now: float) -> None:
    """Give the session a message of a dialect, which may be as wrong as one of a client."""
    try:
        checked = native.check(message)
    except ProtocolError as wrong:
        host.session.reject(wrong, now, ctx=wrong.ctx, ref=wrong.ref)
        return
    host.session.receive(checked, now)
