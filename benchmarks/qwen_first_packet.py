"""Command to first PCM through the engine core, and how much speech it makes with every slot busy.

Random weights of the released shapes, drawn on the device; the tokenizer is byte-level, so a text has
as many ids as bytes. Times are host clocks around `apply` and `step` (which ends synchronised).
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import logging
import pstats
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import record
from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    FinishText,
    LoadVoice,
    StartUtterance,
    UtteranceFinished,
    VoiceLoaded,
)
from rtts.engine.qwen.checkpoint import RandomWeights, write_settings
from rtts.engine.qwen.engine import QwenEngine
from rtts.engine.qwen.frame import Model
from rtts.engine.qwen.options import EndingOptions, LayoutPolicy, QwenOptions, TextOptions
from rtts.engine.qwen.prompt import PromptBuilder
from rtts.engine.qwen.runner import Runner
from rtts.engine.qwen.tokenizer import load_tokenizer

MEASURED = ("rtts/engine/qwen", "benchmarks/qwen_first_packet.py")
SHORT, LONG = "Hello there, hi.", "The quick brown fox jumps over the lazy dog near the river. "
VOICE = "vivian"
ENDLESS = EndingOptions(budget_base_frames=4000, silence_frames=10**6, repeat_frames=10**6)


def figures(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_ms": round(statistics.median(ordered), 3),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 3),
        "max_ms": round(ordered[-1], 3),
        "count": len(ordered),
    }


class Bench:
    def __init__(self, size: str, slots: int, positions: int) -> None:
        folder = Path(tempfile.mkdtemp()) / size
        write_settings(folder, size, "custom_voice")
        begun = time.perf_counter()
        self.model = Model(
            folder,
            torch.bfloat16,
            "cuda",
            read=lambda _, dtype, device: RandomWeights(dtype, device),
        )
        torch.cuda.synchronize()
        self.weights_s = time.perf_counter() - begun
        self.builder = PromptBuilder(self.model.config, load_tokenizer(folder))
        self.options = QwenOptions(
            model=str(folder), device="cuda", slots=slots, waiting=2 * slots, wait_limit_s=60.0,
            positions=positions, endings=ENDLESS,
        )  # fmt: skip
        begun = time.perf_counter()
        self.runner = Runner(
            self.model, self.builder, self.model.config.sampling, slots, positions, {}
        )
        torch.cuda.synchronize()
        self.ready_s = time.perf_counter() - begun
        self.next = 0

    def engine(self, layout: LayoutPolicy) -> QwenEngine:
        # Endless takes leave no room for complete text in a slot: those get the usual budget.
        endings = ENDLESS if layout is LayoutPolicy.STREAMING else EndingOptions()
        options = replace(self.options, text=TextOptions(layout=layout), endings=endings)
        engine = QwenEngine(options, self.runner, self.builder, self.model.config, {})
        engine.apply(LoadVoice(VOICE))
        events: list[Any] = []
        while not any(isinstance(event, VoiceLoaded) for event in events):
            events += engine.step(time.perf_counter())
        return engine

    def first_packets(self, layout: LayoutPolicy, text: str, trials: int) -> dict[str, Any]:
        engine, times, parts = self.engine(layout), [], []
        for _ in range(trials + 10):
            time.sleep(0.01)
            self.next += 1
            begun = time.perf_counter()
            engine.apply(StartUtterance(self.next, VOICE, seed=self.next))
            engine.apply(AppendText(self.next, 0, text))
            engine.apply(FinishText(self.next))
            started = 0.0
            while True:
                events = engine.step(time.perf_counter())
                started = started or time.perf_counter()
                if any(isinstance(event, AudioProduced) and event.pcm for event in events):
                    break
                if any(isinstance(event, UtteranceFinished) for event in events):
                    break
            times.append((time.perf_counter() - begun) * 1e3)
            parts.append((started - begun) * 1e3)
            engine.apply(CancelUtterance(self.next))
            while engine.has_work():
                engine.step(time.perf_counter())
        return {"first_pcm": figures(times[10:]), "until_step_launched": figures(parts[10:])}

    def busy(self, streams: int, seconds: float) -> dict[str, Any]:
        """Every slot speaks as fast as it can."""
        engine = self.engine(LayoutPolicy.STREAMING)
        for _ in range(streams):
            self.next += 1
            engine.apply(StartUtterance(self.next, VOICE, seed=self.next, until_s=1e6))
            engine.apply(AppendText(self.next, 0, LONG * 3))
            engine.apply(FinishText(self.next))
        first = self.next - streams + 1
        while engine._scheduler.waiting or engine._scheduler.speaking < streams:
            engine.step(time.perf_counter())
        for _ in range(10):
            engine.step(time.perf_counter())
        frames, pairs, begun = 0, [], time.perf_counter()
        at = begun
        while at - begun < seconds:
            events = [*engine.step(at), *engine.step(time.perf_counter())]
            frames += sum(isinstance(event, AudioProduced) and bool(event.pcm) for event in events)
            now = time.perf_counter()
            pairs.append((now - at) * 1e3)
            at = now
        for id_ in range(first, self.next + 1):
            engine.apply(CancelUtterance(id_))
        while engine.has_work():
            engine.step(time.perf_counter())
        return {
            "audio_s_per_s": round(frames * 0.08 / (at - begun), 1),
            "frame_through_engine": figures(pairs),
            "share_of_frame_period": round(statistics.median(pairs) / 80.0, 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1.7b")
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--positions", type=int, default=512)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--busy", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--profile", action="store_true", help="of admissions")
    parser.add_argument("--commit", default="", help="where the tree is no repository")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    if arguments.commit:
        record.commit = lambda _: arguments.commit
    bench = Bench(arguments.size, arguments.slots, arguments.positions)
    print(f"weights {bench.weights_s:.1f} s, runner ready {bench.ready_s:.1f} s", flush=True)
    gc.collect()
    gc.freeze()
    results: dict[str, Any] = {
        "weights": "random", "size": arguments.size, "slots": arguments.slots,
        "ready_s": round(bench.ready_s, 2), "gpu": torch.cuda.get_device_name(),
    }  # fmt: skip
    for layout, name in ((LayoutPolicy.STREAMING, "streaming"), (LayoutPolicy.AUTO, "complete")):
        for text in (SHORT, LONG):
            key = f"{name}_{len(text)}_ids"
            results[key] = bench.first_packets(layout, text, arguments.trials)
            print(key, results[key], flush=True)
    if arguments.profile:
        profiler = cProfile.Profile()
        profiler.enable()
        bench.first_packets(LayoutPolicy.STREAMING, SHORT, 50)
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(22)
    for streams in arguments.busy:
        results[f"busy_{streams}"] = bench.busy(streams, 4.0)
        print("busy", streams, results[f"busy_{streams}"], flush=True)
    results["memory_gib"] = {
        "allocated": round(torch.cuda.memory_allocated() / 2**30, 2),
        "reserved": round(torch.cuda.memory_reserved() / 2**30, 2),
    }
    print(results["memory_gib"])
    result = record.record(
        "qwen_first_packet", results, measured=MEASURED, packages=["torch", "triton", "numpy"]
    )
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
