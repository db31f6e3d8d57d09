"""A lean WebSocket client, so that hundreds of streams cost the load generator little.

One `asyncio.Protocol`, no queues, no tasks: what arrives is handed over with the time at which it
did. It costs 10 us a message, against 11 for picows, 17 for websockets' sans-I/O core and 25 for its
asyncio client (benchmarks/websocket_clients.py); most of it is the receive call. For plain `ws://`
only; its frames are masked with zeros.
"""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import time
from typing import Protocol, cast
from urllib.parse import urlsplit

OPCODE_CONTINUATION, OPCODE_TEXT, OPCODE_BINARY = 0x0, 0x1, 0x2
OPCODE_CLOSE, OPCODE_PING, OPCODE_PONG = 0x8, 0x9, 0xA


class HandshakeError(Exception):
    """The server refused the connection.

    Attributes:
        code: "http_503" and the like, or "unreachable".
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Listener(Protocol):
    """Who is told what arrives; `at` is `time.perf_counter()` of the receive call's return."""

    def on_text(self, data: bytes, at: float) -> None:
        """A text message."""

    def on_binary(self, data: bytes, at: float) -> None:
        """A binary message."""

    def on_closed(self, code: int) -> None:
        """The connection is gone."""


class Connection(asyncio.Protocol):
    """One WebSocket.

    Attributes:
        n_messages: Data messages received.
        n_bytes: Bytes received, framing included.
        close_code: Why it ended: the server's close code, 1006 without one; 0 while it is open.
    """

    def __init__(self, listener: Listener, host: str, path: str, headers: dict[str, str]) -> None:
        self._listener = listener
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.n_messages = 0
        self.n_bytes = 0
        self.close_code = 0
        self._request = self._handshake(host, path, headers)
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._fragments: list[bytes] = []
        self._fragmented = 0  # opcode of an unfinished message
        self._received_close = 0

    @staticmethod
    def _handshake(host: str, path: str, headers: dict[str, str]) -> bytes:
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    # --- transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(HandshakeError("unreachable", "closed during the handshake"))
            self.opened.exception()  # whoever waits still gets it; nobody need not
        self.close_code = self.close_code or self._received_close or 1006
        self._listener.on_closed(self.close_code)

    def data_received(self, data: bytes) -> None:
        at = time.perf_counter()
        self.n_bytes += len(data)
        if self._rest:
            data = self._rest + data
            self._rest = b""
        start = 0
        if not self.opened.done():
            start = self._read_response(data)
            if not start:
                return
        self._read_frames(data, start, at)

    def _read_response(self, data: bytes) -> int:
        """Where the frames begin; 0 if they do not."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._rest = data
            return 0
        status = data[9:12].decode("ascii", "replace")
        if status != "101":
            line = data[: data.find(b"\r\n")].decode("ascii", "replace")
            self.opened.set_exception(HandshakeError(f"http_{status}", line))
            self.opened.exception()
            self.abort()
            return 0
        self.opened.set_result(None)
        return end + 4

    def _read_frames(self, data: bytes, start: int, at: float) -> None:
        size = len(data)
        while size - start >= 2:
            length, body = data[start + 1] & 0x7F, start + 2
            if length == 126:
                length, body = int.from_bytes(data[start + 2 : start + 4], "big"), start + 4
            elif length == 127:
                length, body = int.from_bytes(data[start + 2 : start + 10], "big"), start + 10
            if body + length > size:
                break
            self._take(data[start], data[body : body + length], at)
            start = body + length
        self._rest = data[start:]

    def _take(self, first: int, payload: bytes, at: float) -> None:
        opcode, is_final = first & 0x0F, first & 0x80
        if opcode == OPCODE_BINARY and is_final:
            self.n_messages += 1
            self._listener.on_binary(payload, at)
        elif opcode == OPCODE_TEXT and is_final:
            self.n_messages += 1
            self._listener.on_text(payload, at)
        elif opcode == OPCODE_PING:
            self._send(OPCODE_PONG, payload)
        elif opcode == OPCODE_CLOSE:
            self._received_close = int.from_bytes(payload[:2], "big") or 1005
            self._send(OPCODE_CLOSE, payload[:2])
            self._close_transport()
        elif opcode in (OPCODE_CONTINUATION, OPCODE_TEXT, OPCODE_BINARY):
            self._take_fragment(opcode, payload, is_final, at)

    def _take_fragment(self, opcode: int, payload: bytes, is_final: int, at: float) -> None:
        self._fragmented = opcode or self._fragmented
        self._fragments.append(payload)
        if is_final:
            whole, self._fragments = b"".join(self._fragments), []
            self._take(0x80 | self._fragmented, whole, at)

    # --- sending -----------------------------------------------------------------------------

    def send_text(self, data: bytes) -> float:
        """Send a text message; returns when it was handed to the socket."""
        self._send(OPCODE_TEXT, data)
        return time.perf_counter()

    def close(self) -> None:
        """Say goodbye and hang up."""
        self._send(OPCODE_CLOSE, struct.pack("!H", 1000))
        self._close_transport()

    def abort(self) -> None:
        """Hang up without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _close_transport(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _send(self, opcode: int, payload: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 65_536:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        self._transport.write(head + b"\0\0\0\0" + payload)


async def open_connection(
    url: str,
    listener: Listener,
    *,
    protocol: str,
    api_key: str | None = None,
    timeout_s: float = 10.0,
) -> Connection:
    """Open a connection.

    Raises:
        HandshakeError: The server refused, said nothing, or is not there.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    headers = {"Sec-WebSocket-Protocol": protocol}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(listener, f"{host}:{port}", parts.path or "/", headers),
                host,
                port,
            )
            await connection.opened
    except OSError as error:
        code = "handshake_timeout" if isinstance(error, TimeoutError) else "unreachable"
        raise HandshakeError(code, str(error)) from error
    return connection
