"""Load a server the way conversations do, and report what clients and listeners get.

    python benchmarks/load.py open   --rate 5 --duration 30     replies arrive at random (Poisson)
    python benchmarks/load.py closed --clients 4 --duration 30  each waits for its answer
    python benchmarks/load.py live   --streams 100 --duration 30  everybody listens all the time

Measures, at the client: first packet (from sending the message with the last character of the first
segment, and from the first text), where sound begins, gaps a simulated player hears, every ending
and every breach of rtts.v1. Written word by word, a segment may be known to be complete only from
the word after it; that wait is in `first_packet_ms` and not in the server's own figure. Says what it
cost itself and how late it was, so that its own limits are not taken for the server's. The last line
is the result as JSON. Sends to loopback unless `--allow-remote`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import ipaddress
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.loadgen import figures  # noqa: E402
from benchmarks.loadgen.run import Plan, Run  # noqa: E402
from benchmarks.record import machine, record, write  # noqa: E402

MEASURED = ("rtts", "benchmarks/load.py", "benchmarks/loadgen")
PACKAGES = ("msgspec", "numpy", "uvicorn", "uvloop", "websockets")


class ServerWatch:
    """CPU and memory of the server's process tree."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu_began_s = self._cpu_s()

    def _tree(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_s(self) -> float:
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def report(self, wall_s: float, audio_s: float) -> dict[str, float]:
        cpu_s = self._cpu_s() - self._cpu_began_s
        return {
            "cpu_percent": round(100 * cpu_s / wall_s, 1),
            "cpu_percent_per_live_stream": round(100 * cpu_s / audio_s, 3) if audio_s else 0.0,
            "rss_mb": round(sum(p.memory_info().rss for p in self._tree()) / 2**20, 1),
        }


async def measure(plan: Plan) -> dict[str, Any]:
    """Run a plan; returns the `results` of the report."""
    gc.collect()
    gc.freeze()  # a full collection in the generator would look like a late server
    run = Run(plan)
    watch = ServerWatch(plan.server_pid) if plan.server_pid is not None else None
    await run.go()
    results = figures.summarise(run.outcomes)
    for name, count in run.line_faults.items():
        results["faults"][name] = results["faults"].get(name, 0) + count
    late_sends = [late for outcome in run.outcomes for late in outcome.late_sends_s]
    results |= {
        "wall_s": round(run.wall_s, 3),
        "connections": len(run.handshakes_s),
        "handshake_ms": figures.quantiles_ms(run.handshakes_s),
        "mean_live_streams": round(results["audio_s"] / run.wall_s, 2),
        "generator": {
            "cpu_percent": round(100 * run.cpu_s / run.wall_s, 1),
            "cpu_percent_per_live_stream": round(100 * run.cpu_s / results["audio_s"], 3)
            if results["audio_s"]
            else None,
            "cpu_us_per_message": round(1e6 * run.cpu_s / run.n_messages, 1)
            if run.n_messages
            else None,
            "loop_lag_ms": figures.quantiles_ms(run.lags_s),
            "late_start_ms": figures.quantiles_ms(run.late_starts_s),
            "late_send_ms": figures.quantiles_ms(late_sends),
        },
    }
    if watch is not None:
        results["server"] = watch.report(run.wall_s, results["audio_s"])
    return results


def is_clean(results: dict[str, Any]) -> bool:
    """No underrun, no fault, every reply completed (or cut by the end of the run)."""
    good = {"completed", "cut"}
    return not results["underruns"] and not results["faults"] and set(results["endings"]) <= good


def check_loopback(url: str) -> None:
    """Refuse anything that is not this machine.

    Raises:
        ValueError: The host resolves to another address, or not at all.
    """
    host = urlsplit(url).hostname or ""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ValueError(f"{host}: {error}") from error
    outside = sorted(a for a in found if not ipaddress.ip_address(a.partition("%")[0]).is_loopback)
    if outside:
        raise ValueError(f"{host} is {outside[0]}, not this machine; --allow-remote allows it")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("mode", choices=("open", "closed", "live"))
    add("--url", default="ws://127.0.0.1:8765/v1/tts")
    add("--duration", type=float, default=30.0, metavar="S")
    add("--rate", type=float, default=1.0, help="open: replies a second")
    add("--clients", type=int, default=1, help="closed: clients")
    add("--streams", type=int, default=10, help="live: listeners")
    add("--contexts-per-connection", type=int, default=1, metavar="N")
    add("--api-key")
    add("--voice")
    add("--codec", default="opus")
    add("--sample-rate", type=int)
    add("--max-lead-ms", type=int)
    add("--budget-ms", type=float)
    add("--sentences", type=int, nargs=2, default=(2, 4), metavar=("MIN", "MAX"))
    add("--texts", type=Path, help="file with one reply a line, instead of our own sentences")
    add("--words-per-s", type=float, help="write word by word, as a language model does")
    add("--player-buffer-ms", type=float, default=0.0, help="the player starts with this much")
    add("--onset-dbfs", type=float, help="look for the first sample above this level, as -50")
    add("--warmup", type=float, default=0.0, metavar="S", help="do not count the first seconds")
    add("--pause", type=float, default=0.0, metavar="S", help="live: between two replies")
    add("--timeout", type=float, default=30.0, metavar="S", help="silence that ends a reply")
    add("--seed", type=int, default=1)
    add("--server-pid", type=int, help="also report CPU and memory of this process tree")
    add("--output", type=Path, help="also write the report to this file")
    add("--note", default="", help="what else ran on the machine")
    add("--expect-clean", action="store_true", help="fail on any underrun, error or fault")
    add("--allow-remote", action="store_true", help="allow a server on another machine")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan the command line asks for."""
    own = options.texts.read_text(encoding="utf-8").splitlines() if options.texts else []
    return Plan(
        url=options.url,
        mode=options.mode,
        duration_s=options.duration,
        rate=options.rate,
        clients=options.clients,
        streams=options.streams,
        contexts_per_connection=options.contexts_per_connection,
        api_key=options.api_key,
        voice=options.voice,
        codec=options.codec,
        sample_rate=options.sample_rate,
        max_lead_ms=options.max_lead_ms,
        budget_ms=options.budget_ms,
        sentences=tuple(options.sentences),
        words_per_s=options.words_per_s,
        player_buffer_s=options.player_buffer_ms / 1000,
        onset_dbfs=options.onset_dbfs,
        warmup_s=options.warmup,
        pause_s=options.pause,
        timeout_s=options.timeout,
        seed=options.seed,
        server_pid=options.server_pid,
        texts=tuple(line for line in own if line.strip()),
    )


def run_on_loop(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Run on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def show(results: dict[str, Any]) -> None:
    """The figures a person looks at first."""
    for name in ("first_packet_ms", "from_first_text_ms", "first_sound_ms", "server_ttfa_ms"):
        value = results[name]
        if value:
            print(f"{name:20} p50 {value['p50']:9.2f}   p95 {value['p95']:9.2f}   n {value['n']}")
    print(f"endings              {results['endings']}   faults {results['faults'] or 'none'}")
    print(
        f"underruns            {results['underruns']} ({results['stalled_s']:.3f} s) in "
        f"{results['audio_s']:.0f} s of audio, {results['mean_live_streams']} streams on average"
    )
    generator = results["generator"]
    lag = generator["loop_lag_ms"] or {"p99": 0.0}
    print(f"generator            cpu {generator['cpu_percent']} %, loop lag p99 {lag['p99']} ms")


def main() -> int:
    """Command line entry."""
    options = arguments()
    if not options.allow_remote:
        try:
            check_loopback(options.url)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    before = machine()
    results = run_on_loop(measure(plan_of(options)))
    report = record("load", results, measured=MEASURED, packages=PACKAGES)
    report["machine"] = before | {"note": options.note}
    show(results)
    write(report, options.output)
    return int(options.expect_clean and not is_clean(results))


if __name__ == "__main__":
    raise SystemExit(main())
