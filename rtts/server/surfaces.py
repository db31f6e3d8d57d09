"""The foreign surfaces at the door: which dialect answers, whom it lets in, how it says no.

One port, one gate, the same limits, places and readiness as for rtts.v1. Every refusal is an HTTP
status and a body in the surface's own shape, for WebSockets before the upgrade: agent frameworks give up
on a 401, retry a 503, and hang on a socket that opens and closes. Knows none of the protocols.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from rtts import __version__
from rtts.engine.interface import Capabilities
from rtts.errors import (
    AuthError,
    ConfigError,
    IdleTimeoutError,
    MessageTooBigError,
    OverloadedError,
    RttsError,
)
from rtts.metrics import Metrics
from rtts.protocol.dialect import (
    Dialect,
    House,
    Listing,
    Reply,
    Request,
    Route,
    SocketDialect,
    SpeechDialect,
)
from rtts.protocol.events import Error
from rtts.protocol.surfaces import RouteTable
from rtts.server.auth import Gate, header
from rtts.server.exchange import EXTENSION as EXCHANGE
from rtts.server.exchange import Exchange
from rtts.server.foreign import ForeignSocket
from rtts.server.handshake import Doorman, said
from rtts.server.hub import Hub
from rtts.server.options import ServerOptions
from rtts.server.readiness import Readiness
from rtts.server.speech_reply import SpeechReply
from rtts.server.websocket import EXTENSION as SOCKET
from rtts.server.websocket import WebSocket
from rtts.session import SessionOptions
from rtts.voices.aliases import AliasOptions, AliasTable

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

# A request holds a text, or a short recording to upload.
MAX_BODY_BYTES = 4_194_304
# How long the whole of it may take; it holds a place meanwhile.
BODY_TIMEOUT_S = 30.0
# Foreign clients cannot be told to wait with their text, and send a whole reply at once: they get a
# buffer of ten times rtts.v1's (40,000 characters, the most any of the hosted services takes).
TEXT_FACTOR = 10
# Some send word by word as fast as they can. The transport's limit is the same.
MESSAGES_PER_S = 1000
# Hosted services allow 5 to 20 contexts on a socket.
CONTEXTS = 20
# The pools of agent frameworks answer no pings while a socket idles: the connection is kept open for
# NATs, and nobody is closed for a missing pong.

log = logging.getLogger(__name__)


def foreign_options(options: SessionOptions) -> SessionOptions:
    """Limits of a session whose client knows nothing of ours."""
    return replace(
        options,
        max_text_chars=min(10_000_000, TEXT_FACTOR * options.max_text_chars),
        max_messages_per_s=max(MESSAGES_PER_S, options.max_messages_per_s),
        max_contexts=max(CONTEXTS, options.max_contexts),
        resume_window_s=0.0,
    )


class Surfaces:
    """Answers requests of foreign clients.

    Owner: event loop.
    """

    def __init__(
        self,
        *,
        gate: Gate,
        hub: Hub,
        doorman: Doorman,
        readiness: Readiness,
        options: ServerOptions,
        aliases: AliasOptions,
        metrics: Metrics,
        routes: RouteTable | None = None,
    ) -> None:
        self._gate = gate
        self._hub = hub
        self._doorman = doorman
        self._readiness = readiness
        self._options = options
        self._aliases = aliases
        self._metrics = metrics
        self._routes = routes or RouteTable()
        self._session_options = foreign_options(hub.options)
        self._house: House | None = None  # until the engine has said what it can do
        self._missing: list[str] = []  # aliases that mean nothing, as last logged

    def furnish(self, capabilities: Capabilities) -> None:
        """The engine has said what it can do, or its voices have changed.

        Raises:
            ConfigError: The alias table names a voice that the engine does not have and cannot get.
        """
        names = AliasTable(self._aliases, capabilities)
        if names.missing and not (capabilities.clones_voices or capabilities.designs_voices):
            raise ConfigError(names.missing[0])
        if names.missing != self._missing:
            for sentence in names.missing:  # it may be a user's voice, which comes and goes
                log.warning("%s now", sentence)
            self._missing = names.missing
        if self._house is None:
            self._house = House(
                capabilities=capabilities,
                names=names,
                new_id=lambda: secrets.token_hex(8),
                version=__version__,
            )
        self._house.capabilities, self._house.names = capabilities, names

    def find(self, scope: Scope) -> tuple[Route, dict[str, str]] | None:
        """The surface that answers a request, if one does."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = raw.decode("latin-1").partition("?")[0]
        if scope["type"] == "websocket":
            return self._routes.find("WS", path)
        return self._routes.find(scope["method"], path, _headers(scope))

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, found: tuple[Route, dict[str, str]]
    ) -> None:
        """Answer a request that `find` found."""
        route, params = found
        surface = route.surface
        request = _request(scope, params)
        if isinstance(surface, Listing):
            await self._list(scope, send, surface, request)
        elif issubclass(surface, SocketDialect):
            await self._talk(scope, receive, send, surface, request)
        else:
            await self._speak(scope, receive, send, surface, request)

    # --- lists ----------------------------------------------------------------------------------

    async def _list(self, scope: Scope, send: Send, listing: Listing, request: Request) -> None:
        try:
            self._admit(scope, listing.dialect, request)
            reply = listing.build(request, self._house_or_refuse())
        except RttsError as error:
            reply = self._turn_away(listing.dialect, error)
        await _respond(send, "http.response", reply, self._common(scope))

    # --- speech over HTTP -----------------------------------------------------------------------

    async def _speak(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        surface: type[SpeechDialect],
        request: Request,
    ) -> None:
        try:
            self._admit(scope, surface, request)
            house = self._ready_house()
            place = self._doorman.place(scope)
            try:
                body = await _read_body(receive)
                dialect = surface(replace(request, body=body), house)
            except BaseException:
                place.give_back()
                raise
        except RttsError as error:
            reply = self._turn_away(surface, error)
            await _respond(send, "http.response", reply, self._common(scope))
            return
        exchange: Exchange = scope["extensions"][EXCHANGE]
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        speech = SpeechReply(
            self._hub,
            exchange,
            dialect,
            options=self._session_options,
            headers=self._common(scope),
            refuse=lambda error: self._refusal(surface, error),
            on_closed=lambda: _resolve(closed),
        )
        self._metrics.connections_opened.labels(surface.name).inc()
        try:
            with self._doorman.counted(speech, exchange):
                exchange.attach(speech)
                if not closed.done():
                    speech.open()
                await closed
        finally:
            place.give_back()

    # --- sockets --------------------------------------------------------------------------------

    async def _talk(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        surface: type[SocketDialect],
        request: Request,
    ) -> None:
        await receive()  # websocket.connect
        try:
            has_key = self._admit(scope, surface, request)
            dialect = surface(request, self._ready_house())
            places = [self._doorman.place(scope, has_key=has_key)]
        except RttsError as error:
            reply = self._turn_away(surface, error)
            await _respond(send, "websocket.http.response", reply, [])
            return

        def admit() -> None:
            places.append(self._doorman.place(scope))
            places.pop(0).give_back()

        socket: WebSocket = scope["extensions"][SOCKET]
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection = ForeignSocket(
            self._hub,
            socket,
            dialect,
            options=self._session_options,
            accepts_key=self._gate.keys.accepts,
            on_closed=lambda: _resolve(closed),
        )
        try:
            selected = surface.subprotocol(request.subprotocols)
            headers = [(name.encode(), value.encode()) for name, value in dialect.headers]
            accept = {"type": "websocket.accept", "subprotocol": selected, "headers": headers}
            await send(accept)
            self._metrics.connections_opened.labels(surface.name).inc()
            with self._doorman.counted(connection, socket):
                if has_key:
                    connection.open()
                else:
                    connection.await_key(self._options.auth_timeout_s, admit)
                socket.attach(connection)
                connection.on_writable()
                await closed
        finally:
            for taken in places:
                taken.give_back()

    # --- who may come in, and what is said to those who may not ----------------------------------

    def _admit(self, scope: Scope, dialect: type[Dialect], request: Request) -> bool:
        """Returns whether the client has shown a key, or needs none."""
        headers = scope["headers"]
        self._gate.check_host(headers)
        self._gate.check_origin(headers)
        more = dialect.keys(request)
        if self._gate.authenticate(headers, request.subprotocols, more):
            return True
        if issubclass(dialect, SocketDialect) and dialect.takes_key_in_band:
            return False
        raise AuthError("this server needs an API key")

    def _ready_house(self) -> House:
        refusal = self._readiness.refusal(self._hub.clock())
        if refusal is not None:
            raise refusal
        return self._house_or_refuse()

    def _house_or_refuse(self) -> House:
        if self._house is None:
            raise OverloadedError("the engine has not started", retry_after_s=1.0)
        return self._house

    def _turn_away(self, dialect: type[Dialect], error: RttsError) -> Reply:
        self._metrics.refusals.labels(error.code).inc()
        return self._refusal(dialect, said(error))

    def _refusal(self, dialect: type[Dialect], error: Error) -> Reply:
        reply = dialect.refusal(error)
        headers = list(reply.headers)
        if error.retry_after_ms is not None:  # whole seconds (RFC 9110 section 10.2.3)
            headers.append(("retry-after", str(max(1, math.ceil(error.retry_after_ms / 1000)))))
        if reply.status == 401:
            headers.append(("www-authenticate", "Bearer"))
        return replace(reply, headers=tuple(headers))

    def _common(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Headers of every response: a page of an allowed origin may read it."""
        origin = header(scope["headers"], b"origin")
        if origin in self._gate.origins:
            return [(b"access-control-allow-origin", origin.encode()), (b"vary", b"Origin")]
        return []


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _request(scope: Scope, params: dict[str, str]) -> Request:
    query = scope["query_string"].decode("latin-1")
    return Request(
        method=scope.get("method", "GET"),
        path=scope["path"],
        params=params,
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers=_headers(scope),
        subprotocols=tuple(scope.get("subprotocols", ())),
    )


def _headers(scope: Scope) -> dict[str, str]:
    """By lower-case name; of a repeated one the first."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return headers


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return b""  # nobody is there to be told
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise MessageTooBigError(f"a request holds at most {MAX_BODY_BYTES} bytes")
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise IdleTimeoutError("the rest of the request did not come in time") from None


async def _respond(send: Send, kind: str, reply: Reply, headers: list[tuple[bytes, bytes]]) -> None:
    fields = [(name.encode(), value.encode()) for name, value in reply.headers]
    start = {"status": reply.status, "headers": [*headers, *fields]}
    length = (b"content-length", str(len(reply.body)).encode())
    if kind == "http.response":
        start["headers"] = [*headers, *fields, length]
    await send({"type": f"{kind}.start", **start})
    await send({"type": f"{kind}.body", "body": reply.body})
