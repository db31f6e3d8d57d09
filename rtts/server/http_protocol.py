"""uvicorn's HTTP protocol with the limits it leaves to a proxy: time and size of a request.

It also offers the app a direct road for bodies that are spoken (`Exchange`, in the scope's
extensions), as `rtts.server.transport` does for frames: ASGI's `send` has to be awaited in a task.

uvicorn waits for ever for a request that comes a byte at a time, holds headers of any length and
reads bodies nobody asked for. None of our clients does that. Knows nothing about routes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rtts.server.exchange import EXTENSION, ExchangeHandler
from rtts.server.tcp import tune

# Nginx and Apache allow 8 KiB a line and 32 KiB in all.
MAX_HEAD_BYTES = 32_768
# A body that comes after its answer is read this far, so that a small one does not cost the client
# its connection.
MAX_SURPLUS_BYTES = 65_536

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection, until it becomes a WebSocket. Owner: event loop."""

    def __init__(
        self,
        *args: Any,
        head_timeout_s: float = 10.0,
        max_connections: int = 2048,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._head_timeout_s = head_timeout_s
        self._max_connections = max_connections
        self._head_timer: asyncio.TimerHandle | None = None  # armed while a request's head is due
        self._head_bytes = 0  # received since the last complete head
        self._surplus_bytes = 0
        self._exchange: HttpExchange | None = None  # whose body is being spoken

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See uvicorn. A server that holds too many connections serves none of them well."""
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            transport.abort()
            return
        tune(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See uvicorn."""
        self._head_is_here()
        super().connection_lost(exc)
        if self._exchange is not None:
            self._exchange.connection_lost()

    def data_received(self, data: bytes) -> None:
        """See uvicorn."""
        self._head_bytes += len(data)
        super().data_received(data)
        # Counted after parsing: a complete head has reset the count, a body does not add to it.
        if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """See uvicorn. A further request on the connection has a deadline as well."""
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """See uvicorn."""
        self._head_is_here()
        exchange = HttpExchange(self)
        self.scope["extensions"] = {EXTENSION: exchange}  # type: ignore[dict-item]
        super().on_headers_complete()
        exchange.cycle = self.cycle

    def on_body(self, body: bytes) -> None:
        """See uvicorn."""
        super().on_body(body)
        if self.cycle.response_complete:
            self._surplus_bytes += len(body)
            if self._surplus_bytes > MAX_SURPLUS_BYTES:
                self.transport.close()

    def resume_writing(self) -> None:
        """See uvicorn."""
        super().resume_writing()
        if self._exchange is not None:
            self._exchange.resume_writing()

    def speak(self, exchange: HttpExchange) -> None:
        """From now on the news of the connection are those of this exchange."""
        self._exchange = exchange

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self._head_timeout_s, self._give_up)

    def _head_is_here(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        self.transport.abort()


class HttpExchange:
    """One request and its response. See `Exchange`. Owner: event loop."""

    def __init__(self, protocol: HttpProtocol) -> None:
        self.cycle: RequestResponseCycle | None = None  # set before the app runs
        self._protocol = protocol
        self._handler: ExchangeHandler | None = None  # set by attach, unset at the end
        self._is_unsized = False  # neither a length nor chunks say where the body ends

    @property
    def is_writable(self) -> bool:
        """See `Exchange`."""
        flow, transport = self._protocol.flow, self._protocol.transport
        return not flow.write_paused and not transport.is_closing()

    def write_buffer_size(self) -> int:
        """See `Exchange`."""
        transport = self._protocol.transport
        return 0 if transport.is_closing() else transport.get_write_buffer_size()

    def attach(self, handler: ExchangeHandler) -> None:
        """See `Exchange`. The app calls it once, when it has read the request."""
        assert self.cycle is not None, "the app runs after the head"
        if self.cycle.disconnected:
            handler.on_lost()
            return
        self._handler = handler
        # Not before: a request that came behind another one waits for its turn.
        self._protocol.speak(self)
        # As for WebSockets: what waits, waits in the session, where a cancel finds it.
        self._protocol.transport.set_write_buffer_limits(high=1, low=0)
        self._protocol.flow.resume_reading()  # or a client that goes is not seen going

    def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """See `Exchange`. A client of HTTP/1.0 knows no chunks: its body ends with the connection."""
        assert self.cycle is not None, "the app runs after the head"
        is_sized = any(name == b"content-length" for name, _ in headers)
        if self.cycle.scope["http_version"] == "1.0" and not is_sized:
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = sys.maxsize  # uvicorn counts down from it
            self._is_unsized = True
        self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    def write(self, data: bytes) -> None:
        """See `Exchange`."""
        self._send({"type": "http.response.body", "body": data, "more_body": True})

    def finish(self) -> None:
        """See `Exchange`."""
        self._handler = None
        if self._is_unsized and self.cycle is not None:
            self.cycle.expected_content_length = 0
        self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def abort(self) -> None:
        """See `Exchange`."""
        self._handler = None
        if self.cycle is not None:
            self.cycle.disconnected = True  # or uvicorn takes the missing end for an app's mistake
        self._protocol.transport.abort()

    def connection_lost(self) -> None:
        """The client is gone."""
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_lost()

    def resume_writing(self) -> None:
        """The kernel has taken everything."""
        if self._handler is not None and self.is_writable:
            self._handler.on_writable()

    def _send(self, message: Any) -> None:
        assert self.cycle is not None, "the app runs after the head"
        flow = self._protocol.flow
        # uvicorn's `send` waits for nothing but a paused transport. What one message of a session
        # writes is little, and the next is not fetched before the transport is writable again.
        was_paused, flow.write_paused = flow.write_paused, False
        _run_now(self.cycle.send(message))
        flow.write_paused = was_paused or flow.write_paused


def _run_now(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run what has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise RuntimeError("uvicorn's send waits for something")
