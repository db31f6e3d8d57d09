"""Clients of all surfaces at once on one server, many of them without manners: nothing is left over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.test_server import HELLO, nothing_left, serving, speak

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


async def over_http(server, chance: random.Random) -> None:
    """Requests that are read, half read, or left."""
    form = chance.choice(["pcm", "mp3", "opus", "wav"])
    body = {"input": HELLO * chance.randrange(1, 20), "response_format": form}
    if chance.random() < 0.3:
        body["stream_format"] = "sse"
    async with httpx.AsyncClient(base_url=server.url) as http:
        for _ in range(chance.randrange(1, 4)):
            async with http.stream("POST", "/v1/audio/speech", json=body) as response:
                async for _ in response.aiter_bytes():
                    if chance.random() < 0.1:
                        break


def cartesia(chance: random.Random) -> dict:
    ctx = chance.choice("ab")
    if chance.random() < 0.2:
        return {"context_id": ctx, "cancel": True}
    text = HELLO[: chance.randrange(70)]
    flags = {"continue": chance.random() < 0.7, "flush": chance.random() < 0.2}
    return {"context_id": ctx, "transcript": text, "voice": "v", "output_format": RAW, **flags}


def vllm_omni(chance: random.Random) -> dict:
    kinds = ["input.text", "input.text", "input.done", "session.config"]
    if chance.random() < 0.05:
        kinds = ["session.close"]
    split = chance.choice(["none", "sentence"])
    more = {"response_format": "pcm", "stream_audio": True, "split_granularity": split}
    return {"type": chance.choice(kinds), "text": HELLO[: chance.randrange(70)], **more}


async def over_socket(server, chance: random.Random) -> None:
    """Messages in any order; the socket is read, not read, closed or lost."""
    path, make = chance.choice(
        [("/tts/websocket", cartesia), ("/v1/audio/speech/stream", vllm_omni)]
    )
    url = "ws" + server.url.removeprefix("http") + path
    async with connect(url, close_timeout=0.2) as ws:
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            for _ in range(chance.randrange(1, 12)):
                await ws.send(json.dumps(make(chance)))
                if chance.random() < 0.6:
                    await asyncio.wait_for(ws.recv(), 0.02)
        if chance.random() < 0.5:
            ws.transport.abort()


@pytest.mark.parametrize("seed", range(3))
async def test_any_coming_and_going_leaves_nothing(seed):
    """No session, place, route or utterance stays, and a client of rtts.v1 is served as ever."""
    chance = random.Random(seed)
    async with serving() as server:
        async with asyncio.timeout(30):
            some = [over_http(server, chance) for _ in range(6)]
            some += [over_socket(server, chance) for _ in range(14)]
            done = await asyncio.gather(speak(server), *some)
        assert done[0]["reason"] == "completed"
        await nothing_left(server)
        errors = server.metrics.registry.get_sample_value("rtts_errors_total", {"code": "internal"})
        assert not errors
        await speak(server)
