"""How long a reply takes to be heard in a browser: text sent, first packet, first sound.

A server with the embedded voice and, beside it, one with tones; headless Chromium on the same machine.
First sound is when the first audible sample leaves the audio output as the browser tells it, the
output's own latency included. A headless browser plays into an output that only keeps time.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright
from record import record, write

from rtts.engine.cpu.factory import make_cpu_engine
from rtts.engine.cpu.options import CpuOptions
from rtts.engine.hosting import Backoff
from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine
from rtts.server import ServerOptions, running_server

MEASURED = ("benchmarks/browser.py", "clients/js/src", "rtts")
PACKAGES = ("playwright",)
TEXT = "It is good to hear from you again."
SCRIPT = """async ([decoder, text, n]) => {
  const { connect, Player } = await import("/js/index.js");
  const player = await Player.create({ decoder });
  const client = await connect("/v1/tts");
  const rounds = [];
  for (let i = 0; i <= n; i++) {
    let playback;
    await new Promise((onFirstSound) => {
      const context = client.context({ format: player.format }).speak(text);
      playback = player.play(context, { onFirstSound });
    });
    await new Promise((resolve) => setTimeout(resolve, 100));
    await playback.cancel();
    const { firstPacketMs, firstSoundMs, outputLatencyMs } = await playback.finished;
    if (i > 0) rounds.push({ firstPacketMs, firstSoundMs, outputLatencyMs });
    await new Promise((resolve) => setTimeout(resolve, 50 + 100 * Math.random()));
  }
  client.close();
  await player.close();
  return rounds;
}"""


def engines() -> dict[str, Callable[[], Any]]:
    return {
        "embedded voice": make_cpu_engine(CpuOptions(), time.monotonic),
        "tones": ToneEngine,
    }


async def measure(n: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
        )
        results["browser"] = f"Chromium {browser.version}"
        for name, factory in engines().items():
            host = LocalEngine(factory, backoff=Backoff(0.5, 1.0))
            async with running_server(ServerOptions(port=0), host) as server:
                page = await browser.new_page()
                await page.goto(f"{server.url}/healthz")
                for decoder in ("webcodecs", "wasm", "pcm"):
                    results[f"{name}, {decoder}"] = await rounds(page, decoder, n)
                await page.close()
        await browser.close()
    return results


async def rounds(page: Page, decoder: str, n: int) -> dict[str, Any]:
    made = await page.evaluate(SCRIPT, [decoder, TEXT, n])
    result: dict[str, Any] = {"n": len(made)}
    for key in ("firstPacketMs", "firstSoundMs", "outputLatencyMs"):
        values = sorted(each[key] for each in made)
        name = {"firstPacketMs": "first_packet_ms", "firstSoundMs": "first_sound_ms"}.get(
            key, "output_latency_ms"
        )
        result[name] = {
            "p50": round(statistics.median(values), 1),
            "least": round(values[0], 1),
            "most": round(values[-1], 1),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20, help="replies for each way to decode")
    parser.add_argument("-o", "--output", type=Path, help="write the result here as well")
    arguments = parser.parse_args()
    results = asyncio.run(measure(arguments.n))
    write(record("browser", results, measured=MEASURED, packages=PACKAGES), arguments.output)


if __name__ == "__main__":
    main()
