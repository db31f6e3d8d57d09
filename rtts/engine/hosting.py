"""What hosts of cores share: routing, restarts with backoff, and one terminal event each.

A hosted engine has one or more *workers*; each worker runs a core of its own in a *life*: a thread
or a process that lasts until it is stopped or dies. This module decides which worker speaks which
utterance, merges what several workers say of themselves into one engine's events, fails the
utterances of a life that died, and starts the next life after a pause.

Everything here happens on the event loop. It knows nothing about threads, processes or pipes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from rtts.engine import cluster
from rtts.engine.interface import (
    AddVoice,
    Capabilities,
    Command,
    EngineDown,
    EngineEvent,
    EngineLoad,
    EngineMembers,
    EngineReady,
    Event,
    LoadVoice,
    RemoveVoice,
    StartUtterance,
    UtteranceEvent,
    UtteranceFailed,
    UtteranceFinished,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.errors import EngineDeadError, InternalError, ShuttingDownError

log = logging.getLogger(__name__)

Deliver = Callable[[Sequence[Event]], None]


class Life(Protocol):
    """One run of one core. Methods are called on the event loop."""

    def send(self, commands: Sequence[Command]) -> None:
        """Hand commands over; never blocks, and never raises for a core that is dead."""

    async def stop(self) -> None:
        """End the run and free everything it held. What it still reports is not heard."""


class Reports(Protocol):
    """Where a life reports to; called on the event loop, and not after its death was reported."""

    def events(self, events: Sequence[Event]) -> None:
        """The core said something."""

    def died(self, message: str, *, is_config: bool = False) -> None:
        """The core raised, or its process is gone. Reported once, after all its events.

        Args:
            is_config: A setting is wrong.
        """


# Starts a life; it may raise OSError or RuntimeError where no thread or process can be had.
Launch = Callable[[asyncio.AbstractEventLoop, Reports], Life]


class HostState(StrEnum):
    """Where an engine, or one worker of it, stands."""

    STARTING = "starting"  # its first life is not ready yet; commands are taken
    READY = "ready"
    DOWN = "down"  # died and not ready again; utterances are refused
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before starting a dead core again.

    Attributes:
        first_s: After the first death; doubled with each death that follows.
        max_s: The longest wait.
        healthy_s: A life that was ready for this long starts the count afresh.
    """

    first_s: float = 0.1
    max_s: float = 10.0
    healthy_s: float = 30.0

    def delay_s(self, deaths: int) -> float:
        """The wait after that many deaths in a row (1, 2, ...)."""
        return float(min(self.max_s, self.first_s * 2 ** min(deaths - 1, 30)))


@dataclass(slots=True, eq=False)
class _Worker:
    """One worker's state. Owner: event loop."""

    index: int
    launch: Launch
    life: Life | None = None  # None between a death and the next launch
    life_number: int = 0  # tells reports of the present life from late ones
    state: HostState = HostState.STARTING
    ready_at_s: float = 0.0  # set with READY
    deaths: int = 0  # in a row, for the backoff
    utterances: set[int] = field(default_factory=set)
    capabilities: Capabilities | None = None  # of its latest EngineReady
    load: EngineLoad | None = None  # latest of the present life

    @property
    def candidate(self) -> cluster.Candidate:
        """How good it is for another utterance."""
        rank = cluster.rank(
            is_ready=self.state is HostState.READY,
            live=len(self.utterances),
            capabilities=self.capabilities,
        )
        return cluster.Candidate(self.index, rank)


@dataclass(slots=True)
class _VoiceLoad:
    """A `LoadVoice` that not every worker has answered."""

    waiting: set[int]  # indices of workers that owe an answer
    cached: bool = True
    load_s: float = 0.0
    answers: int = 0


@dataclass(slots=True)
class _LifeReports:
    """`Reports` of one life; silent once the worker has moved on."""

    engine: HostedEngine
    worker: _Worker
    number: int

    def events(self, events: Sequence[Event]) -> None:
        if self.worker.life_number == self.number:
            self.engine._on_events(self.worker, events)

    def died(self, message: str, *, is_config: bool = False) -> None:
        if self.worker.life_number == self.number:
            self.engine._on_death(self.worker, message, is_config=is_config)


class HostedEngine:
    """An `Engine` made of workers; `LocalEngine` and `RemoteEngine` say what a worker is.

    Owner: event loop.

    Attributes:
        name: For logs.
        restarts: Lives started beyond the first of each worker.
    """

    def __init__(self, name: str, launches: Sequence[Launch], backoff: Backoff) -> None:
        self.name = name
        self.restarts = 0
        self._backoff = backoff
        self._workers = [_Worker(index, launch) for index, launch in enumerate(launches)]
        self._cluster = cluster.Cluster(len(launches))
        self._owners: dict[int, _Worker] = {}  # live utterances, until their terminal event
        self._added: dict[str, AddVoice] = {}  # to be added again to each new life
        self._voices: dict[str, LoadVoice] = {}  # to be loaded again by each new life
        self._voice_loads: dict[str, _VoiceLoad] = {}
        self._members: EngineMembers | None = None  # as last told
        self._announced = False  # between the EngineReady and the EngineDown that were delivered
        self._was_ready = False  # an EngineReady was delivered at some time
        self._load_merge = _LoadMerge(self._say)
        self._deliver: Deliver | None = None  # set by start
        self._loop: asyncio.AbstractEventLoop | None = None  # set by start
        self._timers: dict[int, asyncio.TimerHandle] = {}  # next launch, by worker index
        self._stopping: set[asyncio.Task[None]] = set()  # dead lives being cleared away
        self._closing: asyncio.Task[None] | None = None  # set by close

    # --- the three methods of an Engine, and what the metrics read ------------------------------

    @property
    def state(self) -> HostState:
        """`ready` between the delivered `EngineReady` and `EngineDown`."""
        if self._closing is not None:
            return HostState.CLOSED
        if self._announced:
            return HostState.READY
        # Down as long as utterances would be refused, or a failed first start is being retried.
        down = self._was_ready or any(worker.deaths for worker in self._workers)
        return HostState.DOWN if down else HostState.STARTING

    @property
    def utterances(self) -> int:
        """Live utterances: started, and no terminal event delivered."""
        return len(self._owners)

    async def start(self, deliver: Deliver) -> None:
        """Start every worker; returns at once. See `rtts.engine.interface.Engine`."""
        if self._loop is not None:
            raise InternalError(f"engine {self.name} was started twice")
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver
        for worker in self._workers:
            self._launch(worker)

    def submit(self, commands: Sequence[Command]) -> None:
        """Hand commands to the workers whose utterances they are; never blocks."""
        if self._loop is None:
            raise InternalError(f"engine {self.name} was not started")
        batches: dict[int, list[Command]] = {}
        for command in commands:
            self._cluster.on_command(command)
            if isinstance(command, LoadVoice):
                self._submit_load(command, batches)
                continue
            if isinstance(command, AddVoice | RemoveVoice):
                self._submit_voice(command, batches)
                continue
            if isinstance(command, StartUtterance):
                self._assign(command)
            owner = self._owners.get(command.utterance_id)
            if owner is not None:
                batches.setdefault(owner.index, []).append(command)
        for index, batch in batches.items():
            life = self._workers[index].life
            if life is not None:
                life.send(batch)

    async def close(self) -> None:
        """Fail what is live as `shutting_down`, stop every worker, free everything; idempotent."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    # --- commands -------------------------------------------------------------------------------

    def _assign(self, start: StartUtterance) -> None:
        """Give a new utterance to the worker that is to speak it, or fail it."""
        utterance_id = start.utterance_id
        if utterance_id in self._owners:
            return
        open_ = [w for w in self._workers if w.life is not None and w.state is not HostState.DOWN]
        if self._closing is not None:
            self._refuse(utterance_id, ShuttingDownError.code, "the engine is shutting down", None)
        elif not open_:
            wait_s = self._backoff.delay_s(min(w.deaths for w in self._workers))
            self._refuse(utterance_id, EngineDeadError.code, "the engine is restarting", wait_s)
        else:
            worker = self._workers[self._cluster.place(start, [w.candidate for w in open_])]
            self._owners[utterance_id] = worker
            worker.utterances.add(utterance_id)

    def _refuse(
        self, utterance_id: int, code: str, message: str, retry_after_s: float | None
    ) -> None:
        """Fail an utterance that never reached a worker, after `submit` has returned."""
        failed = UtteranceFailed(
            utterance_id, code, message, retryable=True, retry_after_s=retry_after_s
        )
        if self._loop is not None:
            self._loop.call_soon(self._say, [failed])

    def _submit_load(self, command: LoadVoice, batches: dict[int, list[Command]]) -> None:
        """Have every worker load the voice: those that are ready now, the others when they are."""
        if self._closing is not None:
            return
        known = self._voices.get(command.voice)
        if known is not None and known.pinned:
            command = replace(command, pinned=True)  # a later unpinned load takes no pin away
        self._voices[command.voice] = command
        load = self._voice_loads.setdefault(command.voice, _VoiceLoad(set()))
        for worker in self._workers:
            if worker.state is HostState.READY:
                batches.setdefault(worker.index, []).append(command)
            if worker.state is not HostState.DOWN:
                load.waiting.add(worker.index)

    def _submit_voice(
        self, command: AddVoice | RemoveVoice, batches: dict[int, list[Command]]
    ) -> None:
        """Tell every worker of a voice: those that are ready now, the others when they are."""
        if isinstance(command, AddVoice):
            self._added[command.voice.id] = command
        else:
            self._added.pop(command.voice, None)
            self._voices.pop(command.voice, None)
            self._voice_loads.pop(command.voice, None)
        for worker in self._workers:
            if worker.state is HostState.READY:
                batches.setdefault(worker.index, []).append(command)

    # --- events ---------------------------------------------------------------------------------

    def _say(self, events: Sequence[Event]) -> None:
        if events and self._deliver is not None:
            self._deliver(events)

    def _on_events(self, worker: _Worker, events: Sequence[Event]) -> None:
        out: list[Event] = []
        for event in events:
            if isinstance(event, UtteranceEvent):
                self._pass(worker, event, out)
            else:
                self._on_engine_event(worker, event, out)
        self._say(out)

    def _pass(self, worker: _Worker, event: UtteranceEvent, out: list[Event]) -> None:
        """Let an utterance's event through, unless the utterance has ended."""
        if event.utterance_id in worker.utterances:
            out.append(event)
            self._cluster.on_event(worker.index, event)
            if isinstance(event, UtteranceFinished | UtteranceFailed):
                self._forget(worker, event.utterance_id)

    def _forget(self, worker: _Worker, utterance_id: int) -> None:
        worker.utterances.discard(utterance_id)
        self._cluster.ended(utterance_id)
        del self._owners[utterance_id]

    def _on_engine_event(self, worker: _Worker, event: EngineEvent, out: list[Event]) -> None:
        self._cluster.on_event(worker.index, event)
        match event:
            case EngineReady():
                self._on_ready(worker, event, out)
            case EngineLoad():
                worker.load = event
                merged = self._load_merge.update(self._workers, asyncio.get_running_loop())
                out.extend(merged)
            case VoiceLoaded():
                self._on_voice_loaded(worker, event, out)
            case VoiceFailed():
                self._voices.pop(event.voice, None)
                load = self._voice_loads.pop(event.voice, None)
                was_added = self._added.pop(event.voice, None) is not None
                if load is not None or was_added or len(self._workers) == 1:
                    out.append(event)  # of several workers, the first failure speaks for all
            case VoiceEvicted():
                out.append(event)
            case EngineDown() | EngineMembers():
                # A core has no say in its own death, nor in its siblings'; its host sees them.
                log.error("engine %s: a core sent %s", self.name, event)

    def _on_ready(self, worker: _Worker, event: EngineReady, out: list[Event]) -> None:
        if differing := self._differing(worker, event.capabilities):
            message = f"worker {worker.index} differs from the others in {differing}"
            self._on_death(worker, message, is_config=True)
            return
        worker.state = HostState.READY
        worker.ready_at_s = asyncio.get_running_loop().time()
        worker.capabilities = event.capabilities
        self._cluster.set_rate(event.capabilities.sample_rate_hz)
        if (self._added or self._voices) and worker.life is not None:
            worker.life.send((*self._added.values(), *self._voices.values()))
            for voice in self._voices:
                if voice in self._voice_loads:
                    self._voice_loads[voice].waiting.add(worker.index)
        ready = self._ready_capabilities()
        if not self._announced and len(ready) == len(self._workers):
            self._announced = self._was_ready = True
            out.append(EngineReady(cluster.merged(ready)))
        self._tell_members(out)

    def _ready_capabilities(self) -> list[Capabilities]:
        workers = [w for w in self._workers if w.state is HostState.READY]
        return [w.capabilities for w in workers if w.capabilities is not None]

    def _differing(self, worker: _Worker, capabilities: Capabilities) -> str:
        """What a worker says of itself that the others, who are to be its equals, do not; or ""."""
        others = [w for w in self._workers if w is not worker and w.state is HostState.READY]
        known = [w.capabilities for w in others if w.capabilities is not None]
        return cluster.difference(known[0], capabilities) if known else ""

    def _tell_members(self, out: list[Event]) -> None:
        """Say how many workers are up, where there are several and some once were."""
        if len(self._workers) > 1 and self._announced:
            up = self._ready_capabilities()
            both = cluster.merged(up)
            members = EngineMembers(len(up), len(self._workers), both.max_utterances, both.slots)
            if members != self._members:
                self._members = members
                out.append(members)

    def _on_voice_loaded(self, worker: _Worker, event: VoiceLoaded, out: list[Event]) -> None:
        load = self._voice_loads.get(event.voice)
        if load is None or worker.index not in load.waiting:
            # Nobody asked this worker: an utterance made it load the voice, or a restart did.
            out.append(event)
            return
        load.waiting.discard(worker.index)
        load.answers += 1
        load.cached = load.cached and event.cached
        load.load_s = max(load.load_s, event.load_s)
        self._answer_loads(out)

    def _answer_loads(self, out: list[Event]) -> None:
        """Report each voice for which no worker owes an answer any more."""
        for voice, load in list(self._voice_loads.items()):
            if not load.waiting and load.answers:
                del self._voice_loads[voice]
                if not self._voices[voice].pinned:
                    del self._voices[voice]
                out.append(VoiceLoaded(voice, load.cached, load.load_s))

    # --- lives ----------------------------------------------------------------------------------

    def _launch(self, worker: _Worker) -> None:
        assert self._loop is not None
        self._timers.pop(worker.index, None)
        worker.life_number += 1
        self.restarts += worker.life_number > 1
        reports = _LifeReports(self, worker, worker.life_number)
        try:
            worker.life = worker.launch(self._loop, reports)
        except (OSError, RuntimeError) as error:  # no memory, no process, no thread to be had
            self._loop.call_soon(reports.died, f"could not start: {error}")

    def _on_death(self, worker: _Worker, message: str, *, is_config: bool) -> None:
        assert self._loop is not None
        life, worker.life, worker.load = worker.life, None, None
        self._cluster.died(worker.index)
        if life is not None:
            task = self._loop.create_task(life.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        if worker.state is HostState.READY:
            lived_s = self._loop.time() - worker.ready_at_s
            worker.deaths = 0 if lived_s >= self._backoff.healthy_s else worker.deaths
        worker.state = HostState.DOWN
        worker.life_number += 1  # whatever the dead life still says is not heard
        worker.deaths += 1
        if is_config and not self._was_ready:  # wrong now, wrong at the next start
            self._report_death(worker, message, 0.0, is_final=True)
            return
        delay_s = self._backoff.delay_s(worker.deaths)
        log.error(
            "engine %s: worker %d died with %d live utterances, starting again in %.1f s: %s",
            self.name, worker.index, len(worker.utterances), delay_s, message,
        )  # fmt: skip
        self._timers[worker.index] = self._loop.call_later(delay_s, self._launch, worker)
        self._report_death(worker, message, delay_s)

    def _report_death(
        self, worker: _Worker, message: str, delay_s: float, *, is_final: bool = False
    ) -> None:
        """Fail the dead life's utterances; with the last worker the engine is down."""
        # What the core raised is for operators: it may quote paths, or what somebody else said.
        told = "the engine died and is being restarted"
        out = self._fail_all(worker, EngineDeadError.code, told, delay_s)
        for load in self._voice_loads.values():
            load.waiting.discard(worker.index)
        self._answer_loads(out)
        # While another worker speaks, the engine is slower, not down. Before the first ready
        # every failed start is told, or an operator would wait without knowing for what.
        if not self._announced or all(w.state is HostState.DOWN for w in self._workers):
            self._announced = False
            out.append(EngineDown(message, delay_s, is_final))
        self._tell_members(out)
        self._say(out)

    def _fail_all(
        self, worker: _Worker, code: str, message: str, retry_after_s: float | None
    ) -> list[Event]:
        failed: list[Event] = [
            UtteranceFailed(each, code, message, retryable=True, retry_after_s=retry_after_s)
            for each in sorted(worker.utterances)
        ]
        for each in list(worker.utterances):
            self._forget(worker, each)
        return failed

    async def _close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._load_merge.cancel()
        out: list[Event] = []
        lives = []
        for worker in self._workers:
            worker.life_number += 1
            out += self._fail_all(
                worker, ShuttingDownError.code, "the engine is shutting down", None
            )
            if worker.life is not None:
                lives.append(worker.life.stop())
                worker.life = None
        self._say(out)
        await asyncio.gather(*lives, *self._stopping)


class _LoadMerge:
    """Makes one `EngineLoad` of several workers'. Owner: event loop."""

    INTERVAL_S = 0.05  # `EngineLoad` at most this often (its docstring)

    def __init__(self, say: Deliver) -> None:
        self._say = say
        self._told: EngineLoad | None = None
        self._told_at_s = float("-inf")
        self._merged: EngineLoad | None = None
        self._timer: asyncio.TimerHandle | None = None

    def update(
        self, workers: Sequence[_Worker], loop: asyncio.AbstractEventLoop
    ) -> Sequence[EngineLoad]:
        """A worker's load changed: what to tell of it now; the rest is told when it may be."""
        loads = [worker.load for worker in workers if worker.load is not None]
        best = min(loads, key=lambda load: load.backlog_s)  # where a new utterance would go
        self._merged = replace(
            best,
            utterances=sum(load.utterances for load in loads),
            cache_entries=sum(load.cache_entries for load in loads),
            cache_bytes=sum(load.cache_bytes for load in loads),
        )
        if self._timer is not None:
            return []
        wait_s = self._told_at_s + self.INTERVAL_S - loop.time()
        if wait_s > 0:
            self._timer = loop.call_later(wait_s, self._tell_late, loop)
            return []
        return self._tell(loop)

    def cancel(self) -> None:
        """Tell nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, loop: asyncio.AbstractEventLoop) -> Sequence[EngineLoad]:
        if self._merged is None or self._merged == self._told:
            return []
        self._told, self._told_at_s = self._merged, loop.time()
        return [self._merged]

    def _tell_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._say(self._tell(loop))
