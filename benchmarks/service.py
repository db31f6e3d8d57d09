"""The service's figures: first packet, live streams and loop lag, each against a server of its own.

    python benchmarks/service.py                    all scenarios, about five minutes
    python benchmarks/service.py cpu-one tone-live  some of them
    python benchmarks/service.py --seconds 10       shorter

Starts `rtts serve` for each scenario, loads it with `benchmarks/load.py` from this process, asks
the server for its own loop lag, and stops it. Everything is on this machine: generator and server
share its cores. The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.load import PACKAGES, is_clean, measure  # noqa: E402
from benchmarks.loadgen.run import Plan  # noqa: E402
from benchmarks.record import record, write  # noqa: E402

_PARTS = ("audio", "cli", "engine/cpu", "engine/tone", "protocol", "server", "session", "text")
MEASURED = (*(f"rtts/{part}" for part in _PARTS), "benchmarks/load.py", "benchmarks/loadgen")
# Single sentences of 5 to 15 words: what a first segment of a reply usually is.
FIRST_SEGMENTS = (
    "Sure, I can help with that.",
    "The train leaves at nine from platform two.",
    "Hello there, how can I help you today?",
    "I am not quite sure what you mean by that.",
    "There is a small cafe on the corner of the street that opens at seven.",
    "Let me check the weather in your city for tomorrow morning.",
    "You can return the shoes within thirty days if you keep the receipt.",
    "That is a very good question to begin with.",
)
READY_S = 60.0


@dataclass(frozen=True)
class Scenario:
    """One server and one load.

    Attributes:
        serve: Arguments of `rtts serve`.
        answers: What the figures are for.
    """

    answers: str
    serve: tuple[str, ...]
    plan: Plan


_ONE = Plan(
    url="",
    mode="closed",
    clients=1,
    texts=FIRST_SEGMENTS,
    onset_dbfs=-45.0,
    warmup_s=2.0,
    pause_s=0.1,
    duration_s=30.0,
)
_LIVE = Plan(url="", mode="live", duration_s=30.0, warmup_s=0.0, player_buffer_s=0.04)

SCENARIOS = {
    "tone-one": Scenario("rtts's own share of first-packet latency", ("--engine", "tone"), _ONE),
    "cpu-one": Scenario("first packet of the embedded voice", ("--engine", "cpu"), _ONE),
    "cpu-one-thread": Scenario(
        "the same with the engine on a thread of the server",
        ("--engine", "cpu", "--engine-host", "local"),
        _ONE,
    ),
    "tone-live": Scenario(
        "100 live Opus streams, rtts alone", ("--engine", "tone"), replace(_LIVE, streams=100)
    ),
    **{
        f"tone-live-{streams}": Scenario(
            f"{streams} live Opus streams, rtts alone: where a core's limit is",
            ("--engine", "tone", "--set", "tone.max_utterances=1000"),
            replace(_LIVE, streams=streams, duration_s=20.0),
        )
        for streams in (150, 200, 250)
    },
    "cpu-live": Scenario(
        "100 live streams of the embedded voice", ("--engine", "cpu"), replace(_LIVE, streams=100)
    ),
    "cpu-live-thread": Scenario(
        "the same with the engine on a thread of the server",
        ("--engine", "cpu", "--engine-host", "local"),
        replace(_LIVE, streams=100),
    ),
    "cpu-words": Scenario(
        "first packet of replies written word by word, four at a time",
        ("--engine", "cpu"),
        replace(_ONE, clients=4, words_per_s=20.0, texts=()),
    ),
}


class RunningServer:
    """`rtts serve` in a process of its own."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "rtts", "serve", "--port", "0", "--log-level", "warning"]
        self._process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        self.url = ""
        patience = threading.Timer(READY_S, self._process.kill)
        patience.start()
        for line in self._process.stdout:
            words = line.split()
            if line.startswith("listening on"):
                self.url = words[2]
            if words[:1] == ["ready"]:
                patience.cancel()
                return
        raise RuntimeError(f"the server ended with status {self._process.wait()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, path: str) -> Any:
        base = self.url.replace("ws://", "http://").removesuffix("/v1/tts")
        with urllib.request.urlopen(base + path, timeout=10) as answer:
            return json.load(answer)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=30)


def run(scenario: Scenario, seconds: float | None) -> dict[str, Any]:
    """Measure one scenario."""
    server = RunningServer(scenario.serve)
    try:
        plan = replace(scenario.plan, url=server.url, server_pid=server.pid)
        results = asyncio.run(measure(replace(plan, duration_s=seconds or plan.duration_s)))
        stats = server.ask("/v1/stats")
    finally:
        status = server.stop()
    return {
        "answers": scenario.answers,
        "serve": " ".join(("rtts serve", *scenario.serve)),
        "is_clean": is_clean(results),
        **results,
        "server_loop_lag_ms": stats.get("loop_lag_ms"),
        "server_exit_status": status,
    }


def show(name: str, results: dict[str, Any]) -> None:
    """A few lines for people."""
    first, own = results["first_packet_ms"], results["server_ttfa_ms"]
    print(f"{name}: {results['answers']}")
    print(
        f"  first packet at the client  p50 {first['p50']}  p95 {first['p95']}  p99 {first['p99']} ms"
    )
    print(f"  the server's own figure     p50 {own['p50']}  p95 {own['p95']}  p99 {own['p99']} ms")
    print(
        f"  underruns {results['underruns']} ({results['stalled_s']} s) in {results['audio_s']} s of audio, "
        f"{results['mean_live_streams']} streams; endings {results['endings']}, faults {results['faults']}"
    )
    print(f"  loop lag {results['server_loop_lag_ms']}; server {results['server']}")
    if results["onset_in_audio_ms"]:
        print(f"  sound begins in the audio   {results['onset_in_audio_ms']}")
    sys.stdout.flush()


def main() -> int:
    """Run the scenarios named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("scenarios", nargs="*", help=", ".join(SCENARIOS))
    parser.add_argument("--seconds", type=float, help="instead of 30 for each scenario")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = options.scenarios or list(SCENARIOS)
    results = {}
    for name in names:
        results[name] = run(SCENARIOS[name], options.seconds)
        show(name, results[name])
    write(record("service", results, measured=MEASURED, packages=PACKAGES), options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
