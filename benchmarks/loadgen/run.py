"""One run of the load generator: who connects when, what is written, what comes back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from benchmarks.loadgen import texts
from benchmarks.loadgen.reply import AFTER_DONE_S, Outcome, Reply
from benchmarks.loadgen.wire import Connection, HandshakeError, open_connection
from rtts.protocol.events import AnyServerMessage, Format, Ready, Start, Text

_DECODER = msgspec.json.Decoder(AnyServerMessage)
# How often the generator looks at its own punctuality.
LAG_PROBE_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do. Rates are per second, times seconds.

    Attributes:
        contexts_per_connection: Replies that share a connection; with 1 in open mode each reply
            opens its own.
        words_per_s: Text comes word by word at this mean rate; None sends it at once.
        player_buffer_s: Audio a listener's player wants before it starts.
        onset_dbfs: Level at which sound begins; None does not look for it.
        warmup_s: Replies that start earlier than this are not counted.
        pause_s: Of a live listener, or a closed client, between two replies.
    """

    url: str
    mode: str = "closed"
    duration_s: float = 10.0
    rate: float = 1.0
    clients: int = 1
    streams: int = 10
    contexts_per_connection: int = 1
    api_key: str | None = None
    voice: str | None = None
    codec: str = "opus"
    sample_rate: int | None = None
    max_lead_ms: int | None = None
    budget_ms: float | None = None
    sentences: tuple[int, int] = (2, 4)
    words_per_s: float | None = None
    player_buffer_s: float = 0.0
    onset_dbfs: float | None = None
    warmup_s: float = 0.0
    pause_s: float = 0.0
    timeout_s: float = 30.0
    seed: int = 1
    server_pid: int | None = None
    texts: tuple[str, ...] = ()


def poisson_times(rate: float, duration_s: float, rng: random.Random) -> Iterator[float]:
    """Seconds at which replies start: independent of each other, `rate` a second on average."""
    due_s = rng.expovariate(rate)
    while due_s < duration_s:
        yield due_s
        due_s += rng.expovariate(rate)


class Line:
    """A connection and the replies on it."""

    connection: Connection

    def __init__(self) -> None:
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.faults: dict[str, int] = {}
        self.is_over = False  # the run is: what still comes was cut off, not wrong
        self._replies: dict[str, Reply] = {}
        self._streams: dict[int, Reply] = {}

    @property
    def is_open(self) -> bool:
        return not self.connection.close_code

    def add(self, reply: Reply) -> None:
        self._replies[reply.ctx] = reply

    def know(self, stream: int, reply: Reply) -> None:
        self._streams[stream] = reply

    def forget(self, reply: Reply) -> None:
        self._replies.pop(reply.ctx, None)
        self._streams = {n: r for n, r in self._streams.items() if r is not reply}

    def send(self, message: Start | Text) -> float:
        return self.connection.send_text(msgspec.json.encode(message))

    def _fault(self, name: str) -> None:
        self.faults[name] = self.faults.get(name, 0) + 1

    def on_text(self, data: bytes, at: float) -> None:
        if self.is_over:
            return
        try:
            message = _DECODER.decode(data)
        except msgspec.DecodeError:
            self._fault("not_rtts_v1")
            return
        if isinstance(message, Ready):
            if not self.ready.done():
                self.ready.set_result(message)
            return
        ctx = getattr(message, "ctx", None)
        reply = self._replies.get(ctx) if ctx is not None else None
        if reply is not None:
            reply.receive(message, at)
        elif ctx is not None:
            self._fault("unknown_ctx")
        elif getattr(message, "code", None) is not None:
            self._fault(f"error_{message.code}")  # type: ignore[union-attr]

    def on_binary(self, data: bytes, at: float) -> None:
        if self.is_over:
            return
        stream = int.from_bytes(data[4:8], "big")
        reply = self._streams.get(stream)
        if reply is None or len(data) < 24:
            self._fault("unknown_stream")
        else:
            reply.receive_audio(data, at)

    def on_closed(self, code: int) -> None:
        at = time.perf_counter()
        if not self.ready.done():
            self.ready.set_exception(HandshakeError(f"closed_{code}", "before ready"))
            self.ready.exception()
        for reply in list(self._replies.values()):
            reply.closed(f"closed_{code}", at)


@dataclass
class Run:
    """One run: its replies, and the generator's own figures."""

    plan: Plan
    outcomes: list[Outcome] = field(default_factory=list)
    handshakes_s: list[float] = field(default_factory=list)
    line_faults: dict[str, int] = field(default_factory=dict)
    lags_s: list[float] = field(default_factory=list)
    late_starts_s: list[float] = field(default_factory=list)
    n_messages: int = 0
    began_at: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    _n_replies: int = 0
    _live: set[Reply] = field(default_factory=set)
    _lines: list[Line] = field(default_factory=list)

    # --- connections and replies -------------------------------------------------------------

    async def open_line(self) -> Line:
        plan, began_at = self.plan, time.perf_counter()
        line = Line()
        line.connection = await open_connection(
            plan.url, line, protocol="rtts.v1", api_key=plan.api_key, timeout_s=plan.timeout_s
        )
        async with asyncio.timeout(plan.timeout_s):
            await line.ready
        self.handshakes_s.append(time.perf_counter() - began_at)
        self._lines.append(line)
        return line

    def close_line(self, line: Line) -> None:
        line.connection.close()
        self._lines.remove(line)
        self.n_messages += line.connection.n_messages
        for name, count in line.faults.items():
            self.line_faults[name] = self.line_faults.get(name, 0) + count

    async def reply(self, line: Line, text: str, rng: random.Random) -> Reply:
        """Send one reply's text and wait for its end."""
        plan = self.plan
        self._n_replies += 1
        reply = Reply(
            f"r{self._n_replies}",
            started_at=time.perf_counter(),
            player_buffer_s=plan.player_buffer_s,
            onset_level=None if plan.onset_dbfs is None else 32768 * 10 ** (plan.onset_dbfs / 20),
            on_stream=lambda stream: line.know(stream, reply),
        )
        line.add(reply)
        self._live.add(reply)
        try:
            async with asyncio.timeout(plan.timeout_s + len(text)):
                await self._write(line, reply, text, rng)
                await self._finish(reply)
        except TimeoutError:
            reply.closed("timeout", time.perf_counter())
        finally:
            reply.closed("cut", time.perf_counter())
            self._live.discard(reply)
            self._keep(reply.outcome)
        return reply

    async def _write(self, line: Line, reply: Reply, text: str, rng: random.Random) -> None:
        plan = self.plan
        format_ = Format(codec=plan.codec, sample_rate=plan.sample_rate)  # type: ignore[arg-type]
        line.send(
            Start(
                ctx=reply.ctx,
                voice=plan.voice,
                format=format_,
                max_lead_ms=plan.max_lead_ms,
                budget_ms=plan.budget_ms,
            )
        )
        due_at, n_chars = time.perf_counter(), 0
        written = list(texts.pieces(text, plan.words_per_s, rng))
        for index, (wait_s, piece) in enumerate(written):
            due_at += wait_s
            delay_s = due_at - time.perf_counter()
            if delay_s > 0.0:
                await asyncio.sleep(delay_s)
                reply.outcome.late_sends_s.append(time.perf_counter() - due_at)
            if reply.finished.is_set():
                return
            n_chars += len(piece)
            is_last = index == len(written) - 1
            # The clock is read before the call: what the kernel takes is the server's to bear.
            reply.sent(n_chars, time.perf_counter())
            line.send(Text(ctx=reply.ctx, text=piece, n=index, end=is_last))

    async def _finish(self, reply: Reply) -> None:
        """Wait for the end; a reply that stays silent for too long times out."""
        seen = -1
        while not reply.finished.is_set():
            try:
                async with asyncio.timeout(self.plan.timeout_s):
                    await reply.finished.wait()
            except TimeoutError:
                if reply.outcome.n_messages == seen:
                    raise
                seen = reply.outcome.n_messages

    def _keep(self, outcome: Outcome) -> None:
        if outcome.started_at - self.began_at >= self.plan.warmup_s:
            self.outcomes.append(outcome)

    def _failed(self, error: Exception) -> None:
        code = error.code if isinstance(error, HandshakeError) else "no_ready"
        self._keep(Outcome(time.perf_counter(), ending=code))

    def _text(self, rng: random.Random) -> str:
        own = self.plan.texts
        return rng.choice(own) if own else texts.reply(rng, self.plan.sentences)

    # --- modes -------------------------------------------------------------------------------

    async def open_loop(self) -> None:
        """Replies start when a Poisson clock says, whatever became of earlier ones."""
        plan, rng = self.plan, random.Random(self.plan.seed)
        pool: list[Line] = []
        async with asyncio.TaskGroup() as group:
            for due_s in poisson_times(plan.rate, plan.duration_s, random.Random(plan.seed)):
                await asyncio.sleep(max(0.0, self.began_at + due_s - time.perf_counter()))
                self.late_starts_s.append(time.perf_counter() - self.began_at - due_s)
                group.create_task(self._arrival(pool, random.Random(rng.random())))

    async def _arrival(self, pool: list[Line], rng: random.Random) -> None:
        plan = self.plan
        shares = plan.contexts_per_connection > 1
        try:
            line = next((line for line in pool if line.is_open), None) if shares else None
            if line is None:
                line = await self.open_line()
                pool.extend([line] * plan.contexts_per_connection * shares)
        except (HandshakeError, TimeoutError) as error:
            self._failed(error)
            return
        if shares and line in pool:
            pool.remove(line)
        await self.reply(line, self._text(rng), rng)
        if shares:
            pool.append(line)
        else:
            await self._linger(line)

    async def _linger(self, line: Line) -> None:
        """Listen a moment longer for what must not come after the end, then hang up."""
        if line.is_open:
            await asyncio.sleep(AFTER_DONE_S)
        self.close_line(line)

    async def closed_loop(self) -> None:
        """Each client asks again when it has its answer."""
        await self._workers(self.plan.clients, listens=False)

    async def live(self) -> None:
        """Each stream is a listener: the next reply comes when the last one has been heard."""
        await self._workers(self.plan.streams, listens=True)

    async def _workers(self, count: int, *, listens: bool) -> None:
        plan, per_line = self.plan, self.plan.contexts_per_connection
        lines: dict[int, asyncio.Task[Line]] = {}
        tasks = []
        for index in range(count):
            if index % per_line == 0:
                lines[index // per_line] = asyncio.create_task(self.open_line())
            line = lines[index // per_line]
            tasks.append(asyncio.create_task(self._worker(index, count, line, listens=listens)))
        await asyncio.sleep(plan.duration_s)
        for each in self._lines:
            each.is_over = True
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                raise error
        await asyncio.gather(*lines.values(), return_exceptions=True)

    async def _worker(
        self, index: int, count: int, opening: asyncio.Task[Line], *, listens: bool
    ) -> None:
        plan, rng = self.plan, random.Random(f"{self.plan.seed} {index}")
        if listens:  # not everybody begins to speak at once
            await asyncio.sleep(min(5.0, plan.duration_s / 3) * index / count)
        try:
            line = await asyncio.shield(opening)
        except (HandshakeError, TimeoutError) as error:
            self._failed(error)
            return
        while line.is_open:
            reply = await self.reply(line, self._text(rng), rng)
            if listens:
                await asyncio.sleep(max(0.0, reply.ends_at - time.perf_counter()) + plan.pause_s)
            elif reply.outcome.ending != "completed":
                await asyncio.sleep(0.05)  # a refusal is not answered with a busy loop
            elif plan.pause_s:
                await asyncio.sleep(plan.pause_s)
            line.forget(reply)

    # --- the run itself ----------------------------------------------------------------------

    async def go(self) -> None:
        """Run the plan."""
        modes = {"open": self.open_loop, "closed": self.closed_loop, "live": self.live}
        probe = asyncio.create_task(self._probe())
        self.began_at = time.perf_counter()
        cpu_began_s = time.process_time()
        await modes[self.plan.mode]()
        self.wall_s = time.perf_counter() - self.began_at
        self.cpu_s = time.process_time() - cpu_began_s
        probe.cancel()
        for line in list(self._lines):
            self.close_line(line)
        await asyncio.sleep(0.01)

    async def _probe(self) -> None:
        """Measure how late the generator's own event loop is."""
        while True:
            due_at = time.perf_counter() + LAG_PROBE_S
            await asyncio.sleep(LAG_PROBE_S)
            self.lags_s.append(time.perf_counter() - due_at)
