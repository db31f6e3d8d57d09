"""What the dashboard costs: the server for each record and watcher, the browser for each second.

    python benchmarks/dashboard.py                 about four minutes; needs Chromium and playwright
    python benchmarks/dashboard.py --quick         the same in half a minute, to see that it runs

A server whose engine costs nothing is given made-up records at 1,000 and 20,000 contexts a minute
(half of them with a client's report) while 0 to 32 watchers read the feed from another process; its
CPU time is taken for each. In the same run it speaks real contexts, so that the costs have something
to be compared with. Then a page looks on: at 1,000 a minute, and sped up 20 times until all it keeps
has been replaced more than once. The last line is the result as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "clients" / "python")]

from rtts_client import connect  # noqa: E402
from websockets.asyncio.client import connect as connect_feed  # noqa: E402

from benchmarks.record import record, write  # noqa: E402
from rtts.engine.local import LocalEngine  # noqa: E402
from rtts.engine.tone import ToneEngine, ToneOptions  # noqa: E402
from rtts.server import Server, ServerOptions, figures, new_event_loop, running_server  # noqa: E402
from rtts.session import ClientReport, UtteranceRecord  # noqa: E402

MEASURED = ("rtts", "clients/dashboard", "benchmarks/dashboard.py")
PACKAGES = ("msgspec", "playwright", "prometheus-client", "uvicorn", "uvloop", "websockets")
PER_MINUTE = 1000
FASTER = 20
SPOKEN = 100
TEXT = "Hello there. How can I help you with that today? "  # about 3 s of speech


class Traffic:
    """Made-up contexts that end, at a rate."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._dice = random.Random(1)
        self._numbers = itertools.count()

    async def flow(self, per_minute: float) -> None:
        """End so many contexts a minute, until cancelled."""
        began, ended = time.monotonic(), 0
        while True:
            await asyncio.sleep(0.02)
            due = int((time.monotonic() - began) * per_minute / 60)
            for _ in range(due - ended):
                self.end_one()
            ended = due

    def end_one(self) -> None:
        """End a context, as a session would."""
        number, now, dice = next(self._numbers), time.monotonic(), self._dice
        engine_s = dice.lognormvariate(-3.5, 0.6)
        stages = {"split": 2e-4, "queue": dice.expovariate(200), "engine": engine_s}
        stages |= {"encode": 5e-4, "send": 1e-4}
        first_packet_s = sum(stages.values())
        is_hit = first_packet_s <= 0.1
        done = UtteranceRecord(
            session=f"s_{number // 8:012x}", ctx=f"turn-{number}", stream=number, engine="tone",
            voice="tone", voice_kind="preset", language="en", codec="opus", container="raw", chars=52,
            segments=1, audio_s=3.0, reason="completed", code="", first_packet_s=first_packet_s,
            from_first_text_s=first_packet_s + 0.1, stages=stages,
            parts={"prefill": engine_s / 3, "first_frame": engine_s / 2, "codec": engine_s / 6},
            budget_s=0.1, within_budget=is_hit, guilty_stage="" if is_hit else "first_frame",
            busy_s=0.3, rtf=0.1, stalls=int(dice.random() < 0.01), stalled_s=0.0, max_lead_s=2.0,
            widest_gap_s=0.1, cancelled_by="", cancel_s=None, voice_cached=dice.random() < 0.99,
            client_first_packet_s=None, client_first_sound_s=None, client_underruns=None,
            client_stalled_s=None, started_at=now - 3, ended_at=now,
        )  # fmt: skip
        take = self._server._book.take
        take(done, now)
        if number % 2:
            take(
                ClientReport(
                    session=done.session, ctx=done.ctx, first_packet_s=first_packet_s + 0.01,
                    first_sound_s=first_packet_s + 0.05, underruns=0, stalled_s=0.0,
                    output_latency_s=0.03,
                ),
                now,
            )  # fmt: skip


async def cpu_ms_per_s(seconds: float) -> float:
    """CPU time of this process for a second of the next ones."""
    at, spent = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return 1000 * (time.process_time() - spent) / (time.monotonic() - at)


async def spoken_ms(server: Server) -> float:
    """CPU time of the server and its engine for one real context, without its client's."""
    command = [sys.executable, __file__, "--speak", server.ws_url]
    spent = time.process_time()
    client = await asyncio.create_subprocess_exec(*command)
    assert await client.wait() == 0
    return 1000 * (time.process_time() - spent) / SPOKEN


async def server_side(server: Server, seconds: float) -> dict[str, Any]:
    """Costs on the server."""
    traffic = Traffic(server)
    found: dict[str, Any] = {"idle_ms_per_s": round(await cpu_ms_per_s(seconds), 2), "cells": []}
    context_ms = await spoken_ms(server)
    cells: dict[tuple[int, int], float] = {}
    for per_minute, watchers in itertools.product((PER_MINUTE, FASTER * PER_MINUTE), (0, 1, 8, 32)):
        flowing = asyncio.create_task(traffic.flow(per_minute))
        command = [sys.executable, __file__, "--watch", server.url, str(watchers)]
        reader = await asyncio.create_subprocess_exec(*command)
        while server._feed.watchers < watchers:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)  # the history each is sent first
        dropped = _dropped(server)
        cost = cells[per_minute, watchers] = await cpu_ms_per_s(seconds)
        dropped = _dropped(server) - dropped
        reader.terminate()
        await reader.wait()
        flowing.cancel()
        found["cells"].append(
            {
                "contexts_per_min": per_minute,
                "watchers": watchers,
                "ms_per_s": round(cost, 2),
                "dropped": dropped,
            }
        )
        print(f"{per_minute} contexts/min, {watchers} watchers: {cost:.2f} ms of CPU a second")
    fast = FASTER * PER_MINUTE
    record_ms = 60 * (cells[fast, 0] - cells[PER_MINUTE, 0]) / (fast - PER_MINUTE)
    return found | {
        "record_us": round(1000 * record_ms, 1),
        "watcher_ms_per_s": round((cells[PER_MINUTE, 32] - cells[PER_MINUTE, 0]) / 32, 3),
        "record_and_watcher_us": round(1000 * 60 * (cells[fast, 8] - cells[fast, 0]) / fast / 8, 1),
        "spoken_context_ms": round(context_ms, 2),
        "record_share_of_context": round(record_ms / context_ms, 4),
        "history_bytes": sum(map(len, server._figures._history._points)),
    }


def _dropped(server: Server) -> float:
    return server.metrics.registry.get_sample_value("rtts_stats_dropped_records_total") or 0.0


async def page_side(server: Server, seconds: float) -> dict[str, Any]:
    """Costs in a browser."""
    from playwright.async_api import async_playwright

    traffic = Traffic(server)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = await browser.new_page(viewport={"width": 1280, "height": 1600})
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Performance.enable")

        async def metrics() -> dict[str, float]:
            await devtools.send("HeapProfiler.collectGarbage")
            listed = await devtools.send("Performance.getMetrics")
            return {each["name"]: each["value"] for each in listed["metrics"]}

        async def watched(length_s: float) -> dict[str, float]:
            before = await metrics()
            await page.evaluate("performance.clearMeasures('show')")
            await asyncio.sleep(length_s)
            after = await metrics()
            spent = after["Timestamp"] - before["Timestamp"]
            shows = await page.evaluate(
                "performance.getEntriesByName('show').map((each) => each.duration)"
            )
            return {
                "main_thread_ms_per_s": round(
                    1000 * (after["TaskDuration"] - before["TaskDuration"]) / spent, 1
                ),
                "script_ms_per_s": round(
                    1000 * (after["ScriptDuration"] - before["ScriptDuration"]) / spent, 1
                ),
                "show_ms_median": round(sorted(shows)[len(shows) // 2], 1),
                "show_ms_worst": round(max(shows), 1),
                "heap_mb_before": round(before["JSHeapUsedSize"] / 1e6, 2),
                "heap_mb_after": round(after["JSHeapUsedSize"] / 1e6, 2),
                "nodes_before": before["Nodes"],
                "nodes_after": after["Nodes"],
            }

        await page.goto(f"{server.url}/dashboard/?measure")
        await page.get_by_label("Show").select_option("900")
        found: dict[str, Any] = {}
        for name, factor in (("usual", 1), ("sped_up", FASTER)):
            figures.INTERVAL_S = 1.0 / factor
            flowing = asyncio.create_task(traffic.flow(factor * PER_MINUTE))
            # 900 points and 500 contexts are kept: sped up they are full after 45 s.
            await asyncio.sleep(8 if factor == 1 else 6 * seconds)
            found[name] = await watched((3 if factor == 1 else 12) * seconds)
            flowing.cancel()
            print(name, found[name])
        figures.INTERVAL_S = 1.0
        await browser.close()
    return found


async def watch(url: str, watchers: int) -> None:
    """Read the feed, several times, until terminated."""

    async def read() -> None:
        async with connect_feed("ws" + url[4:] + "/v1/stats", max_size=None) as feed:
            async for _ in feed:
                pass

    await asyncio.gather(*(read() for _ in range(watchers)))
    await asyncio.Event().wait()


async def speak(url: str) -> None:
    """Real contexts, one after the other."""
    async with connect(url) as client:
        for _ in range(SPOKEN):
            async with client.context() as context:
                async for _event in context.speak(TEXT):
                    pass


async def main(arguments: argparse.Namespace) -> None:
    """Measure and write."""
    seconds = 1.0 if arguments.quick else 8.0
    engine = LocalEngine(lambda: ToneEngine(ToneOptions()))
    async with running_server(ServerOptions(port=0, log_json=True), engine) as server:
        results = {
            "server": await server_side(server, seconds),
            "page": await page_side(server, seconds),
        }
    result = record("dashboard", results, measured=MEASURED, packages=PACKAGES)
    write(result, arguments.output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--watch", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--speak", help=argparse.SUPPRESS)
    given = parser.parse_args()
    job = main(given)
    if given.watch:
        job.close()
        job = watch(given.watch[0], int(given.watch[1]))
    elif given.speak:
        job.close()
        job = speak(given.speak)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(job)
