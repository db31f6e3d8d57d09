"""What `rtts demo` shows: a server process, and a reply sent to it as a language model writes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from rtts.cli.failure import CommandError
from rtts.cli.terminal import Progress

if TYPE_CHECKING:
    from rtts_client import Context, Done, FirstAudio

REPLY = (
    "Sure, I can help with that. The train to Lisbon leaves at 9:40 from platform two, and the "
    "ticket costs $27.50. If you would rather sleep in, there is another one at noon. Shall I book "
    "a seat by the window?"
)
# A fast language model: 25 words a second, unevenly.
_WORD_S = 0.04
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0


async def show(command: list[str], path: Path) -> None:
    """Show it, on standard output.

    Args:
        command: Starts the server.
        path: Where the reply goes, as Ogg Opus.

    Raises:
        CommandError: The server did not start, or did not speak, or the file cannot be written.
    """
    from rtts_client import RttsError, connect

    began = time.monotonic()
    async with _server(command) as (url, engine):
        print(f"server          {url} ({engine}), ready after {time.monotonic() - began:.1f} s")
        try:
            async with connect(url) as client:
                from rtts_client import Format

                async with client.context(format=Format("opus", "ogg"), max_lead_ms=0) as context:
                    first, done = await _speak(context, path)
        except RttsError as error:
            raise CommandError(f"the demo failed: {error}") from error
    _report(first, done, context, path)


async def _words() -> AsyncIterator[str]:
    pace = random.Random(7)
    for word in re.findall(r"\S+\s*", REPLY):
        await asyncio.sleep(pace.expovariate(1 / _WORD_S))
        yield word


async def _speak(context: Context, path: Path) -> tuple[FirstAudio, Done]:
    from rtts_client import Audio, Done, FirstAudio, Segment, Warned

    from rtts.cli.outputs import OggFile

    first: FirstAudio | None = None
    done: Done | None = None
    began = time.monotonic()
    file = OggFile(path)
    try:
        async for event in context.speak(_words()):
            match event:
                case Audio():
                    await file.write(event.data)
                case Segment():
                    elapsed_s = time.monotonic() - began
                    print(f"  {elapsed_s:8.2f} s    {event.text.strip()}", flush=True)
                case FirstAudio():
                    first = event
                case Warned():
                    print(f"warning         {event.message}", flush=True)
                case Done():
                    done = event
                case _:
                    pass
    finally:
        await file.finish()
    if first is None or done is None:
        raise CommandError("the server sent no audio")
    return first, done


def _report(first: FirstAudio, done: Done, context: Context, path: Path) -> None:
    stages = " + ".join(
        f"{name} {getattr(first, f'{name}_ms'):.1f}"
        for name in ("split", "queue", "model", "encode", "send")
    )
    verdict = "kept" if first.within_budget else "MISSED"
    print(f"first packet    {first.ttfa_ms:.1f} ms = {stages}")
    print(f"budget          {first.budget_ms:.0f} ms: {verdict}")
    if context.first_packet_s is not None:
        print(f"at the client   {1000 * context.first_packet_s:.1f} ms")
    if done.metrics is not None and done.metrics.rtf is not None:
        print(
            f"real-time       factor {done.metrics.rtf:.2g}: seconds of work for a second of speech"
        )
    size = path.stat().st_size
    print(f"wrote           {path}: {done.audio_ms / 1000:.1f} s of Ogg Opus, {size:,} bytes")


@contextlib.asynccontextmanager
async def _server(command: list[str]) -> AsyncIterator[tuple[str, str]]:
    """A server process: its URL and engine, once it is ready; stopped afterwards."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to us, and we stop it
    )
    try:
        async with Progress().waiting("starting the server"), asyncio.timeout(_START_TIMEOUT_S):
            url, engine = await _address(process)
        yield url, engine
    except TimeoutError:
        raise CommandError(f"the server was not ready in {_START_TIMEOUT_S:.0f} s") from None
    finally:
        await _stop(process)


async def _address(process: asyncio.subprocess.Process) -> tuple[str, str]:
    assert process.stdout is not None
    found: tuple[str, str] | None = None
    async for line in process.stdout:
        text = line.decode().strip()
        if match := re.fullmatch(r"listening on (\S+) \((.*)\)", text):
            found = match[1], match[2]
        if text == "ready" and found:
            return found
    raise CommandError("the server ended before it was ready")  # it has said why


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
