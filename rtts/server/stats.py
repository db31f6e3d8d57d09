"""The feed: messages about the server, pushed to whoever watches.

The WebSocket `/v1/stats` (subprotocol `rtts-stats.v1`) sends the server's figures each second and a
`request` record for every finished context; docs/operations.md has the messages. No text, no audio.
A message is encoded once, however many watch. Knows nothing about what the messages say.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from rtts.errors import OverloadedError
from rtts.metrics import Metrics

SUBPROTOCOL = "rtts-stats.v1"
MAX_WATCHERS = 32
# A dashboard that is this far behind has frozen; it is told how much it missed.
MAX_WAITING = 256

Message = dict[str, Any]


class Watcher:
    """One reader of the feed, with what waits for it.

    Owner: event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._is_due = asyncio.Event()
        self._n_dropped = 0

    def push(self, text: str) -> bool:
        """Queue an encoded message; False if the watcher is too slow and it was dropped."""
        if len(self._waiting) >= MAX_WAITING:
            self._n_dropped += 1
            return False
        self._tell_gap()
        self._waiting.append(text)
        self._is_due.set()
        return True

    async def next(self) -> str:
        """The next message. A gap is told where it was, as `{"type":"dropped","records":n}`."""
        while not self._waiting:
            self._tell_gap()
            if not self._waiting:
                self._is_due.clear()
                await self._is_due.wait()
        return self._waiting.popleft()

    def _tell_gap(self) -> None:
        if self._n_dropped:
            self._waiting.append(encode({"type": "dropped", "records": self._n_dropped}))
            self._n_dropped = 0


class Feed:
    """Pushes messages to every watcher.

    Owner: event loop.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._watchers: set[Watcher] = set()

    @property
    def watchers(self) -> int:
        """How many are watching."""
        return len(self._watchers)

    def subscribe(self) -> Watcher:
        """Add a watcher; `unsubscribe` it.

        Raises:
            OverloadedError: There are enough.
        """
        if len(self._watchers) >= MAX_WATCHERS:
            raise OverloadedError(f"{MAX_WATCHERS} are watching already", retry_after_s=5.0)
        watcher = Watcher()
        self._watchers.add(watcher)
        return watcher

    def unsubscribe(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        self._watchers.discard(watcher)

    def publish(self, message: Message) -> None:
        """Push a message to all."""
        if not self._watchers:
            return
        text = encode(message)
        for watcher in self._watchers:
            if not watcher.push(text):
                self._metrics.watcher_drops.inc()


def encode(message: Message) -> str:
    """A message as it is sent."""
    return msgspec.json.encode(message).decode()


async def watch(receive: Any, send: Any, watcher: Watcher) -> None:
    """Serve one accepted WebSocket of the feed until it closes; plain ASGI."""

    async def talk() -> None:
        while True:
            await send({"type": "websocket.send", "text": await watcher.next()})

    async def listen() -> None:
        while (await receive())["type"] != "websocket.disconnect":
            pass  # a watcher has nothing to say

    tasks = [asyncio.create_task(talk()), asyncio.create_task(listen())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            # OSError: the watcher left while something was being sent.
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                raise outcome
