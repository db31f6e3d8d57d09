"""What the embedded voice costs: first chunk, whole sentence, where the time goes, streams a core.

    python benchmarks/cpu_voice.py [--runs 40] [--live 50x1,100x2] [--live-s 10] [--output benchmarks/results/...json]

Cores of the engine on threads of this process, no server. "cpu" figures are CPU time of the thread, which
neighbours on a shared machine change less than the clock's; "wall" is the clock's. hibari's own
synthesis of the same sentence runs in turn with ours: until it has the whole sentence there is
nothing to hear. The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from record import record, write  # noqa: E402

from rtts.engine.cpu import hibari_voice  # noqa: E402
from rtts.engine.cpu.engine import CpuEngine  # noqa: E402
from rtts.engine.cpu.factory import make_cpu_engine  # noqa: E402
from rtts.engine.cpu.hibari_net import HibariNet  # noqa: E402
from rtts.engine.cpu.options import CpuOptions  # noqa: E402
from rtts.engine.cpu.waveform import Waveform  # noqa: E402
from rtts.engine.interface import (  # noqa: E402
    AppendText,
    AudioProduced,
    Event,
    FinishText,
    GrantAudio,
    LoadVoice,
    StartUtterance,
    UtteranceFinished,
)

SENTENCES = {
    "S": "Hello there, how can I help you today?",
    "M": "The weather this afternoon will be mostly sunny with a light breeze from the west.",
    "N": "On Jan. 5th, 2024, Dr. Smith paid $3.50 at 3:45 PM for 5 km of tape.",
    "L": "When the first settlers arrived in the valley they found a wide river, rich soil and endless "
    "forests, and they decided to build their homes there because the winters were mild and the "
    "summers were long and full of light for everyone.",
}
OPTIONS = CpuOptions(kokoro=False, max_utterances=1000)
LEAD_S = 2.0  # credit beyond the playback clock in the live runs


def loaded(core: CpuEngine) -> CpuEngine:
    core.apply(LoadVoice("heart"))
    while core.has_work() and core.next_due_s(time.monotonic()) is None:
        core.step(time.monotonic())
    return core


def say(core: CpuEngine, utterance: int, text: str, until_s: float = 1e6) -> None:
    core.apply(StartUtterance(utterance, "heart", until_s=until_s, seed=0))
    core.apply(AppendText(utterance, 0, text))
    core.apply(FinishText(utterance))


def milliseconds(figures: list[float]) -> dict[str, float]:
    ordered = sorted(figures)
    return {
        "min_ms": round(ordered[0] * 1e3, 2),
        "p50_ms": round(statistics.median(ordered) * 1e3, 2),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))] * 1e3, 2),
    }


class Stages:
    """CPU time of the calls into each part, by wrapping them."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        hibari_voice.read = self._timed("g2p", hibari_voice.read)  # type: ignore[assignment]
        for owner, name, stage in (
            (HibariNet, "prosody", "prosody_net"),
            (HibariNet, "decode", "decoder_net"),
            (Waveform, "render", "waveform"),
            (Waveform, "__init__", "waveform"),
        ):
            setattr(owner, name, self._timed(stage, getattr(owner, name)))

    def _timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            begin = time.thread_time()
            try:
                return call(*arguments, **named)
            finally:
                self.spent[stage] = self.spent.get(stage, 0.0) + time.thread_time() - begin

        return timed

    def take(self) -> dict[str, float]:
        spent, self.spent = self.spent, {}
        return spent


def one_utterance(core: CpuEngine, text: str, utterance: int) -> tuple[dict[str, float], bytes]:
    """Cost to the first chunk and to the end, wall and CPU, and the PCM."""
    pcm, costs = b"", {}
    wall, cpu = time.perf_counter(), time.thread_time()
    say(core, utterance, text)
    while True:
        events = core.step(time.monotonic())
        audio = b"".join(e.pcm for e in events if isinstance(e, AudioProduced))
        pcm += audio
        if audio and "first_wall" not in costs:
            costs["first_wall"] = time.perf_counter() - wall
            costs["first_cpu"] = time.thread_time() - cpu
        if any(isinstance(e, UtteranceFinished) for e in events):
            costs["whole_wall"] = time.perf_counter() - wall
            costs["whole_cpu"] = time.thread_time() - cpu
            return costs, pcm


def audible_ms(pcm: bytes | np.ndarray) -> float:
    """Time until 5 ms of it are louder than -50 dBFS."""
    samples = np.frombuffer(pcm, "<i2") / 32768 if isinstance(pcm, bytes) else pcm
    blocks = samples[: len(samples) // 120 * 120].reshape(-1, 120)
    return float(np.flatnonzero(np.sqrt(np.mean(blocks**2, axis=1)) > 10 ** (-50 / 20))[0] * 5)


def by_sentence(core: CpuEngine, runs: int) -> dict[str, Any]:
    from hibari import Hibari

    stock = Hibari(threads=1)
    stages = Stages()
    results: dict[str, Any] = {}
    for name, text in SENTENCES.items():
        figures: dict[str, list[float]] = {}
        first_stages: list[dict[str, float]] = []
        pcm, its = b"", np.zeros(0)
        for run in range(runs + 3):
            stages.take()
            costs, pcm = one_utterance(core, text, run + 1)
            wall, cpu = time.perf_counter(), time.thread_time()
            its = stock(text, seed=0)
            costs["stock_wall"] = time.perf_counter() - wall
            costs["stock_cpu"] = time.thread_time() - cpu
            if run >= 3:
                for each, cost in costs.items():
                    figures.setdefault(each, []).append(cost)
        for _ in range(runs):  # the split, until the first chunk only
            stages.take()
            core.apply(StartUtterance(10_000, "heart", until_s=0.05, seed=0))
            core.apply(AppendText(10_000, 0, text))
            core.step(time.monotonic())
            first_stages.append(stages.take())
            core.apply(FinishText(10_000))
            core.apply(GrantAudio(10_000, 1e6))
            while core.has_work() and core.next_due_s(time.monotonic()) is None:
                core.step(time.monotonic())
        audio_s = len(pcm) / 48_000
        results[name] = {
            "words": len(text.split()),
            "audio_s": round(audio_s, 3),
            "first_chunk": {
                "wall": milliseconds(figures["first_wall"]),
                "cpu": milliseconds(figures["first_cpu"]),
                "cpu_by_stage_ms": {
                    stage: round(
                        statistics.median(each.get(stage, 0.0) for each in first_stages) * 1e3, 2
                    )
                    for stage in ("g2p", "prosody_net", "decoder_net", "waveform")
                },
            },
            "whole": {
                "wall": milliseconds(figures["whole_wall"]),
                "cpu": milliseconds(figures["whole_cpu"]),
                "real_time_factor_cpu": round(statistics.median(figures["whole_cpu"]) / audio_s, 5),
            },
            "audible_after_ms": audible_ms(pcm),
            "stock_hibari": {
                "first_audio_wall": milliseconds(figures["stock_wall"]),
                "first_audio_cpu": milliseconds(figures["stock_cpu"]),
                "audio_s": round(len(its) / 24_000, 3),
                "audible_after_ms": audible_ms(its),
            },
        }
    return results


def by_threads(runs: int) -> dict[str, Any]:
    """First chunks with 1 and 2 threads in one onnxruntime operation, in turn."""
    cores = {
        threads: loaded(make_cpu_engine(replace(OPTIONS, threads=threads), time.monotonic)())
        for threads in (1, 2)
    }
    figures: dict[int, dict[str, list[float]]] = {1: {}, 2: {}}
    for run in range(runs + 3):
        for threads, core in cores.items():
            for name in ("S", "M"):
                costs, _ = one_utterance(core, SENTENCES[name], run + 1)
                if run >= 3:
                    figures[threads].setdefault(name, []).append(costs["first_wall"])
    return {
        f"{threads}_threads": {name: milliseconds(each) for name, each in by_name.items()}
        for threads, by_name in figures.items()
    }


def live(streams: int, workers: int, seconds: float) -> dict[str, Any]:
    """So many streams in real time, on cores of the engine in as many threads."""
    factory = make_cpu_engine(OPTIONS, time.monotonic, threading.Lock())
    cores = [loaded(factory()) for _ in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(lambda core: live_on(core, streams // workers, seconds), cores))
    first_s = [each for part in parts for each in part["first_s"]]
    busy_s, audio_s = (sum(part[name] for part in parts) for name in ("busy_s", "audio_s"))
    return {
        "streams": streams,
        "workers": workers,
        "seconds": seconds,
        "utterances": sum(part["utterances"] for part in parts),
        "underruns": sum(part["underruns"] for part in parts),
        "underrun_s": round(sum(part["underrun_s"] for part in parts), 3),
        "first_chunk_wall": milliseconds(first_s),
        "busy_of_one_core": round(busy_s / seconds, 3),
        "audio_s_a_second": round(audio_s / seconds, 1),
        "audio_s_a_cpu_s": round(audio_s / busy_s),
    }


def live_on(core: CpuEngine, streams: int, seconds: float) -> dict[str, Any]:
    """So many streams in real time on one core: latencies of first chunks, and underruns.

    Every stream speaks a reply of three sentences, hears it out at playback speed, and starts the
    next at a random moment within a second. A stream underruns when its player has nothing left
    and the utterance has not ended.
    """
    rng = random.Random(4)
    texts = [SENTENCES["S"], SENTENCES["M"], SENTENCES["N"]]
    begin = time.monotonic()
    starts = [(begin + rng.uniform(0, 8.0), stream) for stream in range(streams)]
    heapq.heapify(starts)
    asked: dict[int, float] = {}
    plays_until: dict[int, float] = {}
    given: dict[int, float] = {}
    first_s: list[float] = []
    counts = {"utterances": 0, "underruns": 0}
    underrun_s = busy_s = audio_s = 0.0
    next_id, next_grant = 1, begin
    while (now := time.monotonic()) < begin + seconds:
        while starts and starts[0][0] <= now:
            heapq.heappop(starts)
            core.apply(StartUtterance(next_id, "heart", until_s=LEAD_S, seed=0))
            for segment, text in enumerate(texts):
                core.apply(AppendText(next_id, segment, text))
            core.apply(FinishText(next_id))
            asked[next_id], given[next_id] = now, 0.0
            next_id += 1
            counts["utterances"] += 1
        if now >= next_grant:
            next_grant = now + 0.1
            for utterance, until in plays_until.items():
                core.apply(GrantAudio(utterance, given[utterance] - (until - now) + LEAD_S))
        if not core.has_work() or core.next_due_s(now) is not None:
            time.sleep(0.0005)
            continue
        began = time.thread_time()
        events: list[Event] = list(core.step(now))
        busy_s += time.thread_time() - began
        now = time.monotonic()
        for event in events:
            if isinstance(event, AudioProduced) and event.pcm:
                utterance, length_s = event.utterance_id, len(event.pcm) / 48_000
                audio_s += length_s
                if utterance not in plays_until:
                    first_s.append(now - asked[utterance])
                    plays_until[utterance] = now
                elif plays_until[utterance] < now:
                    counts["underruns"] += 1
                    underrun_s += now - plays_until[utterance]
                    plays_until[utterance] = now
                plays_until[utterance] += length_s
                given[utterance] += length_s
            elif isinstance(event, UtteranceFinished):
                ends = plays_until.pop(event.utterance_id, now)
                heapq.heappush(starts, (ends + rng.uniform(0, 1.0), 0))
    return {
        **counts,
        "underrun_s": underrun_s,
        "first_s": first_s,
        "busy_s": busy_s,
        "audio_s": audio_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--live", default="50x1,100x2", help="streams x workers, ...")
    parser.add_argument("--live-s", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    begin = time.perf_counter()
    core = loaded(make_cpu_engine(OPTIONS, time.monotonic)())
    results: dict[str, Any] = {"load_s": round(time.perf_counter() - begin, 2)}
    if arguments.live:
        results["live"] = [
            live(*map(int, each.split("x")), arguments.live_s) for each in arguments.live.split(",")
        ]
    results["threads"] = by_threads(arguments.runs)
    results["sentences"] = by_sentence(core, arguments.runs)
    packages = ("hibari-tts", "onnxruntime", "numpy")
    write(
        record("cpu_voice", results, measured=("rtts/engine/cpu",), packages=packages),
        arguments.output,
    )


if __name__ == "__main__":
    main()
