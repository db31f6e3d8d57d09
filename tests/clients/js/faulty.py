"""A TCP proxy with the faults of a network: late and stalled, but in order and whole, as TCP is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

AUDIO_BYTES = 4000  # more than any control message, less than 80 ms of PCM


@dataclass
class FaultyProxy:
    """Forwards to a port. What comes down is late.

    Attributes:
        to_port: May be changed while it runs, for connections to come.
        jitter_s: Each piece is late by up to this.
        stalls: Pieces (their numbers since it was last set) that hold everything up, and how long.
        n_stalls: Stalls so far.
    """

    to_port: int
    seed: int = 0
    jitter_s: float = 0.0
    stalls: dict[int, float] = field(default_factory=dict)
    port: int = 0
    n_stalls: int = 0
    n_connections: int = 0
    _n_pieces: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stall(self, stalls: dict[int, float]) -> None:
        """Stall again: pieces are counted from now on."""
        self.stalls, self._n_pieces = stalls, 0

    def break_all(self) -> None:
        """Reset every connection now."""
        for writer in self._writers:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.to_port)
        except ConnectionError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(reader, up_writer))
                group.create_task(self._hold(up_reader, held))
                group.create_task(self._down(held, writer))
        except* ConnectionError:
            pass
        finally:
            for each in (writer, up_writer):
                each.transport.abort()
            self._writers -= {writer, up_writer}

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _hold(
        self, reader: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        draw = random.Random(self.seed)
        while data := await reader.read(65_536):
            delay_s = draw.uniform(0, self.jitter_s)
            if len(data) > AUDIO_BYTES:
                stall_s = self.stalls.get(self._n_pieces, 0.0)
                self._n_pieces += 1
                self.n_stalls += stall_s > 0
                delay_s = max(delay_s, stall_s)
            held.put_nowait((asyncio.get_running_loop().time() + delay_s, data))
        held.put_nowait((0.0, b""))

    async def _down(
        self, held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await held.get()
            if not data:
                raise ConnectionResetError
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def faulty_proxy(
    to_port: int, *, seed: int = 0, jitter_s: float = 0.0
) -> AsyncIterator[FaultyProxy]:
    """A running proxy."""
    proxy = FaultyProxy(to_port, seed, jitter_s)

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.accept(reader, writer))
        proxy._tasks.add(task)
        task.add_done_callback(proxy._tasks.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.break_all()
        await asyncio.gather(*proxy._tasks, return_exceptions=True)
