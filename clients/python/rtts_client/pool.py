"""Connections to one server for replies that come and go, as in an agent that runs for hours.

A connection is opened when it is needed, shared by as many replies as the server allows on one,
and replaced for the next reply when the server asks it to go away or it is lost for good. Knows
nothing about what is spoken.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rtts_client.client import Client, connect
from rtts_client.context import Context
from rtts_client.errors import ConnectionLostError

_LOG = logging.getLogger("rtts_client")


class Pool:
    """Opens contexts on connections it keeps; to be closed with `aclose`.

    May be made before there is an event loop; everything else happens in one.

    Attributes:
        is_closed: Nothing can be asked of it any more.
    """

    def __init__(self, url: str, **options: Any) -> None:
        """Make one.

        Args:
            url: As for `connect`.
            options: As for `connect`: `api_key`, `give_up_s`, ...
        """
        self._url = url
        self._options = options
        self._clients: list[Client] = []
        self._opening: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self.is_closed = False

    @property
    def n_connections(self) -> int:
        """Connections that are open."""
        return len(self._clients)

    def prewarm(self) -> None:
        """Open a connection in the background unless one is there; a failure is logged only."""
        if not self.is_closed and self._with_room() is None:
            self._begin_opening().add_done_callback(_log_failure)

    async def open(self) -> Client:
        """A connection with room for a context, opened if there is none.

        Raises:
            ConnectError: The server refused or could not be reached.
            ConnectionLostError: The pool is closed.
        """
        while True:
            if self.is_closed:
                raise ConnectionLostError("closed", "the pool was closed")
            client = self._with_room()
            if client is not None:
                return client
            # Others may wait for the same connection, and who waits may be cancelled.
            await asyncio.shield(self._begin_opening())

    async def context(self, **options: Any) -> Context:
        """A new context as of `Client.context`; enter it without awaiting anything in between."""
        return (await self.open()).context(**options)

    async def aclose(self) -> None:
        """Close every connection; contexts that still run fail."""
        self.is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        clients, self._clients = self._clients, []
        await asyncio.gather(*self._leaving, *(client.aclose() for client in clients))

    def _with_room(self) -> Client | None:
        for client in list(self._clients):
            if not client.is_usable and client.n_contexts == 0:
                self._clients.remove(client)
                task = asyncio.create_task(client.aclose())
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)
            elif client.is_usable and client.n_contexts < client.ready.limits.max_contexts:
                return client
        return None

    def _begin_opening(self) -> asyncio.Task[None]:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open_one())
            self._opening.add_done_callback(self._opened)
        return self._opening

    async def _open_one(self) -> None:
        client = connect(self._url, **self._options)
        await client.__aenter__()
        self._clients.append(client)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waits gets it; perhaps nobody does


def _log_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _LOG.warning("no connection ahead of the first reply: %s", error)
