"""A server in this process, or a process that is a server: signals, file limits, exit status."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from rtts.engine.interface import Engine
from rtts.errors import ConfigError
from rtts.server.options import ServerOptions
from rtts.server.server import Server
from rtts.server.voice_making import VoiceMaker
from rtts.server.websocket import TransportOptions
from rtts.session import SessionOptions
from rtts.voices.aliases import AliasOptions
from rtts.voices.options import VoiceOptions

# An open file for each connection; the usual soft limit of 1024 is for programs with few.
WANTED_FILES = 65_536
# After a second signal an engine gets this long to stop by itself.
IMPATIENCE_S = 1.0

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def running_server(
    options: ServerOptions,
    engine: Engine,
    *,
    session_options: SessionOptions | None = None,
    max_backlog_s: float = 2.0,
    transport: TransportOptions | None = None,
    aliases: AliasOptions | None = None,
    voices: VoiceOptions | None = None,
    voice_maker: VoiceMaker | None = None,
    drain_timeout_s: float = 0.0,
) -> AsyncIterator[Server]:
    """A server in this process, ready when the block begins and gone when it ends.

    Args:
        options: `port=0` takes a free port; see `Server.url`.
        engine: What speaks; started and closed here.
        session_options: Limits and defaults of conversations.
        max_backlog_s: Predicted wait above which new contexts are refused.
        transport: Limits below the protocol.
        aliases: What foreign names mean.
        voices: What may be added by users, and where it is kept.
        voice_maker: Makes recordings into what the engine takes.
        drain_timeout_s: How long running contexts may finish at the end of the block.

    Raises:
        ConfigError: A setting is wrong, or the address cannot be used.
    """
    server = Server(
        options,
        engine,
        session_options=session_options,
        max_backlog_s=max_backlog_s,
        transport=transport,
        aliases=aliases,
        voices=voices,
        voice_maker=voice_maker,
    )
    try:
        await server.start()
        await server.ready()
        yield server
    finally:
        await server.shutdown(drain_timeout_s)


async def serve(
    options: ServerOptions,
    engine: Engine,
    *,
    session_options: SessionOptions | None = None,
    max_backlog_s: float = 2.0,
    aliases: AliasOptions | None = None,
    voices: VoiceOptions | None = None,
    voice_maker: VoiceMaker | None = None,
    on_listening: Callable[[Server], None] | None = None,
    on_ready: Callable[[Server], None] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM; the first drains, the second does not wait.

    Args:
        options: Where to listen and whom to let in.
        engine: What speaks.
        session_options: Limits and defaults of conversations.
        max_backlog_s: Predicted wait above which new contexts are refused.
        aliases: What foreign names mean.
        voices: What may be added by users, and where it is kept.
        voice_maker: Makes recordings into what the engine takes.
        on_listening: Called once the address is bound.
        on_ready: Called when sessions are accepted for the first time.

    Returns:
        Exit status: 0 when everything was finished or ended in order, 1 when it was cut short.

    Raises:
        ConfigError: A setting is wrong, or the address cannot be used.
    """
    server = Server(
        options,
        engine,
        session_options=session_options,
        max_backlog_s=max_backlog_s,
        aliases=aliases,
        voices=voices,
        voice_maker=voice_maker,
    )
    _raise_file_limit()
    with _signals() as signals:
        first, second = signals
        try:
            await server.start()
            if on_listening is not None:
                on_listening(server)
            announcing = asyncio.create_task(_announce(server, on_ready))
            await _first_of(first.wait(), server.failed)
            announcing.cancel()
            if server.failed.done():
                raise server.failed.result()
            return await _stop(server, options.drain_timeout_s, second)
        except BaseException:
            server.abort()
            await server.close_engine()
            raise


async def _announce(server: Server, on_ready: Callable[[Server], None] | None) -> None:
    try:
        await server.ready()
    except ConfigError:
        return  # `serve` raises it
    # What was made while loading lives as long as the process: keep the collector from walking it
    # again and again while people are listening.
    gc.collect()
    gc.freeze()
    if on_ready is not None:
        on_ready(server)


async def _stop(server: Server, drain_timeout_s: float, second: asyncio.Event) -> int:
    log.info("stopping; running speech may take %g s more", drain_timeout_s)
    stopping = asyncio.create_task(server.shutdown(drain_timeout_s))
    await _first_of(stopping, second.wait())
    if stopping.done():
        stopping.result()
        return 0
    stopping.cancel()
    server.abort()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(IMPATIENCE_S):
            await server.close_engine()
    return 1


async def _first_of(*awaitables: Any) -> None:
    """Wait until one is done; those that were coroutines are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, given in zip(tasks, awaitables, strict=True):
            if task is not given:
                task.cancel()


@contextlib.contextmanager
def _signals() -> Any:
    """Two events: set by the first SIGINT or SIGTERM, and by the second."""
    loop = asyncio.get_running_loop()
    first, second = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (second if first.is_set() else first).set()

    def from_handler(number: int, frame: Any) -> None:
        del number, frame
        loop.call_soon_threadsafe(on_signal)

    numbers = [signal.SIGINT, signal.SIGTERM]
    former = {}
    for number in numbers:
        try:
            loop.add_signal_handler(number, on_signal)
        except NotImplementedError:  # Windows
            former[number] = signal.signal(number, from_handler)
    try:
        yield first, second
    finally:
        for number in numbers:
            if number in former:
                signal.signal(number, former[number])
            else:
                loop.remove_signal_handler(number)


def _raise_file_limit() -> None:
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop the server runs best on: uvloop, where there is one."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
