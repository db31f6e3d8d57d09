"""What clients of the Qwen engine get, through a real server: first packets, gaps, live streams.

    python benchmarks/qwen_service.py            1.7B with random weights on a GPU, about five minutes
    python benchmarks/qwen_service.py --smoke    all of it on a tiny checkpoint and a CPU, one minute

Writes a checkpoint of random weights, starts `rtts serve --engine qwen` on it, and loads it with
`benchmarks/load.py` from another process of the same machine; then starts it again, with the kernels
that the first start compiled. Clients get Opus over WebSocket. Random weights do not end by themselves: replies are
ended at the length the text should take, one or two sentences, about 5 s. Their tokenizer has an id
for each byte, four times as many as a trained one. With each load of live streams a few seeded
replies are asked for that were spoken alone before, and their PCM compared. The last line is the
result as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import multiprocessing
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import record  # noqa: E402
from benchmarks.load import is_clean, measure, run_on_loop  # noqa: E402
from benchmarks.loadgen.run import Plan  # noqa: E402
from benchmarks.loadgen.texts import SENTENCES  # noqa: E402
from benchmarks.loadgen.wire import open_connection  # noqa: E402
from rtts.protocol.audio_message import HEADER  # noqa: E402
from rtts.protocol.events import Format, Start, Text  # noqa: E402

MEASURED = ("rtts", "benchmarks/qwen_service.py", "benchmarks/load.py", "benchmarks/loadgen")
PACKAGES = ("msgspec", "numpy", "torch", "uvicorn", "uvloop", "websockets")
START_LIMIT_S = 240.0
SEEDS = 4  # replies that are compared
# What a player has before it starts: half a message. Every player of speech buffers more.
PLAYER_BUFFER_S = 0.04
WARMUP_S = 2.0
# Replies end where the text should: random weights would go on to twice that, or stop in a loop.
ENDINGS = {
    "budget_base_frames": 1,
    "budget_factor": 1.0,
    "silence_frames": 1_000_000,
    "repeat_frames": 1_000_000,
}


@dataclass(frozen=True)
class Section:
    """One load and what it is for."""

    name: str
    plan: Plan


@dataclass(frozen=True)
class Setup:
    """What is measured: sizes, settings, loads.

    Attributes:
        rates: Replies a second, for first packets.
        steady: Replies a second, for gaps, with how long each is kept up in seconds.
        live: Listeners at once.
    """

    size: str = "1.7b"
    device: str = "cuda"
    slots: int = 256
    positions: int = 512
    rates: tuple[float, ...] = (1, 10, 20, 40)
    rate_s: float = 15.0
    steady: tuple[tuple[float, float], ...] = ((24, 60.0), (48, 60.0))
    live: tuple[int, ...] = (256, 512)
    live_s: float = 30.0
    sentences: tuple[int, int] = (1, 2)
    starts_again: bool = True

    @property
    def sections(self) -> list[Section]:
        """The loads, in order."""
        base = Plan(
            url="",
            sentences=self.sentences,
            player_buffer_s=PLAYER_BUFFER_S,
            warmup_s=WARMUP_S,
            timeout_s=20.0,
        )
        found = [
            Section(
                f"rate_{rate:g}",
                replace(
                    base,
                    mode="open",
                    rate=rate,
                    # Enough replies for a p95 where they are rare.
                    duration_s=WARMUP_S + (self.rate_s if rate > 1 else 2 * self.rate_s),
                ),
            )
            for rate in self.rates
        ]
        found += [
            Section(
                f"live_{streams}",
                replace(base, mode="live", streams=streams, duration_s=self.live_s, warmup_s=0.0),
            )
            for streams in self.live
        ]
        found += [
            Section(f"steady_{rate:g}", replace(base, mode="open", rate=rate, duration_s=seconds))
            for rate, seconds in self.steady
        ]
        return found


SMOKE = Setup(
    size="tiny", device="cpu", slots=8, positions=512, rates=(1, 3), rate_s=4.0,
    steady=((3, 5.0),), live=(4,), live_s=8.0,
)  # fmt: skip


class RunningServer:
    """`rtts serve --engine qwen` in a process of its own, and its engine's in another."""

    def __init__(self, setup: Setup, model: Path, more: list[str], log: Path | None) -> None:
        settings = {
            "qwen.slots": setup.slots,
            "qwen.waiting": 2 * setup.slots,
            "qwen.positions": setup.positions,
            "server.max_sessions": 4096,
            "session.packets_per_message": 16,  # what comes at once goes in one message
            **{f"qwen.endings.{name}": value for name, value in ENDINGS.items()},
        }
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        self.command = [
            *("rtts", "serve", "--engine", "qwen", "--model", str(model)),
            *("--device", setup.device, "--port", "0", *sets),
            *("--log-level", "info" if log else "warning", *more),
        ]
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self.command],
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("a")) if log else None,
                text=True,
                cwd=ROOT,
            )
        self._base = ""
        self._wait_until_ready()
        self.ready_s = time.monotonic() - begun
        server = psutil.Process(self._process.pid)
        self._parts = {"server": server, "engine": server.children()[0]}

    def _wait_until_ready(self) -> None:
        patience = threading.Timer(START_LIMIT_S, self._process.kill)
        patience.start()
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                if line.startswith("listening on"):
                    self.url = line.split()[2]
                    self._base = self.url.replace("ws://", "http://").removesuffix("/v1/tts")
                if line.startswith("ready"):
                    return
        finally:
            patience.cancel()
        raise RuntimeError(f"the server ended with status {self._process.wait()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, path: str) -> bytes:
        with urllib.request.urlopen(self._base + path, timeout=10) as answer:
            return bytes(answer.read())

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of the server and of its engine so far."""
        return {name: sum(process.cpu_times()[:2]) for name, process in self._parts.items()}

    def stages(self) -> dict[str, tuple[float, float]]:
        """Seconds and count of each part of first-packet latency, and of encoding, so far."""
        found: dict[str, list[float]] = {}
        for line in self.ask("/metrics").decode().splitlines():
            for end, place in (("_sum", 0), ("_count", 1)):
                name, _, value = line.rpartition(" ")
                if name.startswith("rtts_stage_seconds" + end):
                    key = name.partition('stage="')[2].partition('"')[0]
                elif name == "rtts_encode_seconds" + end:
                    key = "each_piece"
                else:
                    continue
                found.setdefault(key, [0.0, 0.0])[place] = float(value)
        return {name: (total, count) for name, (total, count) in found.items()}

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=30)


def load(plan: Plan) -> dict[str, Any]:
    """Run a plan; in a process of its own."""
    return dict(run_on_loop(measure(plan)))


class _Ear:
    """Listens to one reply in PCM."""

    def __init__(self) -> None:
        self.digest, self.n_bytes = hashlib.sha256(), 0
        self.is_done = asyncio.Event()

    def on_text(self, data: bytes, at: float) -> None:
        del at
        if json.loads(data)["type"] in ("done", "error"):
            self.is_done.set()

    def on_binary(self, data: bytes, at: float) -> None:
        del at
        self.digest.update(data[HEADER.size :])
        self.n_bytes += len(data) - HEADER.size

    def on_closed(self, code: int) -> None:
        del code
        self.is_done.set()


async def repeat(url: str) -> list[tuple[str, int]]:
    """Speak seeded texts one after the other: a digest of each one's PCM, and its bytes."""
    heard = []
    for seed in range(1, SEEDS + 1):
        ear = _Ear()
        connection = await open_connection(url, ear, protocol="rtts.v1")
        format_ = Format(codec="pcm_s16le", sample_rate=24_000)
        connection.send_text(msgspec.json.encode(Start(ctx="a", seed=seed, format=format_)))
        text = Text(ctx="a", text=SENTENCES[seed], end=True)
        connection.send_text(msgspec.json.encode(text))
        await asyncio.wait_for(ear.is_done.wait(), 30.0)
        connection.close()
        heard.append((ear.digest.hexdigest(), ear.n_bytes))
    return heard


def run(
    section: Section,
    server: RunningServer,
    generator: ProcessPoolExecutor,
    alone: list[tuple[str, int]],
) -> dict[str, Any]:
    """Put one load on the server; `alone` is what seeded texts sounded like without any."""
    plan = replace(section.plan, url=server.url, server_pid=server.pid)
    stages, cpu_s, begun = server.stages(), server.cpu_s(), time.monotonic()
    loading = generator.submit(load, plan)
    equal: dict[str, int] = {}
    if plan.mode == "live":
        time.sleep(plan.duration_s / 3)  # until everybody has begun
        pairs = list(zip(alone, asyncio.run(repeat(server.url)), strict=True))
        same = sum(one == other and one[1] > 0 for one, other in pairs)
        equal = {"seeded_replies": len(pairs), "same_bytes_as_alone": same}
    results = loading.result(timeout=plan.duration_s + 60.0)
    wall_s = time.monotonic() - begun
    after, cpu_after_s = server.stages(), server.cpu_s()
    mean_ms = {}
    for name, (total, count) in after.items():
        before = stages.get(name, (0.0, 0.0))
        if count > before[1]:
            mean_ms[name] = round(1000 * (total - before[0]) / (count - before[1]), 3)
    return {
        "is_clean": is_clean(results),
        **equal,
        "first_packet_stages_mean_ms": mean_ms,
        "cpu_percent": {
            name: round(100 * (cpu_after_s[name] - cpu_s[name]) / wall_s, 1) for name in cpu_s
        },
        "server_stats": {
            name: value
            for name, value in json.loads(server.ask("/v1/stats")).items()
            if name in ("loop_lag_ms", "engine", "errors", "degraded")
        },
        **results,
    }


def show(name: str, results: dict[str, Any]) -> None:
    """A few lines for people."""
    first, own = results["first_packet_ms"] or {}, results["server_ttfa_ms"] or {}
    print(
        f"{name}: first packet p50 {first.get('p50')} p95 {first.get('p95')} p99 {first.get('p99')} "
        f"max {first.get('max')} ms (n {first.get('n')}), server's own p95 {own.get('p95')}"
    )
    print(
        f"  underruns {results['underruns']} ({results['stalled_s']} s, worst "
        f"{(results['stall_ms'] or {}).get('max')} ms) in {results['audio_s']} s of audio, "
        f"{results['mean_live_streams']} streams; endings {results['endings']}, "
        f"faults {results['faults']}"
    )
    print(f"  stages {results['first_packet_stages_mean_ms']}")
    generator = results["generator"]
    print(
        f"  same bytes {results.get('same_bytes_as_alone')} of {results.get('seeded_replies')}; "
        f"cpu {results['cpu_percent']}, generator {generator['cpu_percent']} %, its lag "
        f"p99 {(generator['loop_lag_ms'] or {}).get('p99')} ms; {results['server_stats']}",
        flush=True,
    )


def write_checkpoint(setup: Setup, folder: Path) -> float:
    """Random weights of the released shapes as files; seconds it took."""
    begun = time.monotonic()
    command = ["rtts", "checkpoint", "--size", setup.size, "--type", "custom_voice"]
    subprocess.run(
        [sys.executable, "-m", *command, "--seed", "1", str(folder)], check=True, cwd=ROOT
    )
    return time.monotonic() - begun


class Report:
    """The results so far, on disk after every section: a run that is cut short keeps them."""

    def __init__(self, output: Path | None) -> None:
        self.results: dict[str, Any] = {}
        self._output = output

    def add(self, name: str, value: Any) -> None:
        self.results[name] = value
        if self._output is not None:
            self._output.write_text(json.dumps(self.results, indent=2) + "\n")


def start(
    name: str, setup: Setup, model: Path, options: argparse.Namespace, report: Report
) -> RunningServer:
    """Start a server and note how long that took."""
    server = RunningServer(setup, model, options.more, options.log)
    report.add(f"{name}_start_to_ready_s", round(server.ready_s, 2))
    print(f"{name} start to ready {server.ready_s:.2f} s", flush=True)
    return server


def go(setup: Setup, model: Path, options: argparse.Namespace, report: Report) -> None:
    """Start, load section by section, stop."""
    server = start("first", setup, model, options, report)
    report.add("serve", " ".join(server.command))
    context = multiprocessing.get_context("spawn")
    try:
        alone = asyncio.run(repeat(server.url))
        with ProcessPoolExecutor(1, mp_context=context) as generator:
            for section in setup.sections:
                if options.only and section.name not in options.only:
                    continue
                try:
                    report.add(section.name, run(section, server, generator, alone))
                    show(section.name, report.results[section.name])
                except Exception:  # noqa: BLE001 - one section must not cost the others
                    traceback.print_exc()
                    report.add(section.name, {"failed": traceback.format_exc()})
        report.add("health", json.loads(server.ask("/v1/stats")))
    finally:
        report.add("exit_status", server.stop())
    if setup.starts_again:
        start("next", setup, model, options, report).stop()


def setup_of(options: argparse.Namespace) -> Setup:
    """What the command line asks for."""
    setup = SMOKE if options.smoke else Setup()
    given = {
        name: getattr(options, name)
        for name in ("size", "device", "slots", "positions", "rate_s", "live_s")
        if getattr(options, name) is not None
    }
    setup = replace(setup, **given)
    if options.steady_s is not None:
        pairs = zip(setup.steady, options.steady_s, strict=False)
        setup = replace(setup, steady=tuple((rate, seconds) for (rate, _), seconds in pairs))
    return replace(setup, starts_again=setup.starts_again and not options.once)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("more", nargs="*", help="further arguments of `rtts serve`, behind --")
    add("--smoke", action="store_true", help="a tiny checkpoint on a CPU, short")
    add("--size", choices=("0.6b", "1.7b", "tiny"))
    add("--device")
    add("--model", type=Path, help="a checkpoint, instead of writing one")
    add("--slots", type=int)
    add("--positions", type=int)
    add("--rate-s", type=float, help="seconds at each rate of first packets")
    add("--steady-s", type=float, nargs="*", help="seconds at each rate of gaps, in their order")
    add("--live-s", type=float, help="seconds of live streams")
    add("--once", action="store_true", help="do not start again with the kernels' cache filled")
    add("--only", nargs="*", default=[], metavar="SECTION", help="as rate_10, steady_24, live_256")
    add("--log", type=Path, help="file for what the servers log, in detail")
    add("--commit", default="", help="where the tree is no repository")
    add("--output", type=Path)
    return parser.parse_args()


def main() -> int:
    """Command line entry."""
    options = arguments()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    if options.commit:
        record.commit = lambda measured: str(options.commit)
    setup, report = setup_of(options), Report(options.output)
    report.add("weights", "random")
    report.add("setup", {"size": setup.size, "slots": setup.slots, "positions": setup.positions})
    folder = Path(tempfile.mkdtemp(prefix="rtts-qwen-"))
    try:
        model = options.model
        if model is None:
            model = folder / setup.size
            report.add("checkpoint_written_s", round(write_checkpoint(setup, model), 1))
        go(setup, model, options, report)
    finally:
        shutil.rmtree(folder)
    result = record.record("qwen_service", report.results, measured=MEASURED, packages=PACKAGES)
    record.write(result, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
