"""The whole server over real sockets: many at once, some of them hostile, nobody else harmed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from rtts.engine.hosting import Backoff
from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.server import Server, ServerOptions, running_server
from rtts.session import SessionOptions
from tests.server.raw import PING, TEXT, RawClient, eventually, frame, handshake

HELLO = "Hello there, this is a test. It goes on for a while, and then it ends. "


def engine(**options: Any) -> LocalEngine:
    return LocalEngine(lambda: ToneEngine(ToneOptions(**options)), backoff=Backoff(0.5, 1.0))


@contextlib.asynccontextmanager
async def serving(
    host: LocalEngine | None = None, session: SessionOptions | None = None, **options: Any
):
    made = ServerOptions(port=0, **options)
    async with running_server(made, host or engine(), session_options=session) as server:
        yield server


async def speak(server: Server, text: str = HELLO) -> dict[str, Any]:
    """One reply, sent word by word; checks what every client relies on, returns its `done`."""
    async with connect(server.ws_url, subprotocols=["rtts.v1"]) as ws:
        assert json.loads(await ws.recv())["type"] == "ready"
        words = text.split(" ")
        for n, word in enumerate(words):
            await ws.send(json.dumps({"type": "text", "ctx": "c", "n": n, "text": word + " "}))
        await ws.send(json.dumps({"type": "end", "ctx": "c"}))
        seqs, kinds = [], []
        async for message in ws:
            if isinstance(message, bytes):
                seqs.append(int.from_bytes(message[8:12]))
                kinds.append("audio")
                continue
            event = json.loads(message)
            kinds.append(event["type"])
            if event["type"] == "done":
                break
        assert kinds[0] == "started"
        assert kinds.index("segment") < kinds.index("audio")
        assert kinds.index("first_audio") > kinds.index("audio")
        assert seqs == list(range(event["last_seq"] + 1)) and len(seqs) > 3
        return event


async def nothing_left(server: Server) -> None:
    """Every session, route, place and utterance is gone."""
    await eventually(lambda: server._doorman.connections == 0, 5)
    await eventually(lambda: server._hub.sessions == len(server._hub._detached), 5)
    assert server._doorman.places.taken == 0 and server._doorman._keyless.taken == 0
    server._hub.stop_all()
    await eventually(lambda: not server._hub._routes, 5)
    assert server._hub.sessions == 0 and not server._hub._tokens
    assert not server._hub._turns and server._hub._turns.utterances == 0
    assert server.service.live_utterances == 0


async def test_many_speak_at_once():
    """Thirty clients, each gets its own reply whole."""
    async with serving() as server:
        async with asyncio.timeout(20):
            endings = await asyncio.gather(*(speak(server) for _ in range(30)))
        assert {done["reason"] for done in endings} == {"completed"}
        assert len({done["samples"] for done in endings}) == 1
        await nothing_left(server)


async def hostile(server: Server, kind: str) -> None:
    """One client without manners."""
    client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, RuntimeError):
        if kind == "half":
            client.send(handshake()[:50])
            await asyncio.sleep(0.5)
        elif kind == "garbage":
            client.send(random.randbytes(5000))
            await client.reader.read(100)
        else:
            client.send(handshake())
            await client.response()
            text = json.dumps({"type": "text", "ctx": "c", "text": HELLO * 20}).encode()
            await ACTS[kind](client, text)
    client.reset()


async def never_read(client: RawClient, text: bytes) -> None:
    start = {"type": "start", "ctx": "c", "max_lead_ms": 0, "format": {"codec": "pcm_s16le"}}
    client.send(frame(TEXT, json.dumps(start).encode()), frame(TEXT, text))
    await asyncio.sleep(0.5)


async def vanish(client: RawClient, text: bytes) -> None:
    client.send(frame(TEXT, text))
    await asyncio.sleep(random.uniform(0.0, 0.05))


async def huge(client: RawClient, text: bytes) -> None:
    client.send(frame(TEXT, text * 50, declare=10_000_000))
    await client.until_close()


async def flood(client: RawClient, text: bytes) -> None:
    client.send(*[frame(PING, b"x" * 100)] * 5000)
    await client.until_close()


async def shout(client: RawClient, text: bytes) -> None:
    client.send(*[frame(TEXT, b'{"type":"ping"}')] * 1500)
    await client.until_close()


async def babble(client: RawClient, text: bytes) -> None:
    client.send(*[frame(TEXT, b"nonsense")] * 100)
    await client.until_close()


ACTS = {
    "never_read": never_read,
    "vanish": vanish,
    "huge": huge,
    "flood": flood,
    "shout": shout,
    "babble": babble,
}


async def test_the_hostile_harm_nobody_else():
    """Among 80 broken, flooding, silent and vanishing clients, everybody else is served in time."""
    kinds = [*ACTS, "half", "garbage"] * 10
    random.shuffle(kinds)
    async with serving(handshake_timeout_s=0.4) as server:
        await speak(server)
        crowd = asyncio.gather(*(hostile(server, kind) for kind in kinds))
        async with asyncio.timeout(20), httpx.AsyncClient(base_url=server.url) as http:
            endings = await asyncio.gather(*(speak(server) for _ in range(10)))
            began = time.monotonic()
            assert (await http.get("/healthz")).status_code == 200
            assert time.monotonic() - began < 0.5
            await crowd
        assert {done["reason"] for done in endings} == {"completed"}
        assert all(done["metrics"]["within_budget"] for done in endings)
        await nothing_left(server)


async def test_a_client_that_never_reads_costs_bounded_memory_and_synthesis():
    """Its audio waits in the session, not in buffers; the engine is held by its credit."""
    async with serving(session=SessionOptions(max_text_chars=100_000)) as server:
        client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        client.send(handshake())
        await client.response()
        text = json.dumps({"type": "text", "ctx": "c", "text": HELLO * 200}).encode()
        client.send(frame(TEXT, text))
        await asyncio.sleep(0.7)
        assert server._doorman.waiting_bytes < 65_536
        produced = server.metrics.registry.get_sample_value("rtts_encode_seconds_count")
        # Twelve minutes of text; the engine made the lead and not much more, in pieces of 80 ms.
        assert produced < 20.0 / 0.08
        client.reset()
        await nothing_left(server)


async def test_a_slow_consumer_is_disconnected():
    """A client that takes nothing for too long gets 4408, as far as it can be told."""
    options = SessionOptions(slow_consumer_s=0.5, resume_window_s=0.0)
    async with serving(session=options) as server:
        client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        client.send(handshake())
        await client.response()
        start = {"type": "start", "ctx": "c", "max_lead_ms": 0, "format": {"codec": "pcm_s16le"}}
        client.send(frame(TEXT, json.dumps(start).encode()))
        client.send(
            frame(TEXT, json.dumps({"type": "text", "ctx": "c", "text": HELLO * 30}).encode())
        )
        await eventually(lambda: server._doorman.waiting_bytes > 0)
        await eventually(lambda: server._doorman.connections == 0, 6)
        errors = server.metrics.registry.get_sample_value(
            "rtts_errors_total", {"code": "slow_consumer"}
        )
        assert errors == 1  # counted, said or not
        await nothing_left(server)
        client.reset()


@pytest.mark.parametrize("seed", range(3))
async def test_any_coming_and_going_leaves_nothing(seed):
    """Random clients that speak, cancel, vanish, close and resume: no session, route or place stays."""
    chance = random.Random(seed)

    async def one(server: Server) -> None:
        tokens: list[str] = []
        for _ in range(4):
            # A client that does not read does not see the answer to its close either.
            async with connect(server.ws_url, close_timeout=0.2) as ws:
                with contextlib.suppress(ConnectionClosed, TimeoutError):
                    hello = json.loads(await ws.recv())
                    if tokens and chance.random() < 0.5:
                        resume = {
                            "type": "resume",
                            "token": tokens.pop(),
                            "acks": {"a": chance.randrange(9)},
                        }
                        await ws.send(json.dumps(resume))
                    tokens.append(hello["resume"]["token"])
                    for _ in range(chance.randrange(1, 8)):
                        await ws.send(json.dumps(message(chance)))
                        if chance.random() < 0.5:
                            await asyncio.wait_for(ws.recv(), 0.02)
                    if chance.random() < 0.5:
                        ws.transport.abort()

    async with serving() as server:
        async with asyncio.timeout(30):
            await asyncio.gather(*(one(server) for _ in range(12)))
        await nothing_left(server)
        await speak(server)


def message(chance: random.Random) -> dict[str, Any]:
    ctx = chance.choice("ab")
    return chance.choice(
        [
            {"type": "text", "ctx": ctx, "text": HELLO[: chance.randrange(70)]},
            {"type": "text", "ctx": ctx, "text": HELLO, "end": True},
            {
                "type": "start",
                "ctx": ctx,
                "format": {"codec": chance.choice(["opus", "pcm_s16le", "mulaw"])},
            },
            {"type": "flush", "ctx": ctx},
            {"type": "end", "ctx": ctx},
            {"type": "cancel", "ctx": ctx, "played_ms": chance.randrange(2000)},
            {"type": "cancel", "all": True},
            {"type": "stats", "interval_ms": 100},
            {"type": "ping", "t": 1},
            {"type": "close"},
        ]
    )


async def test_an_engine_that_dies_comes_back():
    """Its contexts fail typed, the sockets live on, /readyz follows, and speech works again."""
    host = engine(die_after_chunks=80)
    async with serving(host) as server, httpx.AsyncClient(base_url=server.url) as http:
        async with connect(server.ws_url) as ws:
            await ws.recv()
            await ws.send(json.dumps({"type": "text", "ctx": "c", "text": HELLO * 5}))
            done: dict[str, Any] = {}
            while done.get("type") != "done":
                received = await asyncio.wait_for(ws.recv(), 5)
                done = {} if isinstance(received, bytes) else json.loads(received)
            assert done["reason"] == "error" and done["code"] == "engine_dead"
            assert (await http.get("/readyz")).status_code == 503
            async with asyncio.timeout(10):
                await server.ready()
            assert (await http.get("/readyz")).status_code == 200
            await ws.send(json.dumps({"type": "ping", "t": 7}))
            assert json.loads(await ws.recv())["t"] == 7
        assert (await speak(server, "Hello there. "))["reason"] == "completed"
        metrics = (await http.get("/metrics")).text
        assert "rtts_engine_restarts_total 1.0" in metrics


async def test_the_figures_agree_with_what_clients_see():
    """First-packet latency in `first_audio`, `done`, stats and metrics is one figure, and true."""
    async with serving() as server, connect(server.ws_url) as ws:
        await ws.recv()
        seen, said = [], []
        for n in range(10):
            ctx = f"c{n}"
            began = time.monotonic()
            await ws.send(
                json.dumps({"type": "text", "ctx": ctx, "text": "Hello there. ", "end": True})
            )
            heard = None
            while True:
                received = await ws.recv()
                if isinstance(received, bytes):
                    heard = heard or time.monotonic() - began
                    continue
                event = json.loads(received)
                if event["type"] == "first_audio":
                    said.append(event)
                if event["type"] == "done":
                    assert event["metrics"]["ttfa_ms"] == said[-1]["ttfa_ms"]
                    break
            seen.append(1000 * heard)
        for client_ms, first in zip(seen, said, strict=True):
            assert first["ttfa_ms"] <= client_ms
            stages = ("split_ms", "queue_ms", "model_ms", "encode_ms", "send_ms")
            assert sum(first[stage] for stage in stages) == pytest.approx(
                first["ttfa_ms"], abs=0.01
            )
        name, labels = "rtts_first_packet_seconds_sum", {"codec": "opus", "voice_kind": "preset"}
        total = server.metrics.registry.get_sample_value(name, labels)
        assert total == pytest.approx(sum(first["ttfa_ms"] for first in said) / 1000, abs=1e-4)
