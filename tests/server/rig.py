"""A real server on a free port, with an engine that lives on the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rtts.engine.interface import (
    Command,
    EngineDown,
    Event,
    LoadVoice,
    StartUtterance,
    UtteranceFailed,
    VoiceFailed,
)
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.server import Server, ServerOptions
from rtts.session import SessionOptions
from rtts.voices.aliases import AliasOptions


class InlineEngine:
    """Hosts a tone core on the event loop: no thread, and a test decides when it works."""

    def __init__(self, options: ToneOptions | None = None, *, starts: bool = True) -> None:
        self.options = options or ToneOptions()
        self.commands: list[Command] = []
        self.failing_voices: set[str] = set()
        self.is_held = False
        self.is_closed = False
        self._starts = starts
        self._core: ToneEngine | None = None
        self._live: set[int] = set()
        self._deliver: Callable[[Sequence[Event]], None] | None = None

    async def start(self, deliver: Callable[[Sequence[Event]], None]) -> None:
        self._deliver = deliver
        if self._starts:
            self.come_up()

    def submit(self, commands: Sequence[Command]) -> None:
        self.commands += commands
        for command in commands:
            if isinstance(command, LoadVoice) and command.voice in self.failing_voices:
                self._say([VoiceFailed(command.voice, "utterance_failed", "its file is broken")])
            elif self._core is not None:
                self._core.apply(command)
            elif isinstance(command, StartUtterance):
                self._say([UtteranceFailed(command.utterance_id, "engine_dead", "it is dead")])
        self._work_soon()

    async def close(self) -> None:
        self._core, self.is_closed = None, True

    def come_up(self) -> None:
        self._core = ToneEngine(self.options)
        self._work_soon()

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
        self._work_soon()

    def die(self, restart_in_s: float = 5.0) -> None:
        self._core = None
        live, self._live = self._live, set()
        failed = [UtteranceFailed(each, "engine_dead", "it died", True) for each in sorted(live)]
        self.say([*failed, EngineDown("it died", restart_in_s)])

    def say(self, events: Sequence[Event]) -> None:
        assert self._deliver is not None
        self._deliver(events)

    def _say(self, events: Sequence[Event]) -> None:
        asyncio.get_running_loop().call_soon(self.say, events)

    def _work_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        if self._core is None or self.is_held or not self._core.has_work():
            return
        now = time.monotonic()
        events = list(self._core.step(now))
        for event in events:
            utterance = getattr(event, "utterance_id", None)
            if utterance is not None:
                self._live.add(utterance)
            if type(event).__name__ in ("UtteranceFinished", "UtteranceFailed"):
                self._live.discard(utterance)
        if events:
            self.say(events)
        if self._core is not None and self._core.has_work():
            due = self._core.next_due_s(now)
            wait_s = 0.0 if due is None else max(0.0, due - now)
            asyncio.get_running_loop().call_later(wait_s, self._work)


@contextlib.asynccontextmanager
async def started(
    engine: Any = None,
    *,
    session: SessionOptions | None = None,
    aliases: AliasOptions | None = None,
    **options: Any,
) -> AsyncIterator[Server]:
    """A server that listens; it may not be ready yet."""
    server = Server(
        ServerOptions(port=0, **options),
        engine or InlineEngine(),
        session_options=session,
        aliases=aliases,
    )
    try:
        await server.start()
        yield server
    finally:
        await server.shutdown(0.0)


@contextlib.asynccontextmanager
async def ready(engine: Any = None, **rest: Any) -> AsyncIterator[Server]:
    """A server that is ready."""
    async with started(engine, **rest) as server:
        async with asyncio.timeout(10):
            await server.ready()
        yield server


class Talk:
    """A native client over `websockets`."""

    def __init__(self, ws: ClientConnection) -> None:
        self.ws = ws

    async def say(self, kind: str, **fields: Any) -> None:
        await self.ws.send(json.dumps({"type": kind, **fields}))

    async def next(self) -> Any:
        """The next message: a dict, or bytes."""
        async with asyncio.timeout(5):
            message = await self.ws.recv()
        return message if isinstance(message, bytes) else json.loads(message)

    async def until(self, kind: str) -> tuple[dict[str, Any], list[Any]]:
        """The next message of a type, and everything before it."""
        before = []
        while True:
            message = await self.next()
            if isinstance(message, dict) and message["type"] == kind:
                return message, before
            before.append(message)

    async def closed(self) -> tuple[int, str, list[Any]]:
        """Close code, reason, and everything before."""
        before = []
        try:
            while True:
                before.append(await self.next())
        except ConnectionClosed as closed:
            assert closed.rcvd is not None, "closed without a close frame"
            return closed.rcvd.code, closed.rcvd.reason, before


@contextlib.asynccontextmanager
async def talking(server: Server, *, greeted: bool = True, **rest: Any) -> AsyncIterator[Talk]:
    """A connection; by default past its `ready`."""
    rest.setdefault("subprotocols", ["rtts.v1"])
    async with connect(server.ws_url, **rest) as ws:
        talk = Talk(ws)
        if greeted:
            talk.hello, _ = await talk.until("ready")
        yield talk
