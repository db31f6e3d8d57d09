"""Foreign surfaces at the door and behind it: who is let in, how no is said, what a client costs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from dataclasses import replace

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rtts.engine.interface import CancelUtterance, UtteranceFailed, Voice
from rtts.engine.tone import ToneOptions
from rtts.errors import ConfigError
from rtts.protocol.dialect import Hangup, Listing, Reply, Route, SocketDialect
from rtts.protocol.events import Auth, Cancel, Done, Error, Text
from rtts.protocol.surfaces import RouteTable
from rtts.server import surfaces
from rtts.session import SessionOptions
from rtts.voices.aliases import AliasOptions
from tests.server.raw import RawClient, eventually, frame, handshake
from tests.server.rig import InlineEngine, ready, started, talking

SPEECH = "/v1/audio/speech"
TEXT = "Hello there, this is a test. It goes on for a while. "
KEYS = {"api_keys": ("k-one",)}


def http(server, **rest) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, **rest)


def ws(server, path="/tts/websocket", **rest):
    return connect("ws" + server.url.removeprefix("http") + path, **rest)


def generation(text=TEXT, ctx="a", **fields) -> str:
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    fields = {"context_id": ctx, "transcript": text, "voice": "x", "output_format": raw} | fields
    return json.dumps(fields)


def request(text=TEXT, **fields) -> dict:
    return {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"} | fields


def metric(server, name, **labels):
    return server.metrics.registry.get_sample_value(name, labels) or 0.0


async def nothing_left(server) -> None:
    """No connection, session, place or utterance stays."""
    await eventually(lambda: server._doorman.connections == 0)
    await eventually(lambda: server._hub.sessions == 0)
    await eventually(lambda: server._doorman.places.taken == 0)
    assert server._doorman._keyless.taken == 0
    await eventually(lambda: not server._hub._routes)
    assert server.service.live_utterances == 0


async def fail(server, engine) -> None:
    """The utterance that runs fails."""
    await eventually(lambda: server.service.live_utterances == 1)
    [utterance_id] = server._hub._routes
    engine.say([UtteranceFailed(utterance_id, "utterance_failed", "it broke", False)])


def posted(body: dict, *more: str) -> bytes:
    data = json.dumps(body).encode()
    head = [f"POST {SPEECH} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(data)}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


# --- who is let in -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer k-one"},
        {"authorization": "Token k-one"},
        {"x-api-key": "k-one"},
        {"xi-api-key": "k-one"},
    ],
)
async def test_each_way_to_show_a_key(headers):
    """Every surface takes the key where its clients put it."""
    async with ready(**KEYS) as server, http(server, headers=headers) as client:
        assert (await client.post(SPEECH, json=request())).status_code == 200
        async with ws(server, additional_headers=headers) as socket:
            await socket.send(generation())
            assert json.loads(await socket.recv())["type"] == "chunk"


async def test_keys_in_the_query_where_the_surface_has_them():
    """A browser's Cartesia client has no headers; OpenAI's API has no key in the query."""
    async with ready(**KEYS) as server, http(server) as client:
        async with ws(server, "/tts/websocket?api_key=k-one&cartesia_version=2024-06-10"):
            pass
        assert (await client.post(SPEECH + "?api_key=k-one", json=request())).status_code == 401


async def test_no_is_said_at_the_handshake_in_the_surface_s_own_words():
    """401 with a body the client's SDK can read, and nothing was accepted."""
    async with ready(**KEYS) as server, http(server) as client:
        for path in (SPEECH, SPEECH):
            response = await client.post(path, json=request(), headers={"x-api-key": "k-two"})
            assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
            assert response.json()["error"]["code"] == "unauthorized"
        for headers in ({}, {"x-api-key": "k-two"}, {"origin": "http://127.0.0.1"}):
            with pytest.raises(InvalidStatus) as refused:
                await ws(server, additional_headers=headers)
            assert refused.value.response.status_code in (401, 403)
            assert json.loads(refused.value.response.body)["error_code"]
        assert metric(server, "rtts_refusals_total", code="unauthorized") >= 4
        await nothing_left(server)


async def test_a_server_that_loads_says_when_to_come_back():
    """503 and Retry-After before it is ready, in the surface's shape."""
    async with started(InlineEngine(starts=False)) as server, http(server) as client:
        response = await client.post(SPEECH, json=request())
        assert response.status_code == 503 and int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["type"] == "server_error"
        assert (await client.get("/v1/audio/voices")).status_code == 503
        with pytest.raises(InvalidStatus) as refused:
            await ws(server)
        assert refused.value.response.status_code == 503
        assert int(refused.value.response.headers["retry-after"]) >= 1


async def test_places_are_shared_with_everybody():
    """A speaking request and a socket each take one of the places; the next is refused with 503."""
    engine = InlineEngine()
    async with ready(engine, max_sessions=2) as server, http(server) as client:
        engine.hold()
        waiting = asyncio.create_task(client.post(SPEECH, json=request()))
        await eventually(lambda: server._doorman.places.taken == 1)
        async with ws(server):
            assert server._doorman.connections == 2
            response = await client.post(SPEECH, json=request())
            assert response.status_code == 503 and response.json()["error"]["code"] == "overloaded"
            engine.release()
            assert (await waiting).status_code == 200
        await nothing_left(server)


async def test_pages_of_other_sites_are_refused_and_allowed_ones_may_read():
    """The same gate as everywhere; an allowed origin gets its header on speech and on refusals."""
    async with (
        ready(allowed_origins=("https://app.example.com",)) as server,
        http(server) as client,
    ):
        evil = await client.post(SPEECH, json=request(), headers={"origin": "https://evil.example"})
        assert evil.status_code == 403 and "access-control-allow-origin" not in evil.headers
        for body, status in ((request(), 200), (request(""), 400)):
            nice = {"origin": "https://app.example.com"}
            response = await client.post(SPEECH, json=body, headers=nice)
            assert response.status_code == status
            assert response.headers["access-control-allow-origin"] == "https://app.example.com"
        asked = {"access-control-request-method": "POST", "origin": "https://app.example.com"}
        asked["access-control-request-headers"] = "content-type,authorization,x-stainless-lang"
        assert (await client.options(SPEECH, headers=asked)).status_code == 200


async def test_a_table_that_names_no_voice_is_a_wrong_setting():
    """The server says which alias is wrong and never becomes ready."""
    async with started(aliases=AliasOptions(voices={"alloy": "nobody"})) as server:
        with pytest.raises(ConfigError, match=r"aliases\.voices.*alloy.*nobody"):
            await server.ready()


async def test_voices_come_and_go():
    """Open sockets know of new voices; a table may name a voice of a user, which is gone today."""
    aliases = AliasOptions(voices={"alloy": "tone-low"})
    async with ready(aliases=aliases) as server:
        surfaces, now = server._surfaces, server.service.capabilities
        house = surfaces._house  # as the dialect of an open socket has it
        anna = Voice(id="v_1", languages=("en",), licence="", name="Anna")
        surfaces.furnish(replace(now, voices=(*now.voices, anna), clones_voices=True))
        assert house.names.voice("Anna", or_default=False) == "v_1"
        fewer = tuple(voice for voice in now.voices if voice.id != "tone-low")
        surfaces.furnish(replace(now, voices=fewer, clones_voices=True))
        assert house.names.voice("alloy", or_default=False) is None
        with pytest.raises(ConfigError, match=r"aliases\.voices.*tone-low"):
            surfaces.furnish(replace(now, voices=fewer))


# --- speech over HTTP ----------------------------------------------------------------------------


async def test_the_first_piece_leaves_before_the_rest_exists():
    """The head and the first audio are there while the engine rests."""
    engine = InlineEngine()
    async with ready(engine) as server:
        client = await RawClient.connect(server.url)
        engine.hold()
        client.send(posted(request()))
        await eventually(lambda: server.service.live_utterances == 1)
        engine.say(engine._core.step(time.monotonic())[:2])
        status, head = await client.response()
        assert status == 200 and "transfer-encoding: chunked" in head.lower()
        async with asyncio.timeout(1):
            assert await client.reader.readexactly(500)
        client.reset()
        engine.release()
        await nothing_left(server)


async def test_a_client_that_goes_has_cancelled():
    """A dropped request stops the engine."""
    engine = InlineEngine(ToneOptions(real_time_factor=0.2))
    async with ready(engine) as server:
        client = await RawClient.connect(server.url)
        client.send(posted(request(TEXT * 20)))
        await client.response()
        client.writer.close()
        await nothing_left(server)
        assert any(isinstance(command, CancelUtterance) for command in engine.commands)
        assert metric(server, "rtts_streams_total", outcome="cancelled") == 1


async def test_a_client_that_never_reads_costs_little_and_is_let_go():
    """What it does not take is not made, and after a while it is cut off."""
    options = SessionOptions(slow_consumer_s=1.0)
    async with ready(session=options) as server:
        client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        client.send(posted(request(TEXT * 600, response_format="wav")))  # half an hour
        await eventually(lambda: server._doorman.waiting_bytes > 0)
        await asyncio.sleep(0.3)
        made = metric(server, "rtts_encode_seconds_count")
        assert server._doorman.waiting_bytes < 16_384 and made < 1000
        await eventually(lambda: server._doorman.connections == 0, 3)
        assert metric(server, "rtts_errors_total", code="slow_consumer") == 1
        client.reset()
        await nothing_left(server)


async def test_a_slow_reader_gets_everything():
    """Back pressure loses nothing: a minute of audio through a small window is whole."""
    async with ready() as server, http(server) as client:
        whole = (await client.post(SPEECH, json=request(TEXT * 20))).content
        slow = await RawClient.connect(server.url, rcvbuf=4096, limit=2048)
        slow.send(posted(request(TEXT * 20), "Connection: close"))
        await slow.response()
        got, piece = b"", b"x"
        while piece:
            piece = await slow.reader.read(30_000)
            got += piece
            await asyncio.sleep(0)
        assert unchunked(got) == whole and len(whole) > 2_000_000
        slow.reset()
        await nothing_left(server)


def unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole


async def test_a_failure_before_the_first_audio_has_a_status():
    """Nothing was said yet: 500 and words."""
    engine = InlineEngine()
    async with ready(engine) as server, http(server) as client:
        engine.hold()
        asking = asyncio.create_task(client.post(SPEECH, json=request()))
        await fail(server, engine)
        response = await asking
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "utterance_failed"
        engine.release()
        await nothing_left(server)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_a_failure_after_it_cuts_the_body_off(stream_format):
    """A body that is not whole does not end as if it were; as events it says why first."""
    engine = InlineEngine()
    async with ready(engine) as server:
        client = await RawClient.connect(server.url)
        engine.hold()
        client.send(posted(request(stream_format=stream_format)))
        await eventually(lambda: server.service.live_utterances == 1)
        engine.say(engine._core.step(time.monotonic())[:2])
        await client.response()
        await fail(server, engine)
        body = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := await client.reader.read(65_536):
                body += piece
        assert len(body) > 1000 and not body.endswith(b"0\r\n\r\n")
        assert (b"utterance_failed" in body) == (stream_format == "sse")
        client.reset()
        engine.release()
        await nothing_left(server)


async def test_requests_share_a_connection():
    """Keep-alive and pipelining: each request is answered, in order."""
    async with ready() as server:
        client = await RawClient.connect(server.url)
        client.send(posted(request("One.")), posted(request("")), posted(request("Three.")))
        for status in (200, 400, 200):
            got, head = await client.response()
            assert got == status
            if "content-length" in head:
                await client.reader.readexactly(int(head.split("content-length: ")[1].split()[0]))
            else:
                await client.reader.readuntil(b"\r\n0\r\n\r\n")
        client.reset()
        await nothing_left(server)


async def test_who_leaves_with_requests_in_the_queue_has_cancelled_all():
    """Pipelined requests are not spoken to nobody, and back pressure reaches the one that speaks."""
    async with ready() as server:
        client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        client.send(*[posted(request(TEXT * 200, response_format="wav"))] * 3)
        await eventually(lambda: server._doorman.waiting_bytes > 0)
        client.reset()
        await nothing_left(server)


async def test_a_slow_reader_with_another_request_behind_gets_both():
    """What comes behind does not take away the news that the first can be written on."""
    async with ready() as server, http(server) as client:
        whole = (await client.post(SPEECH, json=request(TEXT * 10))).content
        slow = await RawClient.connect(server.url, rcvbuf=4096, limit=2048)
        slow.send(posted(request(TEXT * 10)), posted(request(TEXT * 10), "Connection: close"))
        got, piece = b"", b"x"
        while piece:
            piece = await slow.reader.read(30_000)
            got += piece
            await asyncio.sleep(0)
        slow.reset()
        assert got.count(b"HTTP/1.1 200") == 2 and len(got) > 2 * len(whole)
        await nothing_left(server)


async def test_a_body_that_does_not_come(monkeypatch):
    """A request that never ends is answered 408 and holds no place; one that is left, neither."""
    monkeypatch.setattr(surfaces, "BODY_TIMEOUT_S", 0.1)
    async with ready() as server:
        head = f"POST {SPEECH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n".encode()
        client = await RawClient.connect(server.url)
        client.send(head + b"{")
        assert (await client.response())[0] == 408
        client.reset()
        client = await RawClient.connect(server.url)
        client.send(head + b"{")
        await eventually(lambda: server._doorman.places.taken == 1)
        client.reset()
        await nothing_left(server)


async def test_bodies_in_pieces_and_on_request():
    """Chunked requests and clients that wait for 100 Continue are served."""
    async with ready() as server, http(server) as client:
        data = json.dumps(request()).encode()

        async def pieces():
            for at in range(0, len(data), 10):
                yield data[at : at + 10]

        assert (await client.post(SPEECH, content=pieces())).status_code == 200
        patient = await RawClient.connect(server.url)
        head = [f"POST {SPEECH} HTTP/1.1", "Host: 127.0.0.1", "Expect: 100-continue"]
        head.append(f"Content-Length: {len(data)}")
        patient.send("\r\n".join(head).encode() + b"\r\n\r\n")
        assert (await patient.response())[0] == 100
        patient.send(data)
        assert (await patient.response())[0] == 200
        patient.reset()
        await nothing_left(server)


async def test_a_client_of_http_1_0():
    """The body is the audio, without chunks, and ends with the connection; errors have a length."""
    async with ready() as server, http(server) as client:
        whole = (await client.post(SPEECH, json=request())).content
        for body, status in ((request(), 200), (request(""), 400)):
            old = await RawClient.connect(server.url)
            old.send(posted(body).replace(b"HTTP/1.1", b"HTTP/1.0"))
            got, head = await old.response()
            rest = await old.reader.read()
            assert got == status and "transfer-encoding" not in head.lower()
            assert rest == whole if status == 200 else json.loads(rest)["error"]
            old.reset()
        await nothing_left(server)


async def test_a_server_that_stops_says_so():
    """A request that has heard nothing yet gets 503."""
    engine = InlineEngine()
    async with ready(engine) as server, http(server) as client:
        engine.hold()
        asking = asyncio.create_task(client.post(SPEECH, json=request()))
        await eventually(lambda: server.service.live_utterances == 1)
        server._hub.stop_all()
        response = await asking
        assert response.status_code == 503 and response.json()["error"]["code"] == "shutting_down"
        engine.release()


async def test_events_say_that_the_server_stops():
    """Who reads events is told why they end, before the body is cut off."""
    engine = InlineEngine(ToneOptions(pause_after_chunks=2, pause_s=5.0))
    async with ready(engine) as server, http(server) as client:
        asked = client.stream("POST", SPEECH, json=request(stream_format="sse"))
        async with asked as response:
            pieces = response.aiter_bytes()
            got = await anext(pieces)
            server._hub.stop_all()
            with pytest.raises(httpx.RemoteProtocolError):
                async for piece in pieces:
                    got += piece
        assert b'"type":"error"' in got and b"shutting_down" in got


async def test_a_long_text_is_spoken_whole():
    """A request may hold ten times what a socket of rtts.v1 buffers, and no more."""
    async with ready() as server, http(server, timeout=30) as client:
        response = await client.post(SPEECH, json=request(TEXT * 100, response_format="mp3"))
        assert response.status_code == 200 and len(response.content) > 1_000_000
        response = await client.post(SPEECH, json=request(TEXT * 1000))
        assert response.status_code == 413
        response = await client.post(SPEECH, content=b"x" * 5_000_000)
        assert response.status_code == 413


async def test_draining_lets_a_reply_finish():
    """A response that has begun comes to its end; the next request is told to go elsewhere."""
    engine = InlineEngine(ToneOptions(pause_after_chunks=2, pause_s=0.5))
    async with ready(engine) as server, http(server) as client:
        async with client.stream("POST", SPEECH, json=request()) as response:
            pieces = response.aiter_bytes()
            got = await anext(pieces)
            server.service.is_draining = True
            server._hub.drain(5.0)
            other = await client.post(SPEECH, json=request())
            assert other.status_code == 503
            async for piece in pieces:
                got += piece
        assert len(got) > 100_000
        await nothing_left(server)


async def test_records_and_metrics_say_which_surface():
    """Connections and utterances are told apart by the words their clients use."""
    async with ready() as server, http(server) as client:
        seen = []
        server._book._publish = seen.append
        await client.post(SPEECH, json=request())
        async with ws(server) as socket:
            await socket.send(generation("Hi."))
            while json.loads(await socket.recv())["type"] != "done":
                pass
        async with talking(server) as talk:
            await talk.say("text", ctx="c", text="Hi.", end=True)
            await talk.until("done")
        await eventually(lambda: len(seen) == 3)
        assert [record["surface"] for record in seen] == ["openai", "cartesia", "rtts.v1"]
        opened = "rtts_connections_opened_total"
        assert metric(server, opened, protocol="openai") == 1
        assert metric(server, opened, protocol="cartesia") == 1


# --- sockets -------------------------------------------------------------------------------------


async def test_a_dropped_socket_is_a_cancel():
    """However it goes: nobody can resume, so nothing is kept."""
    engine = InlineEngine(ToneOptions(real_time_factor=0.2))
    async with ready(engine) as server:
        for polite in (True, False):
            socket = await ws(server)
            await socket.send(generation(TEXT * 20))
            await socket.recv()
            if polite:
                await socket.close()
            else:
                socket.transport.abort()
            await nothing_left(server)
        assert metric(server, "rtts_streams_total", outcome="cancelled") == 2


async def test_a_socket_that_never_reads_costs_little():
    """Markers go unanswered: the engine makes the lead and no more."""
    async with ready() as server:
        client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        client.send(handshake("/tts/websocket"))
        await client.response()
        client.send(frame(1, generation(TEXT * 100).encode()))
        await asyncio.sleep(0.5)
        assert server._doorman.waiting_bytes < 65_536
        assert metric(server, "rtts_encode_seconds_count") < 20.0 / 0.08
        client.reset()
        await nothing_left(server)


async def test_binary_and_broken_messages():
    """A binary message closes with 1003; broken ones get errors, and too many of them 1008."""
    async with ready() as server:
        async with ws(server) as socket:
            await socket.send(b"\0")
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd.code == 1003
        async with ws(server) as socket:
            for _ in range(20):
                await socket.send("nonsense")
            kinds = []
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    kinds.append(json.loads(await socket.recv())["type"])
            assert closed.value.rcvd.code == 1008 and set(kinds) == {"error"}
        await nothing_left(server)


async def test_offered_subprotocols_are_selected():
    """Clients that offer one fail unless it is taken."""
    async with ready() as server, ws(server, subprotocols=["whatever"]) as socket:
        assert socket.subprotocol == "whatever"


async def test_many_words_at_once():
    """A client that sends a whole reply word by word, as fast as it can, is spoken to in full."""
    async with ready() as server, ws(server, close_timeout=0.1) as socket:
        words = (TEXT * 60).split()
        for word in words:
            await socket.send(generation(word + " ", **{"continue": True}))
        await socket.send(generation(""))
        heard = 0
        for _ in range(40):  # five seconds of lead are sent at once
            message = json.loads(await socket.recv())
            assert message["type"] == "chunk"
            heard += len(base64.b64decode(message["data"]))
        assert len(words) > 600 and heard > 100_000


# --- what no surface of ours does yet, and others will -------------------------------------------


class Odd(SocketDialect):
    """Takes its key in a message, echoes, counts its own time, and hangs up when asked."""

    name = "odd"
    takes_key_in_band = True

    @classmethod
    def refusal(cls, error):
        return Reply(status=418, body=error.code.encode())

    def opened(self, now):
        return ("hello",)

    def receive(self, data, now):
        word, _, rest = data.decode().partition(" ")
        match word:
            case "key":
                return (Auth(token=rest), "thanks")
            case "speak":
                return (Text(ctx="c", text=rest, end=True),)
            case "wrong":
                return (Cancel(), "after")
            case "later":
                self.deadline = now + 0.05
                return ()
            case "next":
                self.turns = 2
                return (Text(ctx="t2", text=rest, end=True),)
            case "flood":
                return ("x" * 5000,) * 300
        return (f"bye {rest}", Hangup(4321, rest), "never")

    def send(self, message):
        if isinstance(message, Error):
            return (f"error {message.code}",)
        if isinstance(message, Done) and message.ctx.startswith("t"):
            self.turns -= 1
            again = Text(ctx=f"t{self.turns}", text="Again.", end=True)
            return ("turn", again) if self.turns else ("over", Hangup())
        return (f"said {type(message).__name__}",)

    def timer(self, now):
        self.deadline = None
        return ("rang",)


@pytest.fixture
def odd(monkeypatch):
    routes = RouteTable(
        [
            Route("WS", "/odd/{who}/x", Odd),
            Route("GET", "/odd", Listing(Odd, lambda request, house: Reply(status=200, body=b"o"))),
        ]
    )
    monkeypatch.setattr(surfaces, "RouteTable", lambda: routes)


async def test_a_key_in_the_first_message(odd):
    """Who has none at the handshake is let in and has to send one soon; a wrong one ends it."""
    async with ready(**KEYS, auth_timeout_s=0.2) as server:
        async with ws(server, "/odd/me/x") as socket:
            await socket.send("key k-one")
            assert [await socket.recv(), await socket.recv()] == ["hello", "thanks"]
            assert server._doorman.places.taken == 1
        for first in ("key k-two", "speak hi", None):
            async with ws(server, "/odd/me/x") as socket:
                if first is not None:
                    await socket.send(first)
                assert (await socket.recv()).startswith("error ")
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd.code == 1008
        await nothing_left(server)


async def test_steps_are_carried_out_in_order(odd):
    """Frames, messages, deadlines and the end, as the dialect says them."""
    async with ready() as server, ws(server, "/odd/me/x") as socket:
        assert await socket.recv() == "hello"
        await socket.send("wrong")
        assert {await socket.recv(), await socket.recv()} == {"after", "error bad_request"}
        await socket.send("later")
        assert await socket.recv() == "rang"
        await socket.send("speak Hi.")
        assert await socket.recv() == "said Started"
        heard = []
        while not heard or heard[-1] != "said Done":
            heard.append(await socket.recv())
        assert "said Audio" in heard
        await socket.send("end now")
        assert await socket.recv() == "bye now"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "now")
        await nothing_left(server)


async def test_what_the_session_says_can_begin_something(odd):
    """A serial protocol starts its next utterance at the end of the last, and hangs up at its end."""
    async with ready() as server, ws(server, "/odd/me/x") as socket:
        await socket.send("next Hi.")
        heard = [frame async for frame in socket]
        assert [f for f in heard if not f.startswith("said")] == ["hello", "turn", "over"]
        assert heard.count("said Started") == 2
        await nothing_left(server)


async def test_an_idle_socket_ends_without_a_word():
    """Close 1000 and no error: the next utterance simply opens another one."""
    async with ready(session=SessionOptions(idle_timeout_s=0.2)) as server, ws(server) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd.code == 1000
        assert metric(server, "rtts_errors_total", code="idle_timeout") == 1


async def test_a_client_that_asks_and_does_not_read_is_let_go(odd):
    """Answers do not pile up without bound."""
    async with ready() as server:
        client = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        client.send(handshake("/odd/me/x"))
        await client.response()
        client.send(*[frame(1, b"flood")] * 10)
        await eventually(lambda: server._doorman.connections == 0)
        client.reset()


async def test_paths_have_places(odd):
    """`{name}` is one segment, decoded; nothing else matches."""
    table = surfaces.RouteTable()
    assert table.find("WS", "/odd/a%2Fb/x")[1] == {"who": "a/b"}
    for path in ("/odd//x", "/odd/a/b/x", "/odd/a", "/odd/a/x/"):
        assert table.find("WS", path) is None
    async with ready() as server, http(server) as client:
        assert (await client.get("/odd")).text == "o"
        assert (await client.post("/odd")).status_code == 404
