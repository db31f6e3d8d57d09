"""What the Pipecat and LiveKit plugins add to the first audio of rtts_client, in one run.

    python benchmarks/plugins.py [--rounds 100]

Starts `rtts serve` with the tone engine, which costs nothing. In the environment of each framework
(`make sdks`) one process speaks the same tokens in turn through `rtts_client` alone, through a TTS
object of LiveKit or a running pipeline of Pipecat, each with the connection it keeps. Measured is the
time until audio is there, the first `Audio` event, audio event, or audio frame: "written", of tokens
that come one after the other as a model writes them, from the one that completes the first
sentence; "at once", of all tokens handed over together, from the first. The last line is the result as
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "clients"
MEASURED = ("rtts", "clients", "benchmarks/plugins.py")
# The second sentence's first word shows that the first has ended, so nothing waits for more.
TOKENS = [
    word + " "
    for word in [
        "The",
        "shop",
        "opens",
        "at",
        "nine",
        "in",
        "the",
        "morning.",
        "Please",
        "bring",
        "a",
        "pen.",
    ]
]
DECIDES = TOKENS.index("Please ")
PAUSE_S = 0.02
TOKEN_S = 0.01  # between tokens that are written

Say = Callable[[str], Awaitable[object]]
# Speaks the tokens with pauses or without; seconds to the first audio.
Speak = Callable[[bool], Awaitable[float]]


class Clock:
    """Hands tokens over and says when the one that counts went."""

    began = 0.0

    async def feed(self, say: Say, is_written: bool) -> None:
        for n, token in enumerate(TOKENS):
            if n == (DECIDES if is_written else 0):
                self.began = time.perf_counter()
            await say(token)
            if is_written:
                await asyncio.sleep(TOKEN_S)

    def took_s(self) -> float:
        return time.perf_counter() - self.began


async def rtts_client_alone(url: str) -> Speak:
    """Seconds to the first audio, by the client alone."""
    from rtts_client import Audio, Format, connect

    client = await connect(url).__aenter__()

    async def speak(is_written: bool) -> float:
        clock = Clock()
        async with client.context(format=Format("pcm_s16le", "raw", 24_000)) as context:
            feeding = asyncio.create_task(clock.feed(context.send, is_written))
            async for event in context:
                if isinstance(event, Audio):
                    took_s = clock.took_s()
                    break
            await feeding
        return took_s

    return speak


async def livekit_plugin(url: str) -> Speak:
    """The same through a stream of LiveKit."""
    from livekit.plugins import rtts  # type: ignore[import-not-found]

    tts = rtts.TTS(url=url)

    async def speak(is_written: bool) -> float:
        clock = Clock()
        stream = tts.stream()

        async def say(token: str) -> None:
            stream.push_text(token)

        feeding = asyncio.create_task(clock.feed(say, is_written))
        async for _ in stream:
            took_s = clock.took_s()
            break
        await feeding
        await stream.aclose()
        return took_s

    return speak


async def pipecat_plugin(url: str) -> Speak:
    """The same through a pipeline of Pipecat: a source, the service, a sink."""
    from loguru import logger  # type: ignore[import-not-found]
    from pipecat.frames import frames  # type: ignore[import-not-found]
    from pipecat.pipeline.pipeline import Pipeline  # type: ignore[import-not-found]
    from pipecat.pipeline.worker import (  # type: ignore[import-not-found]
        PipelineParams,
        PipelineWorker,
    )
    from pipecat.processors.frame_processor import (  # type: ignore[import-not-found]
        FrameDirection,
        FrameProcessor,
    )
    from pipecat.workers.runner import WorkerRunner  # type: ignore[import-not-found]
    from pipecat_rtts import RttsTTSService  # type: ignore[import-not-found]

    logger.remove()
    heard = asyncio.Event()
    over = asyncio.Event()

    class Sink(FrameProcessor):  # type: ignore[misc]
        async def process_frame(self, frame: Any, direction: FrameDirection) -> None:
            await super().process_frame(frame, direction)
            if isinstance(frame, frames.TTSAudioRawFrame):
                heard.set()
            elif isinstance(frame, frames.LLMFullResponseEndFrame):
                over.set()
            await self.push_frame(frame, direction)

    worker = PipelineWorker(
        Pipeline([RttsTTSService(url=url), Sink()]),
        params=PipelineParams(audio_out_sample_rate=24_000),
        cancel_on_idle_timeout=False,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await asyncio.sleep(0.5)

    async def speak(is_written: bool) -> float:
        assert not running.done()
        clock = Clock()
        heard.clear()
        over.clear()

        async def say(token: str) -> None:
            await worker.queue_frame(frames.LLMTextFrame(token))

        await worker.queue_frame(frames.LLMFullResponseStartFrame())
        feeding = asyncio.create_task(clock.feed(say, is_written))
        await heard.wait()
        took_s = clock.took_s()
        await feeding
        await worker.queue_frame(frames.LLMFullResponseEndFrame())
        await over.wait()
        return took_s

    return speak


MAKERS = {"livekit": livekit_plugin, "pipecat": pipecat_plugin}


async def child(framework: str, url: str, rounds: int) -> None:
    """Print what both ways took and leave at once, since a pipeline runs for ever."""
    print(json.dumps(await compare(framework, url, rounds)), flush=True)
    os._exit(0)


async def compare(framework: str, url: str, rounds: int) -> dict[str, Any]:
    """Both ways in turn, the order alternating, after ten that do not count."""
    ways = {
        "rtts_client": await rtts_client_alone(url),
        "plugin": await MAKERS[framework](url),
    }
    results = {}
    for manner in ("written", "at once"):
        took_s: dict[str, list[float]] = {name: [] for name in ways}
        for n in range(rounds + 10):
            for name in (*ways,) if n % 2 else (*reversed(ways),):
                seconds = await ways[name](manner == "written")
                if n >= 10:
                    took_s[name].append(seconds)
                await asyncio.sleep(PAUSE_S)
        results[manner] = figures(took_s["rtts_client"], took_s["plugin"])
    return results


def figures(alone: list[float], plugin: list[float]) -> dict[str, float]:
    """What one manner took."""
    added = [after - before for before, after in zip(alone, plugin, strict=True)]
    return {
        "rtts_client_first_audio_p50_ms": milliseconds(alone, 50),
        "rtts_client_first_audio_p95_ms": milliseconds(alone, 95),
        "plugin_first_audio_p50_ms": milliseconds(plugin, 50),
        "plugin_first_audio_p95_ms": milliseconds(plugin, 95),
        "added_p50_ms": milliseconds(added, 50),
    }


def milliseconds(seconds: list[float], percent: int) -> float:
    return round(1000 * statistics.quantiles(seconds, n=100)[percent - 1], 3)


def in_its_environment(framework: str, url: str, rounds: int) -> dict[str, Any]:
    """What the child process of a framework measured, under the framework's name and version."""
    from tests.e2e.sdk import environments

    python = environments.interpreter(framework)
    if python is None:
        raise SystemExit(f"the environment {framework} is not there: make sdks")
    paths = [str(CLIENTS / name) for name in ("python", "pipecat", "livekit")]
    done = subprocess.run(
        [str(python), __file__, "--child", framework, url, "--rounds", str(rounds)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    package = "pipecat-ai" if framework == "pipecat" else "livekit-agents"
    version = environments.versions(framework)[package]
    return {f"{package} {version}": json.loads(done.stdout.splitlines()[-1])}


def measure(rounds: int) -> dict[str, Any]:
    """Each framework's child process against one server."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.service import RunningServer

    results: dict[str, Any] = {}
    server = RunningServer(("--engine", "tone"))
    try:
        for framework in MAKERS:
            results |= in_its_environment(framework, server.url, rounds)
    finally:
        server.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.child:
        asyncio.run(child(*options.child, options.rounds))
    results = measure(options.rounds)
    from benchmarks.record import record, write

    results["rounds"] = options.rounds
    packages = ("uvicorn", "uvloop", "websockets", "msgspec")
    write(record("plugins", results, measured=MEASURED, packages=packages), options.output)


if __name__ == "__main__":
    main()
