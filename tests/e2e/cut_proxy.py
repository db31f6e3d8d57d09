"""A TCP proxy that breaks connections: the network of a client on a train."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class CutProxy:
    """Forwards to a port; each entry of `cuts` breaks one connection after so many bytes down."""

    to_port: int
    cuts: list[int] = field(default_factory=list)
    port: int = 0
    n_connections: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/tts"

    def break_all(self) -> None:
        """Reset every connection now."""
        for writer in self._writers:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        budget = self.cuts.pop(0) if self.cuts else None
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.to_port)
        except ConnectionError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pipe(reader, up_writer, None))
                group.create_task(self._pipe(up_reader, writer, budget))
        except* ConnectionError:
            pass
        finally:
            for each in (writer, up_writer):
                each.transport.abort()
            self._writers -= {writer, up_writer}

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None
    ) -> None:
        while data := await reader.read(65_536):
            if budget is not None and len(data) >= budget:
                writer.write(data[:budget])
                await writer.drain()
                await asyncio.sleep(0.01)
                raise ConnectionResetError
            budget = None if budget is None else budget - len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@asynccontextmanager
async def cut_proxy(to_port: int, cuts: list[int] | None = None) -> AsyncIterator[CutProxy]:
    """A running proxy."""
    proxy = CutProxy(to_port, cuts or [])

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
