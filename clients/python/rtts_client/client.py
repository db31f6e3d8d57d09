"""The connection: one socket, many contexts, reconnected and resumed when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import re
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from rtts_client.context import Context, TextSource
from rtts_client.errors import ConnectError, ConnectionLostError, ContextFailedError, RttsError
from rtts_client.messages import (
    Audio,
    ContextError,
    ContextOptions,
    Done,
    Format,
    GoingAway,
    Message,
    Pong,
    Ready,
    Resumed,
    ResumedContext,
    Started,
    decode,
    encode,
)

_LOG = logging.getLogger("rtts_client")
# Codes after which trying again is of use; others say that something is wrong with this client.
_TRY_AGAIN = frozenset((1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014))
FIRST_BACKOFF_S = 0.05
LAST_BACKOFF_S = 2.0
# Of the protocol's `ctx`: control characters, and halves of surrogate pairs.
_LONGEST_NAME = 128
_UNNAMEABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def connect(
    url: str,
    *,
    api_key: str | None = None,
    protocol: str = "rtts.v1",
    open_timeout_s: float = 10.0,
    give_up_s: float = 30.0,
    keepalive_s: float = 5.0,
    **websocket_options: Any,
) -> Client:
    """A client for `async with`.

    Args:
        url: `ws://host:8765/v1/tts`, or wss.
        api_key: Sent as `Authorization: Bearer`.
        protocol: "rtts.v1", or "rtts.v1.json" to read along on the wire.
        open_timeout_s: For one attempt to connect.
        give_up_s: A lost connection is tried again for this long.
        keepalive_s: How often the socket is checked; a dead one is noticed within twice this.
        websocket_options: For `websockets.connect`: `ssl`, `proxy`, `additional_headers`, ...
    """
    headers = dict(websocket_options.pop("additional_headers", None) or {})
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    options = {
        "subprotocols": [protocol],
        "additional_headers": headers,
        "compression": None,
        "open_timeout": open_timeout_s,
        "ping_interval": keepalive_s,
        "ping_timeout": keepalive_s,
        "close_timeout": 1.0,
        "max_size": 2**22,
    } | websocket_options
    return Client(url, options, open_timeout_s, give_up_s)


class Client:
    """A connection to a server, made by `connect`; an async context manager.

    Attributes:
        ready: What the server offers.
        goaway: Set when the server asked to go away: finish, and connect anew for the next reply.
    """

    ready: Ready

    def __init__(
        self, url: str, options: dict[str, Any], open_timeout_s: float, give_up_s: float
    ) -> None:
        self.goaway: GoingAway | None = None
        self._url = url
        self._options = options
        self._open_timeout_s = open_timeout_s
        self._give_up_s = give_up_s
        self._ws: ClientConnection | None = None
        self._contexts: dict[str, Context] = {}
        self._streams: dict[int, Context] = {}
        self._turns: deque[Context] = deque()
        self._posts: deque[tuple[str, Context | None]] = deque()  # whose playback it tells of
        self._n_sessions = 0
        self._pings: dict[int, asyncio.Future[float]] = {}
        self._n_contexts = 0
        self._n_pings = 0
        self._wake = asyncio.Event()  # there may be something to send
        self._connected = asyncio.Event()
        self._wanted = asyncio.Event()  # a context was opened
        self._fatal: ContextError | None = None
        self._dead: RttsError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._tokens = 0.0  # messages that may be sent now
        self._tokens_at = 0.0

    async def __aenter__(self) -> Self:
        await self._open(None)
        self._tasks = [
            asyncio.create_task(self._read_forever()),
            asyncio.create_task(self._write_forever()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._stopped)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; contexts that still run fail. A second time does nothing."""
        ws = self._ws
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if ws is not None:
            with contextlib.suppress(ConnectionClosed):
                await ws.send(encode("close"))
            await asyncio.gather(ws.close(), _drain(ws))
        self._fail(ConnectionLostError("closed", "the client was closed"))

    @property
    def is_usable(self) -> bool:
        """Whether a new context may be opened: not closed, not lost, not asked to go away."""
        return self._dead is None and self.goaway is None

    @property
    def n_contexts(self) -> int:
        """Contexts that have not ended."""
        return len(self._contexts)

    def context(
        self,
        *,
        buffer_s: float = 10.0,
        max_buffer_s: float = 120.0,
        reports: bool = True,
        name: str | None = None,
        **options: Any,
    ) -> Context:
        """A new context for `async with`.

        Args:
            buffer_s: Audio that may wait to be read; beyond it the server is told to hold on.
            max_buffer_s: Audio at which the context is cancelled with `SlowReaderError` instead.
            reports: Report the first-packet latency measured here to the server.
            name: What the wire calls it; by default a new one.
            options: Fields of `ContextOptions`: voice, language, format, chunking, speed, ...

        Raises:
            ValueError: `name` is longer than 128 characters, or has control characters in it.
        """
        if name and (len(name) > _LONGEST_NAME or _UNNAMEABLE.search(name)):
            # The server could not say for which context it refuses a name like that.
            raise ValueError(f"{name!r}: a name has 1 to 128 characters, none a control character")
        self._n_contexts += 1
        return Context(
            self,
            name or f"c{self._n_contexts}",
            ContextOptions(**options),
            buffer_s=buffer_s,
            max_buffer_s=max_buffer_s,
            reports=reports,
        )

    async def save(self, text: TextSource, path: str | Path, **options: Any) -> Done:
        """Speak `text` into a file: Ogg Opus (`.ogg`, `.opus`) or WAV (`.wav`)."""
        suffix = Path(path).suffix.lower()
        formats = {
            ".ogg": Format("opus", "ogg"),
            ".opus": Format("opus", "ogg"),
            ".wav": Format("pcm_s16le", "wav"),
        }
        if suffix not in formats:
            raise ValueError(f"{path}: the file must end in {', '.join(formats)}")
        options = {"format": formats[suffix], "max_lead_ms": 0, **options}
        async with self.context(**options) as context:
            return await context.save(path, text)

    async def ping(self) -> float:
        """Seconds a message needs to the server and back."""
        self._check_alive()
        self._n_pings += 1
        answered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._pings[self._n_pings] = answered
        sent_at = asyncio.get_running_loop().time()
        self._post(encode("ping", t=self._n_pings))
        return await answered - sent_at

    # --- opening, losing, resuming -----------------------------------------------------------

    async def _open(self, token: str | None) -> dict[str, ResumedContext] | None:
        """Open a socket; resume with `token`. Returns where contexts stand, None if it is new."""
        try:
            ws = await open_websocket(self._url, **self._options)
        except InvalidStatus as refusal:
            raise _refused(refusal) from None
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise ConnectError("unreachable", str(error) or type(error).__name__) from error
        try:
            async with asyncio.timeout(self._open_timeout_s):
                standing = await self._greet(ws, token)
        except (TimeoutError, ValueError, ConnectionClosed) as error:
            await ws.close()
            fatal, self._fatal = self._fatal, None
            if fatal is not None:
                raise ConnectError(fatal.code, fatal.message, fatal.retry_after_s) from None
            raise ConnectError("no_answer", str(error) or "the server said nothing") from error
        self._ws = ws
        limits = self.ready.limits
        self._tokens = limits.max_messages_per_s / 2
        self._tokens_at = asyncio.get_running_loop().time()
        return standing

    async def _greet(
        self, ws: ClientConnection, token: str | None
    ) -> dict[str, ResumedContext] | None:
        if token is not None:
            acks = {context.name: context._last_seq for context in self._contexts.values()}
            await ws.send(encode("resume", token=token, acks=acks))
        ready: Ready | None = None
        is_refused = False
        while True:
            message = decode(await ws.recv())
            if isinstance(message, Ready):
                ready = message
            elif isinstance(message, Resumed):
                return message.contexts
            elif isinstance(message, ContextError):
                is_refused = message.code == "resume_failed"
                self._fatal = message if message.fatal else self._fatal
            if ready is not None and (token is None or is_refused):
                self.ready = ready
                self.goaway = None
                self._n_sessions += 1
                return None

    async def _read_forever(self) -> None:
        standing: dict[str, ResumedContext] | None = None
        lost_at: float | None = None
        while True:
            if lost_at is not None:
                self._resume(standing, asyncio.get_running_loop().time() - lost_at)
            self._connected.set()
            code = await self._read_until_lost()
            lost_at = asyncio.get_running_loop().time()
            try:
                standing = await self._reconnect(code, lost_at)
            except RttsError as error:
                self._fail(error)
                return

    async def _read_until_lost(self) -> int:
        ws = self._ws
        assert ws is not None
        try:
            while True:
                self._receive(decode(await ws.recv()))
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006
        except ValueError as error:
            _LOG.error("the server sent what is not rtts.v1: %s", error)
            await ws.close(1002)
            return 1002
        finally:
            self._ws = None
            self._connected.clear()
            for ping in self._pings.values():
                if not ping.done():
                    ping.set_exception(ConnectionLostError("connection_lost", "no pong came"))
            self._pings.clear()

    async def _reconnect(self, code: int, lost_at: float) -> dict[str, ResumedContext] | None:
        fatal, self._fatal = self._fatal, None
        reason = fatal.code if fatal is not None else "connection_lost"
        is_idle = reason == "idle_timeout" or code == 1000
        if code not in _TRY_AGAIN and not is_idle:
            message = fatal.message if fatal is not None else f"closed with {code}"
            raise ConnectionLostError(reason, message, fatal.retry_after_s if fatal else None)
        if is_idle and not self._contexts:
            self._wanted.clear()
            await self._wanted.wait()
            lost_at = asyncio.get_running_loop().time()
        delay_s = FIRST_BACKOFF_S
        while True:
            offer = self.ready.resume if self._contexts else None
            try:
                return await self._open(offer.token if offer is not None else None)
            except ConnectError as error:
                if error.status is not None and error.status not in (429, 500, 502, 503, 504):
                    raise
                wait_s = max(error.retry_after_s or 0.0, delay_s * random.uniform(0.5, 1.5))
                if asyncio.get_running_loop().time() + wait_s - lost_at > self._give_up_s:
                    raise ConnectionLostError(
                        reason, f"gave up after {self._give_up_s:g} s: {error}"
                    ) from error
            await asyncio.sleep(wait_s)
            delay_s = min(2 * delay_s, LAST_BACKOFF_S)

    def _resume(self, standing: dict[str, ResumedContext] | None, away_s: float) -> None:
        """Bring every context to where the server is; without a standing the session is new."""
        self._streams.clear()
        for name, context in list(self._contexts.items()):
            known = (standing or {}).get(name)
            if known is not None:
                self._streams[known.stream] = context
            if not context._resume(known, away_s):
                self._forget(context)
        self._wake.set()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """Nobody may wait for a task that died of a bug, or with its event loop."""
        if task.cancelled():
            self._fail(ConnectionLostError("closed", "the client was closed"))
            return
        error = task.exception()
        if error is not None:
            _LOG.error("the client failed", exc_info=error)
            self._fail(ConnectionLostError("internal", repr(error)))

    def _fail(self, error: RttsError) -> None:
        self._dead = self._dead or error
        for context in list(self._contexts.values()):
            context._finish(ConnectionLostError(error.code, error.message, error.retry_after_s))
            self._forget(context)

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise ConnectionLostError(self._dead.code, self._dead.message, self._dead.retry_after_s)

    # --- messages in -------------------------------------------------------------------------

    def _receive(self, message: Message | None) -> None:
        context: Context | None
        if isinstance(message, Audio):
            context = self._streams.get(message.stream)
            if context is not None and not message.ctx:  # the binary form names the stream only
                message = msgspec.structs.replace(message, ctx=context.name)
        elif message is None or isinstance(message, Ready | Resumed | Pong | GoingAway):
            self._receive_own(message)
            return
        else:
            context = self._contexts.get(message.ctx or "")
        if context is None:
            if isinstance(message, ContextError):
                self._fatal = message if message.fatal else self._fatal
                _LOG.warning("the server says %s: %s", message.code, message.message)
            return
        if isinstance(message, Started):
            self._streams[message.stream] = context
        context._receive(message)
        if isinstance(message, Done):
            self._forget(context)

    def _receive_own(self, message: Message | None) -> None:
        """Take what is about no context."""
        if isinstance(message, GoingAway):
            self.goaway = message
            for context in self._contexts.values():
                context._receive(message)
        elif isinstance(message, Pong) and isinstance(message.t, int):
            answered = self._pings.pop(message.t, None)
            if answered is not None and not answered.done():
                answered.set_result(asyncio.get_running_loop().time())

    # --- messages out ------------------------------------------------------------------------

    def _register(self, context: Context) -> None:
        self._check_alive()
        if context.name in self._contexts:
            raise ContextFailedError("ctx_exists", f"context {context.name!r} is still running")
        self._contexts[context.name] = context
        self._turns.append(context)
        self._wanted.set()
        self._wake.set()

    def _forget(self, context: Context) -> None:
        if self._contexts.get(context.name) is context:
            del self._contexts[context.name]
            self._turns.remove(context)
            self._streams = {n: c for n, c in self._streams.items() if c is not context}

    def _post(self, message: str, context: Context | None = None) -> None:
        if self._dead is None:
            self._posts.append((message, context))
        self._wanted.set()
        self._wake.set()

    def _next_message(self) -> str | None:
        """What to send next: what is about no text first, then the contexts in turn."""
        while self._posts:
            post, of_context = self._posts.popleft()
            # A session knows its own contexts only, and closes the socket after ten mistakes.
            if of_context is None or of_context._session == self._n_sessions:
                return post
        for _ in range(len(self._turns)):
            context = self._turns[0]
            self._turns.rotate(-1)
            message = context._next_message()
            if message is not None:
                return message
        return None

    async def _write_forever(self) -> None:
        while True:
            await self._connected.wait()
            await self._keep_pace()
            self._wake.clear()
            ws = self._ws  # nothing may be awaited between here and `send`
            message = self._next_message() if ws is not None else None
            if ws is None or message is None:
                await self._wake.wait()
                continue
            self._tokens -= 1.0
            with contextlib.suppress(ConnectionClosed):  # the reader notices, resuming repairs
                await ws.send(message)

    async def _keep_pace(self) -> None:
        """Wait until one more message is within the server's rate; text meanwhile merges."""
        rate = self.ready.limits.max_messages_per_s
        now = asyncio.get_running_loop().time()
        self._tokens = min(rate / 2, self._tokens + (now - self._tokens_at) * rate * 0.9)
        self._tokens_at = now
        if self._tokens < 1.0:
            await asyncio.sleep((1.0 - self._tokens) / (rate * 0.9))
            self._tokens = 1.0


async def _drain(ws: ClientConnection) -> None:
    """Read what still comes: behind audio that nobody reads the answer to a close is not seen."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            await ws.recv()


def _refused(refusal: InvalidStatus) -> ConnectError:
    response = refusal.response
    status = response.status_code
    codes = {401: "unauthorized", 403: "forbidden", 429: "rate_limited", 503: "overloaded"}
    code, message = codes.get(status, "refused"), f"HTTP {status}"
    retry_after = response.headers.get("Retry-After", "")
    retry_after_s = float(retry_after) if retry_after.isdigit() else None
    with contextlib.suppress(ValueError, KeyError, TypeError):  # not our server's own words
        error = json.loads(response.body or b"")["error"]
        code, message = str(error["code"]), str(error["message"])
        retry_after_s = float(error["retry_after_ms"]) / 1000
    return ConnectError(code, message, retry_after_s, status=status)
