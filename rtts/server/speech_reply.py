"""One HTTP request that is answered with speech: the response body is written as it is spoken.

The same discipline as for sockets: audio is written in the callback that brought it, what the client
does not take waits in the session, and a client that goes away has cancelled. HTTP has nothing like
a pong, so delivery is confirmed when the kernel has taken everything. Until the first piece of body
an error is a status and the surface's own words; after it the body is cut off. Knows no engine and
none of the protocols.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rtts.errors import (
    InternalError,
    ProtocolError,
    ShuttingDownError,
    SlowConsumerError,
)
from rtts.protocol import native
from rtts.protocol.dialect import Hangup, Reply, SpeechDialect
from rtts.protocol.events import AnyServerMessage, Done, Error, Started
from rtts.server.exchange import Exchange
from rtts.server.filler import Filler
from rtts.server.handshake import said
from rtts.server.hub import Hub, SessionHost
from rtts.session import DeliveryMarker, SessionOptions

# nginx holds a body back unless it is told not to.
_STREAM_HEADERS = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


class SpeechReply:
    """The HTTP side of a session with one context. An `ExchangeHandler` and an `Outlet`.

    Owner: event loop.
    """

    def __init__(
        self,
        hub: Hub,
        exchange: Exchange,
        dialect: SpeechDialect,
        *,
        options: SessionOptions,
        headers: list[tuple[bytes, bytes]],
        refuse: Callable[[Error], Reply],
        on_closed: Callable[[], None],
    ) -> None:
        """Take a request that was read; `open` begins.

        Args:
            options: Of the session.
            headers: For every response.
            refuse: The surface's words for an error, headers and all.
            on_closed: Called once when the response is complete or cut off.
        """
        self._hub = hub
        self._exchange = exchange
        self._dialect = dialect
        self._options = options
        self._headers = headers
        self._refuse = refuse
        self._on_closed = on_closed
        self._host: SessionHost | None = None  # until it is over
        self._filler = Filler()
        self._started: Started | None = None
        self._has_head = False
        self._error: Error | None = None  # why nothing is spoken
        self._hangup: Hangup | None = None
        self._markers: list[int] = []  # not yet confirmed
        self._patience: asyncio.TimerHandle | None = None  # armed while the client takes nothing
        self._is_flushing = False

    def open(self) -> None:
        """Begin the session and speak."""
        self._host = host = self._hub.open(self, options=self._options, surface=self._dialect.name)
        now = self._hub.clock()
        try:
            for message in self._dialect.messages():
                host.session.receive(native.check(message), now)
        except ProtocolError as error:
            self._hub.discard(host)
            self._say(said(error))
            return
        except Exception:  # noqa: BLE001 - the connection is a task root
            self._hub.broke(host)
            return
        self._hub.pump(host)

    # --- the exchange's calls -------------------------------------------------------------------

    def on_writable(self) -> None:
        """See `ExchangeHandler`."""
        if self._host is not None and not self._is_flushing:
            self._hub.pump(self._host)

    def on_lost(self) -> None:
        """See `ExchangeHandler`. Nobody listens: that is a cancel."""
        self._gone()

    # --- the hub's calls ------------------------------------------------------------------------

    def flush(self) -> None:
        """See `Outlet`: write what there is, straight into the kernel."""
        host = self._host
        if host is None or self._is_flushing:
            return
        self._is_flushing = True
        try:
            is_all = self._write_messages(host)
        finally:
            self._is_flushing = False
        if self._hangup is not None:
            self._end(self._hangup)
        elif is_all and host.session.closing is not None:
            reason = host.session.closing.reason
            self._say(self._error or said(ShuttingDownError(reason)))
        else:
            self._watch()

    def _write_messages(self, host: SessionHost) -> bool:
        """Returns whether there is nothing more to say."""
        session, exchange, clock = host.session, self._exchange, self._hub.clock
        is_all = False
        while exchange.is_writable and self._hangup is None:
            message = session.next_message(clock())
            if message is None:
                is_all = True
                break
            if isinstance(message, DeliveryMarker):
                self._markers.append(message.marker)
            else:
                for each in self._filler.fill(message):
                    self._write(each)
            session.sent(message, clock())
        if self._markers and not exchange.write_buffer_size():
            last = self._markers[-1]
            self._markers.clear()
            session.delivered(last, clock())
        return is_all

    def _write(self, message: AnyServerMessage) -> None:
        if isinstance(message, Started):
            self._started = message
        elif isinstance(message, Error):
            self._hub.metrics.errors.labels(message.code).inc()
            self._error = message
        elif isinstance(message, Done) and message.reason == "shutdown" and self._error is None:
            self._error = said(ShuttingDownError("the server is shutting down"))
            if self._has_head:  # who reads events is told why they end
                self._pass_on(self._error)
        if not self._has_head and isinstance(message, Error | Done) and self._error is not None:
            self._hangup = Hangup(1011)
            return
        self._pass_on(message)

    def _pass_on(self, message: AnyServerMessage) -> None:
        for step in self._dialect.send(message):
            if self._hangup is not None:
                return
            if isinstance(step, Hangup):
                self._hangup = step
                return
            if isinstance(step, str | bytes) and step:
                self._begin()
                self._exchange.write(step.encode() if isinstance(step, str) else step)

    def _begin(self) -> None:
        if self._has_head:
            return
        assert self._started is not None, "a context speaks after it has started"
        self._has_head = True
        head = self._dialect.head(self._started)
        fields = (("content-type", head.content_type), *head.headers)
        headers = [(name.encode(), value.encode()) for name, value in fields]
        self._exchange.start(200, [*self._headers, *headers, *_STREAM_HEADERS])

    def _watch(self) -> None:
        """A client that takes nothing for too long is cut off."""
        if self._exchange.is_writable:
            self._be_patient()
        elif self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._options.slow_consumer_s, self._too_slow)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _too_slow(self) -> None:
        self._patience = None
        self._hub.metrics.errors.labels(SlowConsumerError.code).inc()
        self._end(Hangup(1008))

    def replaced(self) -> None:
        """See `Outlet`. Does not happen: nothing here can be resumed."""
        self._end(Hangup(1011))

    def failed(self) -> None:
        """See `Outlet`."""
        self._host = None
        self._say(said(InternalError("the server failed; this is not your fault")))

    # --- endings --------------------------------------------------------------------------------

    def _end(self, hangup: Hangup) -> None:
        if not self._has_head:
            self._say(self._error or said(InternalError("nothing was spoken")))
        elif hangup.code == 1000:
            self._exchange.finish()
            self._gone()
        else:
            self._exchange.abort()
            self._gone()

    def _say(self, error: Error) -> None:
        """Answer with an error, or cut off what was begun."""
        if self._has_head:
            self._exchange.abort()
        else:
            self._has_head = True
            reply = self._refuse(error)
            headers = [(name.encode(), value.encode()) for name, value in reply.headers]
            length = (b"content-length", str(len(reply.body)).encode())
            self._exchange.start(reply.status, [*self._headers, *headers, length])
            self._exchange.write(reply.body)
            self._exchange.finish()
        self._gone()

    def _gone(self) -> None:
        self._be_patient()
        host, self._host = self._host, None
        if host is not None:
            self._hub.lost(host, is_resumable=False)
        self._on_closed()
