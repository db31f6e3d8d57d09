"""uvicorn's HTTP protocol with the limits it leaves to a proxy: time and size of a request.

uvicorn waits for ever for a request that comes a byte at a time, holds headers of any length and
reads bodies nobody asked for. None of our clients does that. Knows nothing about routes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See uvicorn."""
        super().on_body(body)
        if self.cycle.response_complete:
            self._surplus_bytes += len(body)
            if self._surplus_bytes > MAX_SURPLUS_BYTES:
                self.transport.close()

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
