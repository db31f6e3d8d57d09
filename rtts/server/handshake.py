"""Who gets a WebSocket: checks in order, and how a refusal is said.

A refusal is an HTTP status before the upgrade: clients of agent frameworks retry a 503 and give up
on a 401, but hang on a socket that opens and closes. Browsers are shown no status, nor is who
speaks through their interface elsewhere, so a request with an Origin, or with its key among the
subprotocols, is accepted, told what is wrong, and closed with the code that mirrors it. Knows
nothing about sessions or speech.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from rtts.errors import AuthError, BadRequestError, RttsError
from rtts.metrics import Metrics
from rtts.protocol import native
from rtts.protocol.events import Error
from rtts.server.auth import Gate, header
from rtts.server.connection import Connection
from rtts.server.exchange import Exchange
from rtts.server.figures import Figures
from rtts.server.hub import Hub
from rtts.server.limits import Place, Places
from rtts.server.options import ServerOptions
from rtts.server.readiness import Readiness
from rtts.server.stats import SUBPROTOCOL, Feed, encode, watch
from rtts.server.websocket import EXTENSION, WebSocket, clip_reason

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

# Native clients answer pings by themselves; without an answer for this long they are gone.
PONG_TIMEOUT_S = 20.0
# Sockets that have yet to show a key are few: whoever has none must not fill the house.
MAX_WITHOUT_KEY = 128
MAX_WITHOUT_KEY_PER_IP = 16


class Doorman:
    """Decides about WebSocket handshakes.

    Owner: event loop.
    """

    def __init__(
        self,
        *,
        gate: Gate,
        hub: Hub,
        readiness: Readiness,
        options: ServerOptions,
        metrics: Metrics,
        feed: Feed,
        figures: Figures,
    ) -> None:
        self.places = Places(most=options.max_sessions, most_per_client=options.max_sessions_per_ip)
        self._keyless = Places(
            most=MAX_WITHOUT_KEY, most_per_client=min(MAX_WITHOUT_KEY_PER_IP, options.max_sessions)
        )
        self._gate = gate
        self._hub = hub
        self._readiness = readiness
        self._options = options
        self._metrics = metrics
        self._feed = feed
        self._figures = figures
        self._open: dict[object, WebSocket | Exchange] = {}

    @property
    def connections(self) -> int:
        """Open connections that speak."""
        return len(self._open)

    @property
    def waiting_bytes(self) -> int:
        """Bytes in their write buffers."""
        return sum(socket.write_buffer_size() for socket in self._open.values())

    async def native(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a handshake for `/v1/tts`, and keep the connection until it closes."""
        offered = scope["subprotocols"]
        await receive()  # websocket.connect
        try:
            protocol = self._choose(offered)
            has_key = self._check(scope, offered)
            refusal = self._readiness.refusal(self._hub.clock())
            if refusal is not None:
                raise refusal
            place = self.place(scope, has_key=has_key)
        except RttsError as error:
            self._metrics.refusals.labels(error.code).inc()
            chosen = native.negotiate(offered)
            await refuse(scope, send, error, chosen if chosen in offered else None)
            return
        await self._serve(scope, send, protocol, place, has_key=has_key)

    def place(self, scope: Scope, *, has_key: bool = True) -> Place:
        """Take a place for a conversation, or for showing a key.

        Raises:
            CapacityError: There is none.
        """
        return (self.places if has_key else self._keyless).take(_address(scope))

    @contextlib.contextmanager
    def counted(self, connection: object, socket: WebSocket | Exchange) -> Iterator[None]:
        """Count a connection while it is open."""
        self._open[connection] = socket
        try:
            yield
        finally:
            del self._open[connection]

    async def _serve(
        self, scope: Scope, send: Send, protocol: str, place: Place, *, has_key: bool
    ) -> None:
        socket: WebSocket = scope["extensions"][EXTENSION]
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        places = [place]

        def admit() -> None:
            places.append(self.places.take(_address(scope)))
            places.pop(0).give_back()

        def on_closed() -> None:
            if not closed.done():
                closed.set_result(None)

        codec = native.NativeCodec(protocol)
        connection = Connection(
            self._hub, socket, codec, accepts_key=self._gate.keys.accepts, on_closed=on_closed
        )
        try:
            socket.expect_pongs(PONG_TIMEOUT_S)
            # Only what was offered may be selected (RFC 6455 section 4.2.2).
            selected = protocol if protocol in scope["subprotocols"] else None
            await send({"type": "websocket.accept", "subprotocol": selected})
            self._metrics.connections_opened.labels(protocol).inc()
            self._open[connection] = socket
            if has_key:
                connection.open()
            else:
                connection.await_key(self._options.auth_timeout_s, admit)
            socket.attach(connection)
            connection.on_writable()
            await closed
        finally:
            self._open.pop(connection, None)
            for taken in places:
                taken.give_back()

    async def stats(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a handshake for `WS /v1/stats`, and feed it until it closes."""
        offered = scope["subprotocols"]
        await receive()  # websocket.connect
        spoken = [name for name in offered if not name.startswith(native.AUTH_PREFIX)]
        selected = SUBPROTOCOL if SUBPROTOCOL in spoken else None
        try:
            if spoken and selected is None:
                raise BadRequestError(f"this path speaks {SUBPROTOCOL}")
            if not self._check(scope, offered):
                raise AuthError("this server needs an API key")
            watcher = self._feed.subscribe()
        except RttsError as error:
            self._metrics.refusals.labels(error.code).inc()
            await refuse(scope, send, error, selected)
            return
        # The page need not wait, and sees what was before it.
        watcher.push(encode({"type": "stats", **self._figures.snapshot()}))
        watcher.push(encode(self._figures.history()))
        try:
            socket: WebSocket = scope["extensions"][EXTENSION]
            socket.expect_pongs(PONG_TIMEOUT_S)
            await send({"type": "websocket.accept", "subprotocol": selected})
            await watch(receive, send, watcher)
        finally:
            self._feed.unsubscribe(watcher)

    def _choose(self, offered: list[str]) -> str:
        protocol = native.negotiate(offered)
        if protocol is None:
            raise BadRequestError(f"this server speaks {', '.join(native.SUBPROTOCOLS)}")
        return protocol

    def _check(self, scope: Scope, offered: list[str]) -> bool:
        """Returns whether the client has shown a key, or needs none."""
        self._gate.check_host(scope["headers"])
        self._gate.check_origin(scope["headers"])
        return self._gate.authenticate(scope["headers"], offered)


async def refuse(scope: Scope, send: Send, error: RttsError, subprotocol: str | None) -> None:
    """Say no to a handshake.

    Args:
        scope: ASGI.
        send: ASGI.
        error: Why.
        subprotocol: What to select if the socket has to be opened to be heard.
    """
    shows_key_as_browsers_do = any(
        offer.startswith(native.AUTH_PREFIX) for offer in scope.get("subprotocols", ())
    )
    if shows_key_as_browsers_do or header(scope["headers"], b"origin"):
        message = said(error)
        await send({"type": "websocket.accept", "subprotocol": subprotocol})
        text = msgspec.json.encode(message).decode()
        await send({"type": "websocket.send", "text": text})
        code = native.close_code(error.code)
        reason = clip_reason(error.message)
        await send({"type": "websocket.close", "code": code, "reason": reason})
        return
    status = native.http_status(error.code)
    await deny(send, status, error_body(error), headers=error_headers(error))


async def deny(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Answer a handshake with an HTTP response."""
    await send(
        {
            "type": "websocket.http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), *(headers or [])],
        }
    )
    await send({"type": "websocket.http.response.body", "body": body})


def said(error: RttsError) -> Error:
    """An error that ends what it is about, as a message."""
    return Error(
        code=error.code,
        message=error.message,
        fatal=True,
        retry_after_ms=_milliseconds(error.retry_after_s),
    )


def error_body(error: RttsError) -> bytes:
    """An error as JSON: `{"error": {"code", "message", "retry_after_ms"?}}`."""
    fields: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.retry_after_s is not None:
        fields["retry_after_ms"] = _milliseconds(error.retry_after_s)
    return msgspec.json.encode({"error": fields})


def error_headers(error: RttsError) -> list[tuple[bytes, bytes]]:
    """The headers an error brings: Retry-After, WWW-Authenticate."""
    headers: list[tuple[bytes, bytes]] = []
    if error.retry_after_s is not None:  # whole seconds (RFC 9110 section 10.2.3)
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s))).encode()))
    if native.http_status(error.code) == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(1000 * seconds)


def _address(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None
