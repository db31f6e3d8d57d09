"""Whether memory stays flat over thousands of utterances of random lengths, formats and ends.

    python benchmarks/memory.py                       2,000 after 400 for warming up, embedded voice
    python benchmarks/memory.py --engine tone -n 500  shorter

Starts `rtts serve`, sends it replies of 1 to 4 sentences from several connections as fast as it
speaks and cancels some. After every 200 all clients leave and the resident memory of the server's
processes is taken; the most while they talk is what was on its way. The last line is the result as
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "clients" / "python")]

from rtts_client import Audio, Done, Format, connect  # noqa: E402

from benchmarks.loadgen.texts import reply  # noqa: E402
from benchmarks.record import record, write  # noqa: E402
from benchmarks.service import MEASURED as SERVICE  # noqa: E402
from benchmarks.service import RunningServer  # noqa: E402

MEASURED = (*SERVICE, "clients/python", "benchmarks/memory.py")
PACKAGES = ("numpy", "onnxruntime", "opuslib-next-bundled", "soxr", "uvicorn", "websockets")
FORMATS = (
    Format("opus"),
    Format("opus", container="ogg"),
    Format("pcm_s16le", sample_rate=16000),
    Format("mulaw"),
)
ROUND = 200  # utterances between two looks
CLIENTS = 8


class Talkers:
    """Clients that keep a server busy, and count what became of it."""

    def __init__(self, url: str) -> None:
        self.ends: Counter[str] = Counter()
        self.audio_s = 0.0
        self._url = url

    async def talk(self, n_utterances: int, rng: random.Random) -> None:
        """One connection, utterance after utterance."""
        async with connect(self._url) as client:
            for _ in range(n_utterances):
                self.ends[await self._utterance(client, rng)] += 1

    async def _utterance(self, client: Any, rng: random.Random) -> str:
        text = reply(rng, (1, 4))
        leaves_after = rng.randint(1, 20) if rng.random() < 0.3 else None
        async with client.context(format=rng.choice(FORMATS), max_lead_ms=0) as context:
            n_messages, end = 0, "lost"
            async for event in context.speak(text):
                if isinstance(event, Audio):
                    n_messages += 1
                    self.audio_s += event.duration_ms / 1000
                    if n_messages == leaves_after:
                        return (await context.cancel()).reason
                elif isinstance(event, Done):
                    end = event.reason
            return end


def rss_mb(pid: int) -> float:
    """Resident memory of a server and its engines."""
    server = psutil.Process(pid)
    tree = [server, *server.children(recursive=True)]
    return round(sum(process.memory_info().rss for process in tree) / 2**20, 1)


async def measure(options: argparse.Namespace, server: RunningServer) -> dict[str, Any]:
    """Talk in rounds; look when everybody has left."""
    talkers = Talkers(server.url)
    busy_mb, rest_mb = [], []
    for number in range(options.warmup // ROUND + options.n // ROUND):
        rngs = [random.Random(1000 * number + client) for client in range(CLIENTS)]
        talking = asyncio.gather(*(talkers.talk(ROUND // CLIENTS, rng) for rng in rngs))
        peak_mb = 0.0
        while not talking.done():
            await asyncio.wait([talking], timeout=0.25)
            peak_mb = max(peak_mb, rss_mb(server.pid))
        await talking
        await asyncio.sleep(1.0)
        busy_mb.append(peak_mb)
        rest_mb.append(rss_mb(server.pid))
        print(f"{ROUND * (number + 1):5} utterances: {rest_mb[-1]} MB at rest, {peak_mb} at most")
        sys.stdout.flush()
    n_warm = options.warmup // ROUND
    # The median of three rounds, for the allocator gives back a little more or less each time.
    begin_mb = statistics.median(rest_mb[n_warm - 1 : n_warm + 2])
    end_mb = statistics.median(rest_mb[-3:])
    return {
        "serve": f"rtts serve --engine {options.engine}",
        "utterances": options.n,
        "warmup_utterances": options.warmup,
        "clients": CLIENTS,
        "endings": dict(talkers.ends),
        "audio_s": round(talkers.audio_s, 1),
        "rss_after_warmup_mb": begin_mb,
        "rss_at_end_mb": end_mb,
        "growth_percent": round(100 * (end_mb / begin_mb - 1), 2),
        "rss_at_rest_mb": rest_mb,
        "rss_at_most_mb": busy_mb,
    }


def main() -> int:
    """Measure; 1 if memory grew by more than 3 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2000, help="utterances, in rounds of 200")
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--engine", default="cpu")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    server = RunningServer(("--engine", options.engine))
    try:
        results = asyncio.run(measure(options, server))
    finally:
        server.stop()
    print(f"grown by {results['growth_percent']} %")
    write(record("memory", results, measured=MEASURED, packages=PACKAGES), options.output)
    return int(results["growth_percent"] > 3.0)


if __name__ == "__main__":
    raise SystemExit(main())
