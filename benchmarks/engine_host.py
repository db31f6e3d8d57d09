"""What hosting an engine costs, on a thread and in a process: round trips, throughput, deaths.

    python benchmarks/engine_host.py [--rounds 1000] [--output benchmarks/results/...json]

The engine is the tone engine, so that nearly all of what is measured is the host. A round trip is
from `submit` of a start with its first segment to the delivery of the first audio on the loop,
with 2 ms of rest after each. Five turns, all hosts in each; figures are those of the median turn.
The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import statistics
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import uvloop  # noqa: E402
from engine_host_cores import Stepper  # noqa: E402
from record import record, write  # noqa: E402

import rtts.engine.local  # noqa: E402
from rtts.engine.hosting import Backoff, HostedEngine  # noqa: E402
from rtts.engine.interface import (  # noqa: E402
    AppendText,
    AudioProduced,
    CancelUtterance,
    EngineDown,
    EngineReady,
    Event,
    GrantAudio,
    StartUtterance,
    UtteranceFailed,
)
from rtts.engine.local import LocalEngine  # noqa: E402
from rtts.engine.remote import RemoteEngine, RemoteOptions  # noqa: E402
from rtts.engine.tone import ToneEngine  # noqa: E402

TEXT = "Hello there, how can I help you today?"
CHUNK_S = 0.08
NEIGHBOURS = 100
Figures = dict[str, float]

MAKE: dict[str, Callable[[], HostedEngine]] = {
    "local": lambda: LocalEngine(ToneEngine),
    "remote": lambda: RemoteEngine(ToneEngine),
    "remote_2_workers": lambda: RemoteEngine(ToneEngine, workers=2),
}


def spread(values_s: Sequence[float]) -> Figures:
    ordered = sorted(values_s)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1e3, 3),
        "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1e3, 3),
    }


def median(turns: Sequence[Figures]) -> Figures:
    return {key: round(statistics.median(each[key] for each in turns), 3) for key in turns[0]}


class Client:
    """Counts chunks and notes when an utterance's first audio is delivered."""

    def __init__(self, engine: HostedEngine) -> None:
        self.engine = engine
        self.chunks = 0
        self.steps_s: list[float] = []  # what a `Stepper` says
        self.first: dict[int, asyncio.Future[float]] = {}
        self.ready = asyncio.Event()
        self.down = asyncio.Event()
        self.failed_s = 0.0

    async def __aenter__(self) -> Client:
        await self.engine.start(self.deliver)
        await self.ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()

    def deliver(self, events: Sequence[Event]) -> None:
        now = time.perf_counter()
        for event in events:
            if isinstance(event, AudioProduced):
                self.chunks += 1
                if len(event.pcm) == 8:
                    self.steps_s += struct.unpack("<d", event.pcm)
                waiting = self.first.pop(event.utterance_id, None)
                if waiting is not None:
                    waiting.set_result(now)
            elif isinstance(event, EngineReady):
                self.ready.set()
            elif isinstance(event, EngineDown):
                self.down.set()
            elif isinstance(event, UtteranceFailed):
                self.failed_s = now

    def start(self, utterance_id: int, text: str, until_s: float) -> None:
        # Word times of a segment of an hour would be measured instead of the host.
        is_speech = len(text) < 1_000
        self.engine.submit(
            [
                StartUtterance(utterance_id, "tone", until_s=until_s, word_timings=is_speech),
                AppendText(utterance_id, 0, text),
            ]
        )

    async def round_trip_s(self, utterance_id: int) -> float:
        self.first[utterance_id] = asyncio.get_running_loop().create_future()
        waiting = self.first[utterance_id]
        begun_s = time.perf_counter()
        self.start(utterance_id, TEXT, CHUNK_S)
        took_s = await waiting - begun_s
        self.engine.submit([CancelUtterance(utterance_id)])
        return took_s


async def round_trips(make: Callable[[], HostedEngine], rounds: int, neighbours: int) -> Figures:
    """Round trips beside neighbours who are granted audio in real time."""
    async with Client(make()) as client:
        live = asyncio.create_task(play(client, neighbours))
        await asyncio.sleep(0.2)
        took_s = []
        for utterance_id in range(rounds):
            took_s.append(await client.round_trip_s(utterance_id))
            await asyncio.sleep(0.002)
        live.cancel()
    return spread(took_s)


async def play(client: Client, utterances: int) -> None:
    """Grant each utterance a chunk every 80 ms, an eighth of them every 10 ms."""
    first = 1_000_000
    for utterance_id in range(first, first + utterances):
        client.start(utterance_id, TEXT * 100, CHUNK_S)
    tick, next_s = 0, time.perf_counter()
    while True:
        tick, next_s = tick + 1, next_s + 0.01
        until_s = (tick // 8 + 2) * CHUNK_S
        turn = range(first + tick % 8, first + utterances, 8)
        client.engine.submit([GrantAudio(utterance_id, until_s) for utterance_id in turn])
        await asyncio.sleep(max(0.0, next_s - time.perf_counter()))


async def saturated(make: Callable[[], HostedEngine], seconds: float) -> Figures:
    """A core that never pauses: chunks a second, and how late the loop's timers are."""
    async with Client(make()) as client:
        for utterance_id in range(NEIGHBOURS):
            client.start(utterance_id, TEXT * 400, 1e9)
        late_s, begun_s, before = [], time.perf_counter(), client.chunks
        while time.perf_counter() < begun_s + seconds:
            asked_s = time.perf_counter()
            await asyncio.sleep(0.005)
            late_s.append(max(0.0, time.perf_counter() - asked_s - 0.005))
        rate = (client.chunks - before) / (time.perf_counter() - begun_s)
    lag = spread(late_s)
    return {"chunks_per_s": rate, "lag_p50_ms": lag["p50_ms"], "lag_p99_ms": lag["p99_ms"]}


async def beside_streams(make: Callable[[], HostedEngine], streams: int, seconds: float) -> Figures:
    """A model's steps beside a loop that encodes: 30 us for each of 50 packets a second and stream.

    Returns the length of a step, and how late the loop comes to each 20 ms of packets.
    """
    async with Client(make()) as client:
        client.start(1, TEXT, 1e9)
        late_s, next_s, end_s = [], time.perf_counter(), time.perf_counter() + seconds
        groups, group = min(streams, 10), 0  # the streams do not all send at the same moment
        while next_s < end_s:
            next_s += 0.02 / groups
            await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
            late_s.append(max(0.0, time.perf_counter() - next_s))
            packets = len(range(group, streams, groups))
            group = (group + 1) % groups
            busy_until_s = time.perf_counter() + packets * 30e-6
            while time.perf_counter() < busy_until_s:
                pass
        steps = spread(client.steps_s[len(client.steps_s) // 10 :])
    late = spread(late_s)
    return {
        "step_p50_ms": steps["p50_ms"],
        "step_p99_ms": steps["p99_ms"],
        "packets_late_p50_ms": late["p50_ms"],
        "packets_late_p99_ms": late["p99_ms"],
    }


async def deaths(times: int) -> Figures:
    """SIGKILL of the child until its utterance has failed; then until the next life is ready."""
    options = RemoteOptions(backoff=Backoff(first_s=0.0, max_s=0.0))
    failed_s, ready_s = [], []
    async with Client(RemoteEngine(ToneEngine, options=options)) as client:
        for utterance_id in range(times):
            await client.round_trip_s(utterance_id)
            client.start(1_000 + utterance_id, TEXT, CHUNK_S)
            await asyncio.sleep(0.05)
            client.ready.clear(), client.down.clear()
            killed_s = time.perf_counter()
            assert isinstance(client.engine, RemoteEngine)
            os.kill(client.engine.pids[0], signal.SIGKILL)
            await client.down.wait()
            failed_s.append(client.failed_s - killed_s)
            await client.ready.wait()
            ready_s.append(time.perf_counter() - killed_s)
    return {
        "failed_median_ms": round(statistics.median(failed_s) * 1e3, 2),
        "failed_max_ms": round(max(failed_s) * 1e3, 2),
        "ready_again_median_ms": round(statistics.median(ready_s) * 1e3, 1),
    }


def floor(rounds: int) -> Figures:
    """What the machine takes for 200 bytes to another process and 4 kB back, and nothing else."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        while theirs.recv(65_536):
            theirs.send(bytes(4_000))
        os._exit(0)
    theirs.close()
    took_s = []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        ours.send(bytes(200))
        ours.recv(65_536)
        took_s.append(time.perf_counter() - begun_s)
        time.sleep(0.002)
    ours.close()
    os.waitpid(child, 0)
    return spread(took_s)


def core_alone(runs: int) -> Figures:
    """The tone engine without a host: microseconds a chunk, with 100 utterances."""
    costs_us = []
    for _ in range(runs):
        core, now, chunks = ToneEngine(), 1000.0, 0
        core.step(now)
        for utterance_id in range(NEIGHBOURS):
            core.apply(StartUtterance(utterance_id, "tone", until_s=1e9))
            core.apply(AppendText(utterance_id, 0, TEXT * 10))
        begun_s = time.thread_time()
        while chunks < 10_000:
            core.has_work(), core.next_due_s(now)
            chunks += sum(isinstance(event, AudioProduced) for event in core.step(now))
            now += 0.001
        costs_us.append((time.thread_time() - begun_s) / chunks * 1e6)
    return {"min_us": round(min(costs_us), 1), "median_us": round(statistics.median(costs_us), 1)}


async def without_yield(seconds: float) -> Figures:
    """`saturated` on a thread that leaves it to the interpreter to switch, every 5 ms."""
    kept = rtts.engine.local._YIELD_AFTER_S
    rtts.engine.local._YIELD_AFTER_S = 1e9
    try:
        return await saturated(MAKE["local"], seconds)
    finally:
        rtts.engine.local._YIELD_AFTER_S = kept


async def first_ready(make: Callable[[], HostedEngine]) -> Figures:
    """From `start` to ready."""
    begun_s = time.perf_counter()
    async with Client(make()):
        return {"ready_ms": round((time.perf_counter() - begun_s) * 1e3, 1)}


def in_turns(turns: int, what: dict[str, Callable[[], Awaitable[Figures]]]) -> dict[str, Figures]:
    """Everything once a turn, so that what others do to the machine hits all alike."""
    figures: dict[str, list[Figures]] = {name: [] for name in what}
    for _ in range(turns):
        for name, measure in what.items():
            figures[name].append(uvloop.run(_await(measure)))
    return {name: median(each) for name, each in figures.items()}


async def _await(measure: Callable[[], Awaitable[Figures]]) -> Figures:
    return await measure()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300, help="round trips a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each of the others")
    parser.add_argument("--output", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    rounds, seconds = arguments.rounds, arguments.seconds
    steppers = {"local": lambda: LocalEngine(Stepper), "remote": lambda: RemoteEngine(Stepper)}
    trips = {
        f"{name}_{kind}": lambda make=make, n=n: round_trips(make, rounds, n)
        for kind, n in (("idle", 0), (f"beside_{NEIGHBOURS}", NEIGHBOURS))
        for name, make in MAKE.items()
    }
    full: dict[str, Any] = {
        name: lambda make=make: saturated(make, seconds) for name, make in MAKE.items()
    }
    beside = {
        f"{name}_{streams}_streams": lambda m=make, n=streams: beside_streams(m, n, seconds)
        for streams in (1, 100, 300)
        for name, make in steppers.items()
    }
    starts = {name: lambda make=make: first_ready(make) for name, make in MAKE.items()}
    results = {
        "socket_floor": floor(rounds),
        "tone_core_chunk": core_alone(arguments.turns),
        "submit_to_first_audio": in_turns(arguments.turns, trips),
        "saturated": in_turns(
            arguments.turns, {**full, "local_without_yield": lambda: without_yield(seconds)}
        ),
        "model_steps_beside_streams": in_turns(arguments.turns, beside),
        "start_to_ready": in_turns(arguments.turns, starts),
        "sigkill": in_turns(1, {"remote": lambda: deaths(2 * arguments.turns)}),
    }
    hosts = ("interface", "drive", "hosting", "local", "remote", "child", "wire")
    measured = [
        *(f"rtts/engine/{name}.py" for name in hosts),
        "rtts/engine/tone",
        "benchmarks/engine_host.py",
        "benchmarks/engine_host_cores.py",
    ]
    packages = ["numpy", "msgspec", "uvloop"]
    write(record("engine_host", results, measured=measured, packages=packages), arguments.output)


if __name__ == "__main__":
    import logging

    logging.disable(logging.ERROR)  # ten deaths are part of the plan
    main()
