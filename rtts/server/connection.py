"""One native WebSocket: frames in, session calls, frames out.

Everything happens inside the callbacks of the transport and the hub: a message that arrives is
decoded, given to the session and its commands handed to the engine before the callback returns,
and audio is written to the socket in the callback that brought it. There is no task to wake.
Knows no engine and no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from rtts.errors import (
    AuthError,
    AuthTimeoutError,
    MessageTooBigError,
    ProtocolError,
    ResumeFailedError,
    RttsError,
    SessionReplacedError,
)
from rtts.protocol import native
from rtts.protocol.events import Audio, Auth, Error, Resume
from rtts.server.hub import Hub, SessionHost
from rtts.server.websocket import WebSocket
from rtts.session import Closing, DeliveryMarker

# A session that is closing gets this long to get its last messages out to a slow reader.
LAST_WORDS_S = 2.0
# Audio messages that are there already share a write: handing one to the kernel takes 20 to 30 us.
TOGETHER = 4
# Close codes of a client that means it: normal, going away (a page was left), and the close of a
# browser that names no code. Any other loss may be followed by a resume.
_ON_PURPOSE = (1000, 1001, 1005)


class _Phase(Enum):
    AUTH = auto()  # the key is still to come
    FIRST = auto()  # nothing was received: a resume is possible
    OPEN = auto()
    CLOSED = auto()  # a close was sent, or the socket is gone


class Connection:
    """The socket side of a session. A `WebSocketHandler` and an `Outlet`.

    Owner: event loop.
    """

    def __init__(
        self,
        hub: Hub,
        socket: WebSocket,
        codec: native.NativeCodec,
        *,
        accepts_key: Callable[[str], bool],
        on_closed: Callable[[], None],
    ) -> None:
        """Take an accepted socket; `open` or `await_key` begins.

        Args:
            accepts_key: Whether a key sent in the first message is right.
            on_closed: Called once when the socket is gone.
        """
        self._hub = hub
        self._socket = socket
        self._codec = codec
        self._accepts_key = accepts_key
        self._on_closed = on_closed
        self._phase = _Phase.AUTH
        self._host: SessionHost | None = None  # set once authorised
        self._timer: asyncio.TimerHandle | None = None  # the key's, then the last words'
        self._unsent_bytes = 0  # as last told to the session
        self._is_flushing = False
        self._admit: Callable[[], None] | None = None  # set by await_key

    # --- beginnings -----------------------------------------------------------------------------

    def open(self) -> None:
        """Begin the session and greet."""
        self._phase = _Phase.FIRST
        self._host = host = self._hub.open(self)
        try:
            host.session.greet(self._codec.subprotocol, self._hub.clock())
        except Exception:  # noqa: BLE001 - the connection is a task root
            self._hub.broke(host)
            return
        self._hub.pump(host)

    def await_key(self, timeout_s: float, admit: Callable[[], None]) -> None:
        """Begin with the client's `auth` message, which has to come soon.

        Args:
            timeout_s: How soon.
            admit: Called when the key is right; raises `CapacityError` if there is no place.
        """
        self._admit = admit
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._key_is_late)

    def _key_is_late(self) -> None:
        self._timer = None
        self.refuse(AuthTimeoutError("no key came in time; send an auth message first"))

    def _check_key(self, data: bytes) -> None:
        try:
            message = self._codec.decode(data)
            if not isinstance(message, Auth) or not self._accepts_key(message.token):
                raise AuthError(
                    "the API key is not valid"
                    if isinstance(message, Auth)
                    else "this server needs an API key; send an auth message first"
                )
            if self._admit is not None:
                self._admit()
        except RttsError as error:
            self.refuse(error)
            return
        self._stop_timer()
        self.open()

    # --- the socket's calls ---------------------------------------------------------------------

    def on_text(self, data: bytes) -> None:
        """See `WebSocketHandler`."""
        if self._phase is _Phase.AUTH:
            self._check_key(data)
            return
        host = self._host
        if host is None or self._phase is _Phase.CLOSED:
            return
        try:
            self._receive(host, data)
        except Exception:  # noqa: BLE001 - the connection is a task root
            self._hub.broke(self._host or host)
            return
        # Not `host`: a resume has put another one in its place.
        if self._host is not None:
            self._hub.pump(self._host)

    def _receive(self, host: SessionHost, data: bytes) -> None:
        session, now = host.session, self._hub.clock()
        limit = self._hub.options.max_message_bytes
        if len(data) > limit:
            error = MessageTooBigError(f"a message of {len(data)} bytes; the limit is {limit}")
            session.reject(error, now)
            return
        try:
            message = self._codec.decode(data)
        except ProtocolError as wrong:
            self._phase = _Phase.OPEN
            session.reject(wrong, now, ctx=wrong.ctx, ref=wrong.ref)
            return
        if isinstance(message, Resume) and self._phase is _Phase.FIRST:
            self._phase = _Phase.OPEN
            self._resume(host, message, now)
            return
        if not isinstance(message, Auth):  # a key nobody asked for is not the first word yet
            self._phase = _Phase.OPEN
        session.receive(message, now)

    def _resume(self, host: SessionHost, message: Resume, now: float) -> None:
        former = self._hub.find(message.token)
        if former is None or former is host:
            error = ResumeFailedError("no session waits for this token; this one is new")
            host.session.reject(error, now, ref=message.id)
            return
        self._hub.take_over(former, self)
        self._host = former
        self._unsent_bytes = 0
        self._hub.discard(host)
        former.session.resumed(message.acks, now)

    def on_binary(self) -> None:
        """See `WebSocketHandler`. The client sends text only (RFC 6455 section 7.4.1: 1003)."""
        self._close(1003, "text messages only")

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
        """See `WebSocketHandler`."""
        del reason
        self._gone(is_resumable=code not in _ON_PURPOSE)

    # --- the hub's calls ------------------------------------------------------------------------

    def flush(self) -> None:
        """See `Outlet`: write what the session has, straight into the kernel."""
        host = self._host
        if host is None or self._phase is _Phase.CLOSED or self._is_flushing:
            return
        self._is_flushing = True
        try:
            is_all = self._write_messages(host)
        finally:
            self._is_flushing = False
        unsent = self._socket.write_buffer_size()
        if unsent != self._unsent_bytes:
            self._unsent_bytes = unsent
            host.session.unsent(unsent, self._hub.clock())
        closing = host.session.closing
        if closing is None:
            return
        if is_all:
            self._close(native.close_code(closing.code), closing.reason)
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LAST_WORDS_S, self._close_unheard, closing)

    def _close_unheard(self, closing: Closing) -> None:
        """The last words do not get out: the error they hold is counted here instead."""
        if closing.code:
            self._hub.metrics.errors.labels(closing.code).inc()
        self._close(native.close_code(closing.code), closing.reason)

    def _write_messages(self, host: SessionHost) -> bool:
        """Returns whether the session has nothing more to say."""
        session, socket, clock = host.session, self._socket, self._hub.clock
        is_all, n_held = False, 0
        while socket.is_writable:
            message = session.next_message(clock())
            if message is None:
                is_all = True
                break
            if isinstance(message, DeliveryMarker):
                socket.send_marker(message.marker, more=True)
            else:
                # What comes before audio goes out with it, and first audio waits for nothing.
                n_held += isinstance(message, Audio)
                holds = not isinstance(message, Audio) or (message.seq and n_held < TOGETHER)
                socket.send_now(self._encode(message), more=bool(holds))
                n_held = n_held if holds else 0
            session.sent(message, clock())
        socket.flush()
        return is_all

    def _encode(self, message: Any) -> str | bytes:
        if isinstance(message, Error):
            self._hub.metrics.errors.labels(message.code).inc()
        return self._codec.encode(message)

    def replaced(self) -> None:
        """See `Outlet`."""
        self._host = None
        self.refuse(SessionReplacedError("another connection resumed this session"))

    def failed(self) -> None:
        """See `Outlet`."""
        self._host = None
        self._say_and_close("internal", "the server failed; this is not your fault")

    # --- endings --------------------------------------------------------------------------------

    def refuse(self, error: RttsError) -> None:
        """Say why and close."""
        self._say_and_close(error.code, error.message, error.retry_after_s)

    def _say_and_close(self, code: str, text: str, retry_after_s: float | None = None) -> None:
        retry_after_ms = None if retry_after_s is None else round(1000 * retry_after_s)
        message = Error(code=code, message=text, fatal=True, retry_after_ms=retry_after_ms)
        self._socket.send_now(self._encode(message))
        self._close(native.close_code(code), text)

    def _close(self, code: int, reason: str) -> None:
        self._socket.close(code, reason)
        self._gone()

    def _gone(self, *, is_resumable: bool = True) -> None:
        """The socket is of no more use to the session."""
        if self._phase is _Phase.CLOSED:
            return
        self._phase = _Phase.CLOSED
        self._stop_timer()
        host, self._host = self._host, None
        if host is not None:
            self._hub.lost(host, is_resumable=is_resumable)
        self._on_closed()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
