"""The server: its parts put together, started, made ready, drained and stopped.

Knows no engine but by its interface, and no process: signals and exit are `rtts.server.run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rtts import __version__
from rtts.audio.opus import OpusLibrary, load_library
from rtts.audio.opus_cost import packet_cost_s
from rtts.engine.interface import (
    Capabilities,
    Engine,
    EngineDown,
    EngineEvent,
    EngineLoad,
    EngineMembers,
    EngineReady,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.errors import ConfigError
from rtts.metrics import Metrics
from rtts.protocol import native
from rtts.server import http
from rtts.server.auth import Gate
from rtts.server.connection import LAST_WORDS_S
from rtts.server.encoders import Encoders
from rtts.server.figures import Figures
from rtts.server.gpu import GpuSampler
from rtts.server.handshake import Doorman, deny
from rtts.server.history import History
from rtts.server.hub import Hub
from rtts.server.lag import LagSampler
from rtts.server.listener import Listener
from rtts.server.options import ServerOptions
from rtts.server.prewarm import Prewarmer
from rtts.server.readiness import Readiness
from rtts.server.recording import Recording
from rtts.server.records import RecordBook
from rtts.server.stats import Feed
from rtts.server.surfaces import Surfaces
from rtts.server.tracing import Tracing
from rtts.server.voice_desk import VoiceDesk
from rtts.server.voice_http import VoiceEndpoints
from rtts.server.voice_making import CopyingMaker, VoiceMaker
from rtts.server.websocket import TransportOptions
from rtts.session import OpusEffort, Service, SessionOptions
from rtts.voices.aliases import AliasOptions
from rtts.voices.options import VoiceOptions
from rtts.voices.store import VoiceStore

NATIVE_PATH = http.NATIVE_PATH
STATS_PATH = "/v1/stats"
# A message a little over the limit still gets its typed error; one far over it is not read.
OVERSIZE_BYTES = 65_536
# How long peers may take to close their side when the server stops.
CLOSE_GRACE_S = 2.0

_NOT_FOUND = b'{"error":{"code":"not_found","message":"no WebSocket here; the path is /v1/tts"}}'

log = logging.getLogger(__name__)


class Server:
    """One server.

    Owner: event loop.

    Attributes:
        options: As given.
        service: What its sessions share.
        metrics: Its metrics.
        failed: Why it cannot ever be ready (a setting is wrong); set once.
    """

    def __init__(
        self,
        options: ServerOptions,
        engine: Engine,
        *,
        session_options: SessionOptions | None = None,
        max_backlog_s: float = 2.0,
        transport: TransportOptions | None = None,
        aliases: AliasOptions | None = None,
        voices: VoiceOptions | None = None,
        voice_maker: VoiceMaker | None = None,
    ) -> None:
        """Put the parts together; nothing is opened yet. Call it on the event loop.

        Args:
            options: Where to listen and whom to let in.
            engine: What speaks. The server starts and closes it.
            session_options: Limits and defaults of conversations.
            max_backlog_s: Predicted wait above which new contexts are refused.
            transport: Limits below the protocol.
            aliases: What foreign names mean.
            voices: What may be added by users, and where it is kept; without a folder, nothing.
            voice_maker: Makes recordings into what the engine takes.

        Raises:
            ConfigError: A setting is wrong.
        """
        options.check()
        session_options = session_options or SessionOptions()
        self.options = options
        self.clock: Callable[[], float] = time.monotonic
        self._opus = _find_opus()
        self._encoders = Encoders(options.encoder_threads or 0)
        self.service = Service(
            epoch_s=_wall_clock() - self.clock(),
            max_backlog_s=max_backlog_s,
            effort=_effort(
                session_options.opus_complexity, self._encoders.width, self.clock, self._opus
            ),
        )
        self.metrics = Metrics(budget_s=session_options.budget_s, version=__version__)
        self.metrics.expect(codes=tuple(row.code for row in native.ERROR_TABLE))
        self.failed: asyncio.Future[ConfigError] = asyncio.get_running_loop().create_future()
        self._engine = engine
        self._is_ready = asyncio.Event()
        self._prewarming: asyncio.Task[None] | None = None
        self._readiness = Readiness(self.service)
        self._feed = Feed(self.metrics)
        as_json = options.log_json if options.log_json is not None else not sys.stderr.isatty()
        history = History()
        self._recording = _recording(options, self.service, self.metrics)
        self._tracing = _tracing(options, self.service)
        self._book = RecordBook(
            self.metrics,
            history,
            self._feed.publish,
            as_json=as_json,
            time_ms=self.service.time_ms,
            also=[each.take for each in (self._recording, self._tracing) if each is not None],
        )
        self._gpu = GpuSampler(self.metrics)
        self._lag = LagSampler(self.metrics, self.clock)
        self._hub = Hub(
            engine,
            self.service,
            session_options,
            self.metrics,
            clock=self.clock,
            on_engine_event=self._on_engine_event,
            on_record=self._book.take,
            max_detached=options.max_sessions,
            encoders=self._encoders,
        )
        voices = voices or VoiceOptions()
        self._desk = VoiceDesk(
            engine=engine,
            service=self.service,
            store=VoiceStore(voices.dir),
            maker=voice_maker or CopyingMaker(),
            options=voices,
            on_change=self._on_voices_changed,
        )
        self._prewarmer = Prewarmer(self._hub, engine, options.prewarm_voices)
        self._figures = Figures(
            hub=self._hub,
            readiness=self._readiness,
            book=self._book,
            history=history,
            lag=self._lag,
            gpu=self._gpu,
            feed=self._feed,
            troubles=self._troubles,
            clock=self.clock,
            wall_clock=_wall_clock,
        )
        gate = Gate(options)
        self._doorman = Doorman(
            gate=gate,
            hub=self._hub,
            readiness=self._readiness,
            options=options,
            metrics=self.metrics,
            feed=self._feed,
            figures=self._figures,
        )
        self._surfaces = Surfaces(
            gate=gate,
            hub=self._hub,
            doorman=self._doorman,
            readiness=self._readiness,
            options=options,
            aliases=aliases or AliasOptions(),
            metrics=self.metrics,
        )
        self._http = http.build(
            http.Surface(
                gate=gate,
                service=self.service,
                readiness=self._readiness,
                metrics=self.metrics,
                figures=self._figures,
                options=options,
                opus=self._opus,
                clock=self.clock,
                troubles=self._troubles,
                voices=VoiceEndpoints(
                    self._desk,
                    self.service,
                    int(1e6 * voices.max_upload_mb),
                    lambda: self._readiness.refusal(self.clock()),
                ),
            )
        )
        self._listener = Listener(
            self._app,
            options,
            max_message_bytes=session_options.max_message_bytes + OVERSIZE_BYTES,
            transport=transport,
        )
        self._follow()

    # --- where it is and how it is --------------------------------------------------------------

    @property
    def url(self) -> str:
        """Base of its HTTP addresses, once started: "http://127.0.0.1:8765"."""
        return self._listener.url

    @property
    def ws_url(self) -> str:
        """Address of the native protocol, once started: "ws://127.0.0.1:8765/v1/tts"."""
        return "ws" + self._listener.url.removeprefix("http") + NATIVE_PATH

    @property
    def is_ready(self) -> bool:
        """Whether new sessions are accepted."""
        return not self._readiness.reasons

    async def ready(self) -> None:
        """Wait until new sessions are accepted.

        Raises:
            ConfigError: They never will be.
        """
        waiting = asyncio.ensure_future(self._is_ready.wait())
        ends: set[asyncio.Future[Any]] = {waiting, self.failed}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self.failed.done():
            raise self.failed.result()

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, then start the engine; returns before it is ready.

        Raises:
            ConfigError: The address cannot be used.
        """
        await self._listener.open()
        self._lag.start()
        self._figures.start()
        self._gpu.start()
        await self._engine.start(self._hub.deliver)

    async def shutdown(self, drain_timeout_s: float) -> None:
        """Stop: let running contexts finish for `drain_timeout_s`, then end and close everything."""
        now = self.clock()
        self.service.is_draining = True
        self.service.drain_deadline = now + drain_timeout_s
        self._is_ready.clear()
        self._stop_prewarming()
        self._hub.drain(drain_timeout_s)
        await self._until_empty(drain_timeout_s)
        self._hub.stop_all()
        await self._until_empty(LAST_WORDS_S + 0.5)
        await self._listener.close(grace_s=CLOSE_GRACE_S)
        await self.close_engine()

    async def _until_empty(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._hub.is_empty.wait()

    def abort(self) -> None:
        """Drop every connection now."""
        self._listener.stop_listening()
        self._listener.abort()

    async def close_engine(self) -> None:
        """Stop the timers and the engine."""
        self._stop_prewarming()
        self._lag.stop()
        self._figures.stop()
        self._gpu.stop()
        await self._desk.close()
        await self._engine.close()
        for each in (self._recording, self._tracing):
            if each is not None:  # on a thread: a disk or a collector may take its time
                await asyncio.to_thread(each.close)
        self._encoders.close()

    # --- the engine -----------------------------------------------------------------------------

    def _on_engine_event(self, event: EngineEvent, now: float) -> None:
        before = self.service.members
        self.service.on_engine_event(event, now)
        metrics = self.metrics
        match event:
            case EngineReady():
                self._on_ready(event.capabilities)
            case EngineDown():
                self._readiness.has_failed = True
                self._is_ready.clear()
                self._stop_prewarming()
                if event.is_final:
                    self._fail(ConfigError(event.message))
                    return
                metrics.engine_restarts.inc()
                log.error("the engine is down: %s", event.message)
            case EngineMembers():
                self._on_members(event, before)
            case EngineLoad():
                metrics.engine_utterances.set(event.utterances)
                metrics.engine_backlog.set(event.backlog_s)
                metrics.engine_first_chunk.set(event.first_chunk_s)
                metrics.voice_entries.set(event.cache_entries)
                metrics.voice_bytes.set(event.cache_bytes)
            case VoiceLoaded():
                metrics.voice_requests.labels("hit" if event.cached else "miss").inc()
                if not event.cached:
                    metrics.voice_load.observe(event.load_s)
                self._prewarmer.on_voice(event)
                self._desk.on_event(event)
            case VoiceFailed():
                metrics.voice_failures.inc()
                self._prewarmer.on_voice(event)
                self._desk.on_event(event)
            case VoiceEvicted():
                metrics.voice_evictions.inc()

    def _on_members(self, members: EngineMembers, before: EngineMembers | None) -> None:
        metrics = self.metrics
        metrics.engine_slots.set(members.max_utterances)
        metrics.engine_processes.labels("up").set(members.up)
        metrics.engine_processes.labels("down").set(members.total - members.up)
        if before is not None and members.up < before.up:
            metrics.engine_restarts.inc(before.up - members.up)
            log.error("%s", _members_trouble(members))

    def _on_ready(self, offered: Capabilities) -> None:
        self._readiness.has_failed = False
        self._show_degraded(offered)
        self._desk.restore(offered)
        capabilities = self.service.capabilities
        assert capabilities is not None, "the engine has just said it"
        self._stop_prewarming()
        try:
            self._surfaces.furnish(capabilities)
        except ConfigError as error:
            self._fail(error)
            return
        self._prewarming = asyncio.create_task(self._prewarm(capabilities))

    def _on_voices_changed(self) -> None:
        if self.service.capabilities is not None:
            self._surfaces.furnish(self.service.capabilities)

    async def _prewarm(self, capabilities: Capabilities) -> None:
        began = self.clock()
        try:
            if capabilities.voices:
                await self._prewarmer.run(capabilities)
            else:  # it clones, and nobody has brought a voice yet
                log.warning("there is no voice yet: add one with POST /v1/voices")
        except ConfigError as error:
            self._fail(error)
            return
        self.service.first_packet.clear()  # of the rehearsal
        self._lag.clear()
        self.metrics.degraded.labels("voices").set(len(self._prewarmer.failed_voices) > 0)
        if self.service.is_draining:
            return
        self.service.is_ready = True
        self._is_ready.set()
        log.info("ready after %.2f s of prewarming", self.clock() - began)

    def _fail(self, error: ConfigError) -> None:
        """It will never be ready."""
        log.error("%s", error)
        if not self.failed.done():
            self.failed.set_result(error)

    def _stop_prewarming(self) -> None:
        if self._prewarming is not None:
            self._prewarming.cancel()
            self._prewarming = None

    # --- the app --------------------------------------------------------------------------------

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        try:
            await self._answer(scope, receive, send)
        except asyncio.CancelledError:
            # Only the listener cancels, when it has dropped the connection: this is the task's end,
            # and no crash, as which uvicorn would log it.
            return

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        found = self._surfaces.find(scope)
        if found is not None:
            await self._surfaces.answer(scope, receive, send, found)
        elif scope["type"] != "websocket":
            await self._http(scope, receive, send)
        elif scope["path"] == NATIVE_PATH:
            await self._doorman.native(scope, receive, send)
        elif scope["path"] == STATS_PATH:
            await self._doorman.stats(scope, receive, send)
        else:
            await receive()
            await deny(send, 404, _NOT_FOUND)

    def _troubles(self) -> list[str]:
        failed = self._prewarmer.failed_voices.items()
        troubles = [f"voice {voice} could not be loaded: {why}" for voice, why in failed]
        members = self.service.members
        if members is not None and members.up < members.total:
            troubles.append(_members_trouble(members))
        if self.service.effort.is_saving:
            troubles.append(
                f"opus complexity is lowered to {self.service.effort.level}: many listen"
            )
        troubles.extend(self._desk.troubles)
        if self._recording is not None and self._recording.trouble:
            troubles.append(f"contexts are not recorded: {self._recording.trouble}")
        return [self._prewarmer.trouble, *troubles] if self._prewarmer.trouble else troubles

    def _show_degraded(self, capabilities: Capabilities) -> None:
        self.metrics.engine_slots.set(capabilities.max_utterances)
        self.metrics.degraded.clear()
        self.metrics.degraded.labels("opus").set(self._opus is None)
        effort = self.service.effort
        self.metrics.follow(self.metrics.degraded.labels("opus_effort"), lambda: effort.is_saving)
        recording = self._recording
        if recording is not None:
            recorded = self.metrics.degraded.labels("recording")
            self.metrics.follow(recorded, lambda: bool(recording.trouble))
        for sentence in capabilities.degraded:
            self.metrics.degraded.labels(_slug(sentence)).set(1)

    def _follow(self) -> None:
        """Gauges that are read when they are scraped."""
        metrics, hub = self.metrics, self._hub
        metrics.follow(metrics.connections, lambda: self._doorman.connections)
        metrics.follow(metrics.sessions, lambda: hub.sessions)
        metrics.follow(metrics.contexts, lambda: hub.contexts)
        metrics.follow(metrics.queue_depth, lambda: hub.queue_depth)
        metrics.follow(metrics.send_buffer, lambda: self._doorman.waiting_bytes)
        metrics.follow(metrics.watchers, lambda: self._feed.watchers)
        metrics.follow(metrics.loop_lag_max, lambda: self._lag.worst_s(self.clock()))
        metrics.follow(metrics.opus_complexity, lambda: self.service.effort.level)
        metrics.follow(metrics.ready, lambda: self.is_ready)
        metrics.follow(metrics.draining, lambda: self.service.is_draining)


def _find_opus() -> OpusLibrary | None:
    try:
        return load_library()
    except ConfigError as error:
        log.warning("%s", error)
        return None


def _effort(
    complexity: int, threads: int, clock: Callable[[], float], opus: OpusLibrary | None
) -> OpusEffort | None:
    """How hard Opus tries, from what a packet costs on this machine."""
    if opus is None:
        return None
    effort = OpusEffort(complexity, packet_cost_s(complexity, clock), threads)
    log.info(
        "opus complexity %d for up to %d listeners, on %d threads",
        complexity, effort.max_live, max(1, threads),
    )  # fmt: skip
    return effort


def _members_trouble(members: EngineMembers) -> str:
    return f"{members.total - members.up} of {members.total} engine processes are down"


def _wall_clock() -> float:
    return datetime.now(UTC).timestamp()


def _recording(options: ServerOptions, service: Service, metrics: Metrics) -> Recording | None:
    if options.record_file is None:
        return None
    return Recording(
        options.record_file,
        max_bytes=int(1e6 * options.record_max_mb),
        keep=options.record_keep,
        epoch_s=lambda: service.epoch_s,
        on_lost=metrics.record_lost.inc,
    )


def _tracing(options: ServerOptions, service: Service) -> Tracing | None:
    if not options.otlp_endpoint:
        return None
    return Tracing(options.otlp_endpoint, epoch_s=lambda: service.epoch_s)


def _slug(sentence: str) -> str:
    """A label value of a sentence: its first words, plain."""
    return re.sub(r"[^a-z0-9]+", "_", sentence.lower()).strip("_")[:48]
