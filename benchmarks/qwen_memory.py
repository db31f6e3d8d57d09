"""What a checkpoint takes of a GPU and of the host: under hard caps with every slot busy, and at load.

Each case is a process of its own. A cap is real: another process first takes all of the device but the
cap, so that CUDA's context, compiled kernels and graphs count; what the engine is told of the device is
the cap. `fit` is as many slots as `rtts.engine.qwen.memory` says fit. Weights are random; the load is of
a checkpoint's files (`rtts checkpoint`), once with the page cache emptied of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import record

MEASURED = ("rtts/engine/qwen", "benchmarks/qwen_memory.py")
GIB = 2**30
MARGIN = 4 * 2**20
TEXT = "The quick brown fox jumps over the lazy dog near the river. " * 3
CASES = (  # size, slots (0: as many as fit), positions, cap in 10^9 bytes (0: none)
    ("0.6b", 0, 2048, 8),
    ("1.7b", 32, 2048, 24),
    ("1.7b", 0, 2048, 24),
    ("1.7b", 0, 2048, 8),
    ("1.7b", 1, 512, 0),
    ("0.6b", 1, 512, 0),
    ("1.7b", 0, 2048, 16),
    ("1.7b", 0, 1024, 40),
)


def used_bytes() -> int:
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def hold(cap_bytes: int) -> None:
    """Take all of the device but the cap, say so, and wait for the end of standard input."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    ballast = torch.empty(max(0, free - cap_bytes - MARGIN), dtype=torch.uint8, device="cuda")
    print(f"HELD {ballast.numel()} left {torch.cuda.mem_get_info()[0]}", flush=True)
    sys.stdin.read()


def run_case(arguments: argparse.Namespace) -> dict[str, Any]:
    """Load, capture, speak with every slot; how much is taken at each stage."""
    import torch

    from rtts.engine.qwen.checkpoint import RandomWeights, write_settings
    from rtts.engine.qwen.engine import QwenEngine
    from rtts.engine.qwen.frame import Model
    from rtts.engine.qwen.memory import CONTEXT_BYTES, plan_memory, usable_bytes
    from rtts.engine.qwen.options import EndingOptions, QwenOptions
    from rtts.engine.qwen.prompt import PromptBuilder
    from rtts.engine.qwen.references import VoiceShelf
    from rtts.engine.qwen.runner import Runner
    from rtts.engine.qwen.sizing import MEMORY_LIMIT
    from rtts.engine.qwen.tokenizer import load_tokenizer

    on_gpu = arguments.device != "cpu"
    cap = arguments.cap_bytes
    if on_gpu and cap:
        real = torch.cuda.mem_get_info
        torch.cuda.mem_get_info = lambda device=None: (min(real(device)[0], cap), cap)
    measured: dict[str, Any] = {}

    def note(stage: str) -> None:
        if on_gpu:
            torch.cuda.synchronize()
            measured[stage] = {
                "device": used_bytes(),
                "allocated": torch.cuda.memory_allocated(),
                "reserved": torch.cuda.memory_reserved(),
            }

    if on_gpu:
        torch.zeros(1, device="cuda")
    note("context")
    folder = Path(tempfile.mkdtemp()) / arguments.size
    write_settings(folder, arguments.size, "custom_voice")
    from rtts.engine.qwen.config import load_config

    prefix_bytes = QwenOptions().prefix_bytes
    value_bytes = getattr(torch, arguments.dtype).itemsize
    plan = plan_memory(load_config(folder), value_bytes=value_bytes, prefix_bytes=prefix_bytes)
    slots, positions = arguments.slots, arguments.positions
    if not slots:
        room = usable_bytes(cap - CONTEXT_BYTES, cap, MEMORY_LIMIT)
        slots = plan.slots_for(room, positions)
    planned = plan.total_bytes(slots, positions)
    print("planned", slots, planned, flush=True)
    model = Model(
        folder, getattr(torch, arguments.dtype), arguments.device,
        read=lambda _, dtype, device: RandomWeights(dtype, device),
    )  # fmt: skip
    note("weights")
    builder = PromptBuilder(model.config, load_tokenizer(folder))
    begun = time.perf_counter()
    runner = Runner(model, builder, model.config.sampling, slots, positions, {})
    note("prepared")
    prepare_s = time.perf_counter() - begun
    endless = EndingOptions(budget_base_frames=4000, silence_frames=10**6, repeat_frames=10**6)
    options = QwenOptions(
        model=str(folder), device=arguments.device, slots=slots, waiting=0, wait_limit_s=60.0,
        positions=positions, endings=endless,
    )  # fmt: skip
    shelf = VoiceShelf(None, model.config, model.dtype, model.device)
    engine = QwenEngine(options, runner, builder, model.config, shelf)
    said = speak(engine, slots, arguments.seconds)
    note("spoken")
    row = {
        "size": arguments.size, "slots": slots, "positions": positions, "cap_bytes": cap,
        "plan": asdict(plan), "planned_bytes": planned, "context_planned_bytes": CONTEXT_BYTES,
        "slot_bytes": plan.slot_bytes(positions), "prepare_s": round(prepare_s, 2),
        "measured": measured, **said,
    }  # fmt: skip
    if on_gpu:
        row["peak_allocated"] = torch.cuda.max_memory_allocated()
        row["share_in_use"] = round(measured["spoken"]["device"] / (cap or 1), 4) if cap else None
    return row


def speak(engine: Any, streams: int, seconds: float) -> dict[str, Any]:
    """Every slot speaks as fast as it can; none may be refused."""
    from rtts.engine.interface import (
        AppendText,
        AudioProduced,
        FinishText,
        StartUtterance,
        UtteranceFailed,
    )

    for id_ in range(1, streams + 1):
        engine.apply(StartUtterance(id_, "vivian", seed=id_, until_s=1e6))
        engine.apply(AppendText(id_, 0, TEXT))
        engine.apply(FinishText(id_))
    heard: dict[int, int] = {}
    failed: list[str] = []
    pairs: list[float] = []
    begun = at = time.perf_counter()
    while at - begun < seconds or (len(heard) < streams and at - begun < 10 * seconds):
        for event in (*engine.step(at), *engine.step(time.perf_counter())):
            if isinstance(event, AudioProduced) and event.pcm:
                heard[event.utterance_id] = (
                    heard.get(event.utterance_id, 0) + len(event.pcm) // 3840
                )
            if isinstance(event, UtteranceFailed):
                failed.append(event.message)
        now = time.perf_counter()
        pairs.append((now - at) * 1e3)
        at = now
    return {
        "speaking": len(heard),
        "failed": failed[:3],
        "frames": sum(heard.values()),
        "frame_ms": round(statistics.median(pairs[len(pairs) // 2 :]), 3),
    }


def run_load(arguments: argparse.Namespace) -> dict[str, Any]:
    """A checkpoint's files onto the device: seconds, and what the host needs at most."""
    import torch

    from rtts.engine.qwen.frame import Model

    folder = Path(arguments.checkpoint)
    files = [folder / "model.safetensors", folder / "speech_tokenizer" / "model.safetensors"]
    if arguments.cold:
        for path in files:
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if arguments.device != "cpu":
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    peak = {"RssAnon": 0, "RssFile": 0, "VmRSS": 0}
    before = status()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for key, value in status().items():
                peak[key] = max(peak[key], value)
            stop.wait(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.perf_counter()
    dtype = torch.float32 if arguments.device == "cpu" else torch.bfloat16
    model = Model(folder, dtype, arguments.device)
    if arguments.device != "cpu":
        torch.cuda.synchronize()
    load_s = time.perf_counter() - begun
    stop.set()
    watcher.join()
    return {
        "cold": arguments.cold,
        "load_s": round(load_s, 3),
        "file_bytes": sum(path.stat().st_size for path in files),
        "parameters": sum(each.numel() for each in model.parameters()),
        "host_before": before,
        "host_peak": peak,
        "max_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def status() -> dict[str, int]:
    """Resident bytes of this process: in all, its own, and pages of files."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in ("RssAnon", "RssFile", "VmRSS"):
            found[key] = int(value.split()[0]) * 1024
    return found


def in_process(command: list[str], limit_s: float, cap_bytes: int) -> dict[str, Any]:
    """Run one case in a process of its own, beside one that holds the rest of the device."""
    holder = None
    if cap_bytes:
        holder = subprocess.Popen(
            [sys.executable, __file__, "--hold", str(cap_bytes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert holder.stdout is not None
        print(holder.stdout.readline().strip(), flush=True)
    try:
        done = subprocess.run(
            [sys.executable, __file__, *command], capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {limit_s:.0f} s"}
    finally:
        if holder is not None:
            holder.communicate("")
    found = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(found[-1]) if found else {"error": (done.stderr or done.stdout)[-1500:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", help="folder whose load is measured")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="of speech with every slot busy")
    parser.add_argument("--cases", type=int, nargs="*", default=list(range(len(CASES))))
    parser.add_argument("--limit-s", type=float, default=90.0, help="for each case")
    parser.add_argument("--until-s", type=float, default=1e9, help="no new case after that long")
    parser.add_argument("--commit", default="", help="where the tree is no repository")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--hold", type=int, help="only hold the device but for so many bytes")
    parser.add_argument("--run", choices=("case", "load"), help="only this, in this process")
    parser.add_argument("--size", default="1.7b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--cap-bytes", type=int, default=0)
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    if arguments.hold is not None:
        hold(arguments.hold)
        return
    if arguments.run:
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
        row = run_case(arguments) if arguments.run == "case" else run_load(arguments)
        print("RESULT " + json.dumps(row), flush=True)
        return
    if arguments.commit:
        record.commit = lambda _: arguments.commit
    begun = time.perf_counter()
    results: dict[str, Any] = {"gpu": record.gpu(), "weights": "random", "loads": [], "cases": []}
    common = ["--device", arguments.device]
    jobs: list[tuple[str, list[str], int]] = []
    if arguments.checkpoint:
        for cold in (["--cold"], []):
            command = ["--run", "load", "--checkpoint", arguments.checkpoint, *cold, *common]
            jobs.append(("loads", command, 0))
    for number in arguments.cases:
        size, slots, positions, cap = CASES[number]
        command = ["--run", "case", "--size", size, "--slots", str(slots)]
        command += ["--positions", str(positions), "--cap-bytes", str(cap * 10**9), *common]
        jobs.append(("cases", [*command, "--seconds", str(arguments.seconds)], cap * 10**9))
    for kind, command, cap_bytes in jobs:
        if time.perf_counter() - begun > arguments.until_s:
            results[kind].append({"error": "not run: out of time", "command": command})
            continue
        on_gpu = arguments.device != "cpu"
        row = in_process(command, arguments.limit_s, cap_bytes if on_gpu else 0)
        results[kind].append(row)
        print(kind, json.dumps(row), flush=True)
        if arguments.output:
            result = record.record("qwen_memory", results, measured=MEASURED, packages=["torch"])
            arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
