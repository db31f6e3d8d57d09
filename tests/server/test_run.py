"""Starting, draining, signals and exit: a server in process, and a server as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rtts.engine.tone import ToneOptions
from rtts.errors import ConfigError
from rtts.server import Server, ServerOptions, running_server
from rtts.session import SessionOptions
from tests.server.raw import TEXT, RawClient, eventually, frame, handshake
from tests.server.rig import InlineEngine, Talk, ready, started, talking

HELLO = "Hello there, this is a test. "
# About real time: an utterance of two segments takes seconds.
SLOW = ToneOptions(real_time_factor=0.25)

SCRIPT = """
import asyncio, logging, sys
from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.server import ServerOptions, new_event_loop, serve
logging.basicConfig(stream=sys.stderr, level=logging.INFO)
options = ServerOptions(
    port=0, drain_timeout_s=float(sys.argv[1]), prewarm_voices=(sys.argv[3],)
)
engine = LocalEngine(lambda: ToneEngine(ToneOptions(real_time_factor=float(sys.argv[2]))))
say = lambda word: lambda server: print(word, server.ws_url, flush=True)
with asyncio.Runner(loop_factory=new_event_loop) as runner:
    sys.exit(runner.run(serve(options, engine, on_listening=say("listening"), on_ready=say("ready"))))
"""


# --- in process ----------------------------------------------------------------------------------


async def test_running_server_is_ready_and_cleans_up():
    """Inside the block it is ready; after it the engine is closed and the port is free."""
    engine = InlineEngine()
    async with running_server(ServerOptions(port=0), engine) as server:
        assert server.is_ready and server.url.startswith("http://127.0.0.1:")
        assert server.ws_url == server.url.replace("http", "ws") + "/v1/tts"
        port = int(server.url.rsplit(":", 1)[1])
    assert engine.is_closed
    async with running_server(ServerOptions(port=port), InlineEngine()):
        pass


async def test_a_wrong_setting_is_said_before_anything_starts():
    """Checks come first; a port in use comes before the engine is started."""
    with pytest.raises(ConfigError, match=r"server\.host"):
        Server(ServerOptions(host="0.0.0.0"), InlineEngine())
    with pytest.raises(ConfigError, match=r"api_keys"):
        Server(ServerOptions(api_keys=("sha256:x",)), InlineEngine())
    async with ready() as server:
        port = int(server.url.rsplit(":", 1)[1])
        engine = InlineEngine()
        with pytest.raises(ConfigError, match=r"cannot listen on .* another server running"):
            async with running_server(ServerOptions(port=port), engine):
                pass
        assert engine._deliver is None and engine.is_closed


async def test_draining_lets_speech_finish():
    """goaway to all, running contexts finish, new ones and new sockets are refused, close 1012."""
    async with started(InlineEngine(SLOW)) as server:
        await server.ready()
        async with talking(server) as busy, talking(server) as idle, talking(server) as late:
            await busy.say("text", ctx="c", text=HELLO * 2, end=True)
            await busy.until("segment")
            draining = asyncio.create_task(server.shutdown(10.0))
            goaway, _ = await busy.until("goaway")
            assert goaway["reason"] == "draining" and goaway["deadline_ms"] == 10_000
            assert (await idle.closed())[0] == 1012
            assert (await late.closed())[0] == 1012
            await busy.say("text", ctx="d", text=HELLO)
            error, _ = await busy.until("error")
            assert error["code"] == "shutting_down" and error["ctx"] == "d"
            async with httpx.AsyncClient(base_url=server.url) as http:
                response = await http.get("/readyz")
                assert response.status_code == 503 and response.json()["reasons"] == ["draining"]
                assert "rtts_draining 1.0" in (await http.get("/metrics")).text
            with pytest.raises(InvalidStatus) as refused:
                await connect(server.ws_url)
            assert refused.value.response.status_code == 503
            assert json.loads(refused.value.response.body)["error"]["code"] == "shutting_down"
            code, _, messages = await busy.closed()
            ends = [m for m in messages if isinstance(m, dict) and m["type"] == "done"]
            assert code == 1012
            assert {end["ctx"]: end["reason"] for end in ends} == {"c": "completed", "d": "error"}
            began = time.monotonic()
            await draining
            assert time.monotonic() - began < 1.0


async def test_what_is_not_done_by_the_deadline_is_ended():
    """done with shutdown for what still runs, then the close."""
    async with started(InlineEngine(SLOW)) as server:
        await server.ready()
        async with talking(server) as talk:
            await talk.say("text", ctx="c", text=HELLO * 30, end=True)
            await talk.until("segment")
            began = time.monotonic()
            draining = asyncio.create_task(server.shutdown(0.3))
            code, _, messages = await talk.closed()
            done = next(m for m in messages if isinstance(m, dict) and m["type"] == "done")
            assert code == 1012 and done["reason"] == "shutdown"
            assert done["spoken"] + done["remaining"] == HELLO * 30
            await draining
            assert 0.25 < time.monotonic() - began < 1.5


async def test_draining_under_load():
    """Twenty live sockets: every context ends exactly once, every socket closes with 1012."""
    async with started(InlineEngine(ToneOptions(real_time_factor=0.002))) as server:
        await server.ready()
        async with contextlib.AsyncExitStack() as stack:
            talks = [await stack.enter_async_context(talking(server)) for _ in range(20)]
            for talk in talks:
                await talk.say("text", ctx="c", text=HELLO * 2, end=True)
            endings = asyncio.gather(*(talk.closed() for talk in talks))
            await asyncio.sleep(0.05)
            await server.shutdown(5.0)
            for code, _, messages in await endings:
                done = [m for m in messages if isinstance(m, dict) and m["type"] == "done"]
                assert code == 1012 and len(done) == 1 and done[0]["reason"] == "completed"
                seqs = [int.from_bytes(m[8:12]) for m in messages if isinstance(m, bytes)]
                assert seqs == list(range(done[0]["last_seq"] + 1))


async def test_a_client_that_never_reads_does_not_hold_up_the_end():
    """Its connection is dropped after the grace."""
    async with started() as server:
        await server.ready()
        client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        client.writer.transport.pause_reading()
        client.send(handshake())
        await eventually(lambda: server._doorman.connections == 1)
        start = {"type": "start", "ctx": "c", "max_lead_ms": 0, "format": {"codec": "pcm_s16le"}}
        client.send(frame(TEXT, json.dumps(start).encode()))
        client.send(
            frame(TEXT, json.dumps({"type": "text", "ctx": "c", "text": HELLO * 90}).encode())
        )
        await eventually(lambda: server._doorman.waiting_bytes > 0)
        began = time.monotonic()
        await server.shutdown(0.1)
        assert time.monotonic() - began < 7.0
        client.writer.transport.abort()


async def test_lost_sessions_are_not_waited_for():
    """Who is away when the server drains will not find it again."""
    async with started() as server:
        await server.ready()
        client = await RawClient.upgraded(server.url)
        await client.frame()
        client.reset()
        await eventually(lambda: server._hub._detached)
        began = time.monotonic()
        await server.shutdown(10.0)
        assert time.monotonic() - began < 1.0


async def test_stats_watchers_are_closed():
    """A feed does not hold up the end."""
    async with started() as server:
        await server.ready()
        ws = await connect("ws" + server.url[4:] + "/v1/stats")
        await ws.recv()
        began = time.monotonic()
        await server.shutdown(5.0)
        assert time.monotonic() - began < 1.0
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await ws.recv()
        assert closed.value.rcvd.code == 1012


def certificate(directory: Path) -> bool:
    """Make c.pem and k.pem; False where there is no openssl."""
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(directory / "k.pem"), "-out", str(directory / "c.pem")],
        capture_output=True,
    )  # fmt: skip
    return made.returncode == 0


async def test_tls(tmp_path):
    """With a certificate the same port speaks https and wss."""
    if not await asyncio.to_thread(certificate, tmp_path):
        pytest.skip("no openssl to make a certificate with")
    options = {"ssl_certfile": tmp_path / "c.pem", "ssl_keyfile": tmp_path / "k.pem"}
    trust = ssl.create_default_context(cafile=str(tmp_path / "c.pem"))
    async with ready(**options) as server:
        assert server.ws_url.startswith("wss://")
        async with httpx.AsyncClient(base_url=server.url, verify=trust) as http:
            assert (await http.get("/readyz")).json()["ready"]
        async with talking(server, ssl=trust) as talk:
            await talk.say("text", ctx="c", text=HELLO, end=True)
            assert (await talk.until("done"))[0]["reason"] == "completed"
    (tmp_path / "k.pem").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"server\.ssl_certfile"):
        async with ready(**options):
            pass


async def test_ipv6_and_localhost():
    """Names and IPv6 addresses can be listened on, and are shown as they are typed."""
    async with ready(host="localhost") as server, httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get("/healthz")).status_code == 200
    with contextlib.suppress(ConfigError):  # a machine without IPv6
        async with ready(host="::1") as server, httpx.AsyncClient(base_url=server.url) as http:
            assert server.url.startswith("http://[::1]:")
            assert (await http.get("/healthz")).status_code == 200


async def test_reasonless_silence_is_not_possible():
    """A server that cannot be ready tells whoever waits."""
    async with started(session=SessionOptions(voice="nobody")) as server:
        with pytest.raises(ConfigError):
            await server.ready()
        with pytest.raises(ConfigError):
            await server.ready()


# --- as a process --------------------------------------------------------------------------------


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ws_url = ""

    async def word(self) -> tuple[str, str]:
        line = await asyncio.wait_for(self.process.stdout.readline(), 20)
        word, url = line.decode().split()
        self.ws_url = url
        return word, url

    async def end(self) -> tuple[int, str]:
        """Exit status and what was written to stderr."""
        _, errors = await asyncio.wait_for(self.process.communicate(), 20)
        return self.process.returncode, errors.decode()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@contextlib.asynccontextmanager
async def process(drain_s: float = 10.0, rtf: float = 0.0, voice: str = "tone"):
    root = Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, str(drain_s), str(rtf), voice,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    wrapped = Process(child)
    try:
        assert (await wrapped.word())[0] == "listening"
        yield wrapped
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_exits_with_0(number):
    """The utterance in flight is finished; no traceback; status 0."""
    async with process(rtf=0.2) as server:
        assert (await server.word())[0] == "ready"
        async with connect(server.ws_url) as ws:
            talk = Talk(ws)
            await talk.say("text", ctx="c", text=HELLO * 2, end=True)
            await talk.until("segment")
            server.signal(number)
            await talk.until("goaway")
            assert (await talk.until("done"))[0]["reason"] == "completed"
            assert (await talk.closed())[0] == 1012
        status, errors = await server.end()
        assert status == 0
        assert "Traceback" not in errors and "rtts.utterance" in errors


async def test_a_second_signal_does_not_wait():
    """Twice Ctrl-C stops at once, without a traceback."""
    async with process(rtf=0.9) as server:
        await server.word()
        async with connect(server.ws_url) as ws:
            talk = Talk(ws)
            await talk.say("text", ctx="c", text=HELLO * 30, end=True)
            await talk.until("segment")
            server.signal(signal.SIGINT)
            await talk.until("goaway")
            began = time.monotonic()
            server.signal(signal.SIGINT)
            status, errors = await server.end()
            assert time.monotonic() - began < 3.0
            assert status == 1 and "Traceback" not in errors


async def test_a_setting_that_is_wrong_ends_the_process_with_its_message():
    """No traceback but the one error, and the engine is stopped."""
    async with process(voice="nobody") as server:
        status, errors = await server.end()
        assert status == 1
        assert (
            errors.count("Traceback") == 1
            and "ConfigError: server.prewarm_voices: 'nobody'" in errors
        )
        assert "never retrieved" not in errors


async def test_a_signal_before_it_is_ready():
    """A server that is still loading stops as cleanly."""
    async with process() as server:
        server.signal(signal.SIGTERM)
        status, errors = await server.end()
        assert status == 0 and "Traceback" not in errors
