"""A server whose faults are known, to test the instrument that must find them."""

from __future__ import annotations

import asyncio
import http
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from rtts.protocol import events
from rtts.protocol.native import NativeCodec, negotiate

RATE = 24_000
FORMAT = events.StreamFormat("pcm_s16le", "raw", RATE, 1, 0, 0, 0, 0)
READY = events.Ready(
    protocol="rtts.v1",
    session="s",
    server="faulty",
    model="tone",
    voices=["tone"],
    languages=["en"],
    formats=[],
    limits=events.Limits(8, 4000, 65536, 200, 300_000, 7_200_000, 5_000),
    time_ms=0,
)


@dataclass
class FaultyServer:
    """Speaks each context, when it ends, as `n_messages` of `message_s`, all at once but for faults.

    Attributes:
        first_delay_s: Silence between the text's end and the first audio.
        silence_s: Silence at the start of the audio; then a loud tone.
        pause_after: After this many messages ...
        pause_s: ... nothing is sent for so long.
        skip: A message that is left out, its `seq` with it.
        swallow: A message that is left out without a trace in `seq`.
        repeat: A message that is sent twice.
        fails_with: Every context fails with this code.
        closes_after: The socket breaks after so many messages.
        status: The handshake is refused with this.
        never_ends: No `done` comes.
        talks_on: Audio comes after `done`.
        nonsense: A message that is none of rtts.v1 comes first.
    """

    n_messages: int = 10
    message_s: float = 0.02
    first_delay_s: float = 0.0
    silence_s: float = 0.0
    pause_after: int = 0
    pause_s: float = 0.0
    skip: int | None = None
    swallow: int | None = None
    repeat: int | None = None
    fails_with: str = ""
    closes_after: int | None = None
    status: int = 101
    never_ends: bool = False
    talks_on: bool = False
    nonsense: bool = False
    codec: NativeCodec = field(default_factory=NativeCodec)
    texts: dict[str, str] = field(default_factory=dict)
    n_contexts: int = 0
    n_connections: int = 0
    text_times: list[float] = field(default_factory=list)
    server: Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        assert self.server is not None
        return f"ws://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/v1/tts"

    @property
    def audio_s(self) -> float:
        return self.n_messages * self.message_s

    def refuse(self, ws: ServerConnection, _: Request) -> Response | None:
        return None if self.status == 101 else ws.respond(http.HTTPStatus(self.status), "no")

    async def handle(self, ws: ServerConnection) -> None:
        self.n_connections += 1
        try:
            await ws.send(self.codec.encode(READY))
            async for data in ws:
                message = self.codec.decode(data)
                if isinstance(message, events.Start):
                    self.n_contexts += 1
                    self.texts[message.ctx] = ""
                    started = events.Started(message.ctx, self.n_contexts, FORMAT, voice="tone")
                    await ws.send(self.codec.encode(started))
                if isinstance(message, events.Text):
                    self.text_times.append(time.perf_counter())
                    self.texts[message.ctx] += message.text
                    if message.end:
                        task = asyncio.create_task(self.speak(ws, message.ctx, self.n_contexts))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
        except ConnectionClosed:
            pass

    async def speak(self, ws: ServerConnection, ctx: str, stream: int) -> None:
        with suppress(ConnectionClosed):
            await self._speak(ws, ctx, stream)

    async def _speak(self, ws: ServerConnection, ctx: str, stream: int) -> None:
        async def send(message: Any) -> None:
            await ws.send(self.codec.encode(message))

        if self.nonsense:
            await ws.send("{}")
        if self.fails_with:
            await send(events.Error(self.fails_with, "as told", False, ctx))
            await send(events.Done(ctx, "error", 0, -1, 0.0, 0, 0, code=self.fails_with))
            return
        text = self.texts[ctx]
        await asyncio.sleep(self.first_delay_s)
        await send(events.SegmentStarted(ctx, 0, text, (0, len(text)), 0.0))
        audio = list(self._audio(ctx, stream))
        for index, message in enumerate(audio):
            if index and index == self.pause_after:
                await asyncio.sleep(self.pause_s)
            if index == self.closes_after:
                ws.transport.abort()
                return
            await send(message)
            if index == 0:
                await send(
                    events.FirstAudio(
                        ctx, 1000 * self.first_delay_s, 0, 0, 0, 0, 0, 0.0, 500.0, True
                    )
                )
        if self.never_ends:
            return
        samples = round(self.audio_s * RATE)
        metrics = events.DoneMetrics(rtf=0.25)
        await send(
            events.Done(
                ctx,
                "completed",
                1,
                audio[-1].seq,
                1000 * self.audio_s,
                samples,
                len(text),
                metrics,
            )
        )
        if self.talks_on:
            await send(audio[-1])

    def _audio(self, ctx: str, stream: int) -> list[events.Audio]:
        size = round(self.message_s * RATE)
        pcm = np.full(self.n_messages * size, 8000, np.int16)
        pcm[: round(self.silence_s * RATE)] = 3
        messages = []
        seq = 0
        for index in range(self.n_messages):
            if index == self.swallow:
                continue
            message = events.Audio(
                ctx=ctx,
                stream=stream,
                seq=seq,
                segment=0,
                pts=index * size,
                flags=0,
                npackets=0,
                duration_ms=round(1000 * self.message_s),
                data=pcm[index * size : (index + 1) * size].tobytes(),
            )
            seq += 1
            messages += [message] * (0 if index == self.skip else 1 + (index == self.repeat))
        return messages


@asynccontextmanager
async def faulty_server(**faults: Any) -> AsyncIterator[FaultyServer]:
    """A running server with these faults."""
    faulty = FaultyServer(**faults)
    faulty.server = await serve(
        faulty.handle,
        "127.0.0.1",
        0,
        process_request=faulty.refuse,
        select_subprotocol=lambda _, offered: negotiate(offered),
        compression=None,
        close_timeout=0.1,
    )
    try:
        yield faulty
    finally:
        for task in list(faulty._tasks):
            task.cancel()
        faulty.server.close()
        await faulty.server.wait_closed()
