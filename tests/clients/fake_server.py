"""A scripted rtts.v1 server with network faults, for testing the client.

It speaks every sentence as `audio_per_segment` messages whose payload names context and number, so
that a test can see what arrived. It keeps what it sent and resumes, and breaks on command.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from rtts.protocol import events
from rtts.protocol.native import NativeCodec, negotiate

FORMAT = events.StreamFormat("pcm_s16le", "raw", 24_000, 1, 0, 0, 0, 0)
TOKEN = "r_test"


@dataclass
class Faults:
    """What goes wrong. Each `drop_*` entry is used once, in order."""

    drop_after_sent: list[int] = field(default_factory=list)  # server messages on this socket
    drop_after_received: list[int] = field(default_factory=list)  # client messages, unprocessed
    replays_everything: bool = False  # ignores acks: duplicates
    forgets: bool = False  # every resume fails
    is_silent: bool = False  # never says ready
    refuses: tuple[str, int] | None = None  # (code, retry_after_ms) for every start
    refuses_texts: int = 0  # this many texts are answered text_buffer_full
    extra: list[str | bytes] = field(default_factory=list)  # sent after ready


@dataclass
class FakeContext:
    start: events.Start
    stream: int
    text: str = ""
    next_n: int = 0
    said: int = 0  # characters spoken
    segment: int = -1
    seq: int = -1
    is_ended: bool = False
    is_done: bool = False
    log: list[events.AnyServerMessage] = field(default_factory=list)
    n_sent: int = 0  # of log
    played_ms: float | None = None


@dataclass
class FakeServer:
    faults: Faults = field(default_factory=Faults)
    audio_per_segment: int = 3
    message_ms: int = 80
    limits: events.Limits = field(
        default_factory=lambda: events.Limits(8, 4000, 65536, 200, 300_000, 7_200_000, 5_000)
    )
    speaks: bool = True  # sentences are spoken as they come
    honours_reports: bool = False  # sends at most the lead beyond `playback`
    port: int = 0
    contexts: dict[str, FakeContext] = field(default_factory=dict)
    received: list[events.AnyClientMessage] = field(default_factory=list)
    sockets: list[ServerConnection] = field(default_factory=list)
    n_sockets: int = 0
    n_full: int = 0
    server: Server | None = None
    codec: NativeCodec = field(default_factory=NativeCodec)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/tts"

    def sent_of(self, kind: type) -> list[Any]:
        """Client messages of one type, in order of arrival."""
        return [message for message in self.received if isinstance(message, kind)]

    async def start(self, **options: Any) -> None:
        self.server = await serve(
            self._serve,
            "127.0.0.1",
            self.port,
            select_subprotocol=lambda _, offered: negotiate(offered),
            compression=None,
            close_timeout=0.2,
            ping_interval=None,
            **options,
        )
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()
            self.server = None

    def kick(self) -> None:
        """Break every socket without a close frame."""
        for ws in self.sockets:
            ws.transport.abort()

    async def say(self, message: events.AnyServerMessage) -> None:
        """Send a message now, outside the script."""
        await self.sockets[-1].send(self.codec.encode(message))

    # --- one socket --------------------------------------------------------------------------

    async def _serve(self, ws: ServerConnection) -> None:
        self.n_sockets += 1
        self.sockets.append(ws)
        self.codec = NativeCodec(ws.subprotocol or "rtts.v1")
        try:
            if self.faults.is_silent:
                await ws.wait_closed()
            sender = _Sender(self, ws)
            await sender.send(self._ready())
            for extra in self.faults.extra:
                await ws.send(extra)
            n_received = 0
            async for data in ws:
                n_received += 1
                if self.faults.drop_after_received[:1] == [n_received]:
                    self.faults.drop_after_received.pop(0)
                    ws.transport.abort()
                    return
                message = self.codec.decode(data)
                self.received.append(message)
                await self._take(message, sender)
        except ConnectionClosed:
            pass
        finally:
            self.sockets.remove(ws)

    def _ready(self) -> events.Ready:
        return events.Ready(
            protocol="rtts.v1",
            session="s_1",
            server="fake",
            model="tone",
            voices=["tone"],
            languages=["en"],
            formats=[],
            limits=self.limits,
            time_ms=0,
            resume=events.ResumeOffer(TOKEN, 15_000),
        )

    async def _take(self, message: events.AnyClientMessage, sender: _Sender) -> None:
        match message:
            case events.Resume():
                await self._resume(message, sender)
            case events.Ping():
                await sender.send(events.Pong(time_ms=0, t=message.t))
            case events.Start():
                await self._start(message, sender)
            case events.Text() | events.Playback():
                context = self.contexts.get(message.ctx)
                is_late = isinstance(message, events.Text) and context and context.is_done
                if context is not None and not is_late:
                    await self._feed(context, message, sender)
            case events.Cancel():
                context = self.contexts.get(message.ctx or "")
                if context is not None and not context.is_done:
                    self._finish(context, "cancelled", message.played_ms)
                    await self._flush_log(context, sender)

    async def _start(self, start: events.Start, sender: _Sender) -> None:
        if self.faults.refuses is not None:
            code, retry_ms = self.faults.refuses
            await sender.send(events.Error(code, "no", False, start.ctx, None, retry_ms))
            await sender.send(events.Done(start.ctx, "error", 0, -1, 0.0, 0, 0, code=code))
            return
        known = self.contexts.get(start.ctx)
        if known is not None and not known.is_done:
            await sender.send(events.Error("ctx_exists", "it runs", False, start.ctx))
            return
        context = FakeContext(start, len(self.contexts) + 1)
        self.contexts[start.ctx] = context
        context.log.append(events.Started(start.ctx, context.stream, FORMAT, voice="tone"))
        await self._flush_log(context, sender)

    async def _feed(
        self,
        context: FakeContext,
        message: events.Text | events.Playback,
        sender: _Sender,
    ) -> None:
        match message:
            case events.Text():
                if not await self._accept(context, message, sender):
                    return
                if self.speaks:
                    for sentence in re.finditer(r"[^.]*\. ?", context.text[context.said :]):
                        self._speak(context, len(sentence[0]))
                if message.flush:
                    self._speak(context, len(context.text) - context.said)
                    context.log.append(events.Flushed(context.start.ctx, 0.0, message.id))
                if message.end:
                    context.is_ended = True
                    self._speak(context, len(context.text) - context.said)
                    self._finish(context, "completed", None)
            case events.Playback():
                if message.played_ms is not None:
                    context.played_ms = message.played_ms
        await self._flush_log(context, sender)

    async def _accept(self, context: FakeContext, text: events.Text, sender: _Sender) -> bool:
        if text.n is not None and text.n < context.next_n:
            return False
        if context.is_ended or (text.n is not None and text.n > context.next_n):
            await sender.send(events.Error("bad_request", "n: a gap", False, text.ctx, text.id))
            return False
        waits = len(context.text) - context.said
        is_full = waits + len(text.text) > self.limits.max_text_chars
        if is_full or self.faults.refuses_texts:
            self.faults.refuses_texts -= not is_full
            self.n_full += 1
            error = events.Error("text_buffer_full", "", False, text.ctx, text.id, 20)
            await sender.send(error)
            return False
        context.next_n += text.n is not None
        context.text += text.text
        return True

    def _speak(self, context: FakeContext, n_chars: int) -> None:
        if not n_chars:
            return
        ctx, start = context.start.ctx, context.said
        context.said += n_chars
        context.segment += 1
        text = context.text[start : context.said]
        context.log.append(
            events.SegmentStarted(ctx, context.segment, text, (start, context.said), 0.0)
        )
        for index in range(self.audio_per_segment):
            context.seq += 1
            flags = 4 * (index == 0) + 8 * (index == self.audio_per_segment - 1)
            context.log.append(
                events.Audio(
                    ctx=ctx,
                    stream=context.stream,
                    seq=context.seq,
                    segment=context.segment,
                    pts=context.seq * self.message_ms * 24,
                    flags=flags,
                    npackets=0,
                    duration_ms=self.message_ms,
                    data=f"{ctx}:{context.seq} ".encode(),
                )
            )
        context.log.append(events.Marks(ctx, context.segment, "word", "estimated", [], []))

    def _finish(self, context: FakeContext, reason: Any, played_ms: float | None) -> None:
        context.is_done = True
        spoken = context.text[: context.said]
        context.log = context.log[: context.n_sent] if reason == "cancelled" else context.log
        context.log.append(
            events.Done(
                context.start.ctx,
                reason,
                context.segment + 1,
                context.seq,
                0.0,
                0,
                len(context.text),
                played_ms=played_ms,
                spoken=spoken if reason == "cancelled" else None,
                remaining=context.text[context.said :] if reason == "cancelled" else None,
            )
        )

    async def _flush_log(self, context: FakeContext, sender: _Sender) -> None:
        while context.n_sent < len(context.log):
            message = context.log[context.n_sent]
            if isinstance(message, events.Audio) and self._is_held(context, message):
                return
            context.n_sent += 1
            await sender.send(message)

    def _is_held(self, context: FakeContext, audio: events.Audio) -> bool:
        lead_ms = audio.seq * self.message_ms - (context.played_ms or 0.0)
        reports = context.played_ms is not None and self.honours_reports
        return reports and lead_ms > self.limits.max_lead_ms

    async def _resume(self, resume: events.Resume, sender: _Sender) -> None:
        if self.faults.forgets or resume.token != TOKEN:
            self.contexts.clear()
            await sender.send(events.Error("resume_failed", "who?", False))
            return
        known = {
            name: context
            for name, context in self.contexts.items()
            if not context.is_done or name in resume.acks
        }
        await sender.send(
            events.Resumed(
                "s_1",
                {
                    name: events.ResumedContext(c.stream, c.seq + 1, c.next_n, c.is_ended)
                    for name, c in known.items()
                },
            )
        )
        for name, context in known.items():
            ack = -1 if self.faults.replays_everything else resume.acks.get(name, -1)
            context.n_sent = 0
            for index, message in enumerate(context.log):
                if isinstance(message, events.Audio) and message.seq == ack:
                    context.n_sent = index + 1
            await self._flush_log(context, sender)


@dataclass
class _Sender:
    fake: FakeServer
    ws: ServerConnection
    n_sent: int = 0

    async def send(self, message: events.AnyServerMessage) -> None:
        await self.ws.send(self.fake.codec.encode(message))
        self.n_sent += 1
        if self.fake.faults.drop_after_sent[:1] == [self.n_sent]:
            self.fake.faults.drop_after_sent.pop(0)
            await asyncio.sleep(0.005)  # what was sent arrives first
            self.ws.transport.abort()


@asynccontextmanager
async def fake_server(
    change: Callable[[FakeServer], None] | None = None, **options: Any
) -> AsyncIterator[FakeServer]:
    """A running fake server."""
    fake = FakeServer()
    if change is not None:
        change(fake)
    await fake.start(**options)
    try:
        yield fake
    finally:
        await fake.stop()
