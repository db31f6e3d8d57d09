"""The native protocol over real sockets: beginnings, refusals, endings."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from rtts.engine.interface import CancelUtterance, StartUtterance
from rtts.session import Session, SessionOptions
from tests.server.raw import CONT, TEXT, RawClient, eventually, frame
from tests.server.rig import InlineEngine, Talk, ready, started, talking

HELLO = "Hello there, this is a test. "


def offer(token: str) -> str:
    return "rtts.auth." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


async def refused(server, **rest):
    """Status, headers and error of a refused handshake."""
    with pytest.raises(InvalidStatus) as refusal:
        await connect(server.ws_url, **rest)
    response = refusal.value.response
    return response.status_code, response.headers, json.loads(response.body)["error"]


async def turned_away(server, origin, **rest):
    """Error, close code and reason of a handshake that a browser had to be told about."""
    rest.setdefault("subprotocols", ["rtts.v1"])
    async with talking(server, greeted=False, origin=origin, **rest) as talk:
        code, reason, messages = await talk.closed()
        assert len(messages) == 1 and messages[0]["fatal"]
        return messages[0], code, reason


# --- beginnings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "selected", "spoken"),
    [
        (["rtts.v1"], "rtts.v1", "rtts.v1"),
        (["rtts.v1.json"], "rtts.v1.json", "rtts.v1.json"),
        (["x", "rtts.v1.json", "rtts.v1"], "rtts.v1.json", "rtts.v1.json"),
        (None, None, "rtts.v1"),
        (["rtts.v1", offer("k")], "rtts.v1", "rtts.v1"),
        ([offer("k")], None, "rtts.v1"),
    ],
)
async def test_the_subprotocol_is_negotiated(offered, selected, spoken):
    """`ready` comes first and names the dialect; only what was offered is selected."""
    async with ready() as server, talking(server, greeted=False, subprotocols=offered) as talk:
        assert talk.ws.subprotocol == selected
        assert (await talk.next())["protocol"] == spoken


async def test_an_unknown_subprotocol_is_refused_with_the_list():
    """No overlap is HTTP 400 and says what is spoken."""
    async with ready() as server:
        status, _, error = await refused(server, subprotocols=["rtts.v2"])
        assert status == 400 and error["code"] == "bad_request"
        assert "rtts.v1" in error["message"] and "rtts.v1.json" in error["message"]


async def test_other_paths_have_no_websocket():
    """An unknown path is 404 as JSON."""
    async with ready() as server:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(server.ws_url + "s")
        assert refusal.value.response.status_code == 404
        assert json.loads(refusal.value.response.body)["error"]["code"] == "not_found"


async def test_speech_comes_back_on_both_dialects():
    """Text in, audio and `done` out; the audio is the same bytes in both."""
    sounds = []
    async with ready() as server:
        for dialect in ("rtts.v1", "rtts.v1.json"):
            async with talking(server, subprotocols=[dialect]) as talk:
                await talk.say("text", ctx="c", text=HELLO, end=True)
                done, before = await talk.until("done")
                assert done["reason"] == "completed"
                assert [m["type"] for m in before[:2] if isinstance(m, dict)] == [
                    "started",
                    "segment",
                ]
                if dialect == "rtts.v1":
                    sounds.append([m[24:] for m in before if isinstance(m, bytes)])
                else:
                    coded = [m["data"] for m in before if m["type"] == "audio"]
                    sounds.append([base64.b64decode(data) for data in coded])
    assert sounds[0] == sounds[1] and len(sounds[0]) > 10


# --- what clients do wrong -----------------------------------------------------------------------


async def test_binary_messages_close_with_1003():
    """A client sends text only."""
    async with ready() as server, talking(server) as talk:
        await talk.ws.send(b"\0")
        assert (await talk.closed())[0] == 1003
        await eventually(lambda: server._doorman.connections == 0)


async def test_a_message_over_the_limit_gets_its_error_then_1009():
    """Up to the limit a message is read; a little over it is refused typed; far over it, unread."""
    async with ready() as server:
        async with talking(server) as talk:
            await talk.ws.send('{"type":"ping","t":1' + " " * (65_536 - 21) + "}")
            assert (await talk.next())["type"] == "pong"
            await talk.ws.send(" " * 65_537)
            code, _, messages = await talk.closed()
            assert code == 1009
            assert messages[0]["code"] == "message_too_big" and messages[0]["fatal"]
        client = await RawClient.upgraded(server.url)
        client.send(frame(TEXT, b"x" * 1000, declare=10_000_000))
        assert (await client.until_close())[0] == 1009
        await client.close()
        client = await RawClient.upgraded(server.url)
        client.send(frame(TEXT, b"x" * 100_000, fin=False), frame(CONT, b"x" * 100_000))
        assert (await client.until_close())[0] == 1009
        await client.close()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("not json", "bad_json"),
        ("[]", "bad_json"),
        ('{"type":"nonsense"}', "unknown_type"),
        ('{"type":"text","ctx":"c"}', "bad_request"),
        ('{"type":"text","ctx":"c\\u0000","text":"x"}', "bad_request"),
        ('{"type":"flush","ctx":"nobody"}', "unknown_ctx"),
        ('{"type":"start","ctx":"c","voice":"nobody"}', "unknown_voice"),
        ('{"type":"resume","token":"r_wrong"}', "resume_failed"),
    ],
)
async def test_wrong_messages_get_their_error_and_nothing_else(message, code):
    """A typed, non-fatal error; the connection goes on and can speak."""
    async with ready() as server, talking(server) as talk:
        await talk.ws.send(message)
        error, _ = await talk.until("error")
        assert error["code"] == code and not error["fatal"]
        await talk.say("text", ctx="d", text=HELLO, end=True)
        assert (await talk.until("done"))[0]["reason"] in ("completed", "error")
        assert server.metrics.registry.get_sample_value("rtts_errors_total", {"code": code}) == 1


async def test_a_lone_surrogate_is_spoken_and_comes_back():
    """Half a character is legal JSON and harms nobody."""
    async with ready() as server, talking(server) as talk:
        await talk.ws.send('{"type":"text","ctx":"c","text":"Hello \\ud83d there. ","end":true}')
        segment, _ = await talk.until("segment")
        assert segment["text"] in ("Hello \ud83d there.", "Hello \ufffd there.")
        assert (await talk.until("done"))[0]["reason"] == "completed"


async def test_too_many_mistakes_close_with_4400():
    """A client that only makes mistakes is sent away."""
    async with ready() as server, talking(server) as talk:
        for _ in range(30):
            await talk.ws.send("nonsense")
        code, reason, messages = await talk.closed()
        assert code == 4400 and reason
        assert messages[-1]["fatal"] and not messages[0]["fatal"]


async def test_a_refusal_takes_less_than_5_ms():
    """The answer to a message that cannot be served comes at once."""
    async with ready() as server, talking(server) as talk:
        took = []
        for n in range(20):
            began = time.perf_counter()
            await talk.say("start", ctx=f"c{n}", voice="nobody")
            await talk.until("error")
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)
        assert sorted(took)[10] < 0.005


async def test_close_is_1000():
    """`close` ends the conversation without an error."""
    async with ready() as server, talking(server) as talk:
        await talk.say("close")
        assert (await talk.closed())[0] == 1000


async def test_an_idle_client_is_sent_away():
    """Deadlines of the session are kept by the shell's timer."""
    options = SessionOptions(idle_timeout_s=0.2)
    async with ready(session=options) as server, talking(server) as talk:
        began = time.monotonic()
        code, _, messages = await talk.closed()
        assert code == 4408 and messages[-1]["code"] == "idle_timeout"
        assert 0.15 < time.monotonic() - began < 1.0


async def test_a_timer_follows_a_deadline_that_moves_closer():
    """A context's short deadline is kept although the idle one was armed first."""
    async with ready() as server, talking(server) as talk:
        await asyncio.sleep(0.05)
        await talk.say("start", ctx="c", chunking={"max_delay_ms": 50})
        await talk.say("text", ctx="c", text="This has no punctuation at all but it is long")
        began = time.monotonic()
        await talk.until("segment")
        assert time.monotonic() - began < 0.5


# --- resume --------------------------------------------------------------------------------------


async def test_a_lost_socket_is_resumed_without_a_gap():
    """After a reset the new socket gets what was missed and the rest, each audio once."""
    engine = InlineEngine()
    async with ready(engine) as server:
        async with talking(server) as talk:
            token = talk.hello["resume"]["token"]
            await talk.say("start", ctx="c", max_lead_ms=0)
            await talk.say("text", ctx="c", text=HELLO * 3)
            while not isinstance(message := await talk.next(), bytes):
                pass
            talk.ws.transport.abort()
        await eventually(lambda: server._hub._detached)
        first = int.from_bytes(message[8:12])
        async with talking(server) as talk:
            await talk.say("resume", token=token, acks={"c": first})
            resumed, _ = await talk.until("resumed")
            assert resumed["session"] and resumed["contexts"]["c"]["next_n"] == 0
            await talk.say("end", ctx="c")
            done, before = await talk.until("done")
            seqs = [int.from_bytes(m[8:12]) for m in before if isinstance(m, bytes)]
            assert seqs == list(range(first + 1, done["last_seq"] + 1))
            assert done["reason"] == "completed"
            assert server._hub.sessions == 1


async def test_two_sockets_resume_the_same_session():
    """The later one has it; the former is told and closed with 4409."""
    async with ready() as server, contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(talking(server))
        token = first.hello["resume"]["token"]
        second = await stack.enter_async_context(talking(server))
        third = await stack.enter_async_context(talking(server))
        await second.say("resume", token=token)
        await second.until("resumed")
        code, _, messages = await first.closed()
        assert code == 4409 and messages[-1]["code"] == "session_replaced"
        await third.say("resume", token=token)
        await third.until("resumed")
        assert (await second.closed())[0] == 4409
        await third.say("text", ctx="c", text=HELLO, end=True)
        assert (await third.until("done"))[0]["reason"] == "completed"
        assert server._hub.sessions == 1
        await eventually(lambda: server._doorman.places.taken == 1)


async def test_a_socket_cannot_resume_itself_or_late():
    """One's own token is no lost session, and `resume` is a first message."""
    async with ready() as server:
        async with talking(server) as talk:
            await talk.say("resume", token=talk.hello["resume"]["token"])
            assert (await talk.until("error"))[0]["code"] == "resume_failed"
        async with talking(server) as talk:
            await talk.say("ping")
            await talk.until("pong")
            await talk.say("resume", token="r_x", id="m1")
            error, _ = await talk.until("error")
            assert error["code"] == "bad_request" and error["ref"] == "m1"


async def test_who_closes_on_purpose_does_not_come_back():
    """A clean close ends the session and cancels its speech; a lost socket does not."""
    engine = InlineEngine()
    async with ready(engine) as server:
        async with talking(server) as talk:
            await talk.say("text", ctx="c", text=HELLO * 20)
            await talk.until("segment")
            engine.hold()
        await eventually(lambda: server._hub.sessions == 0)
        assert isinstance(engine.commands[-1], CancelUtterance)


async def test_a_lost_session_ends_with_its_window():
    """Nobody comes back: after the resume window nothing is left."""
    options = SessionOptions(resume_window_s=0.2)
    async with ready(session=options) as server:
        client = await RawClient.upgraded(server.url)
        await client.frame()
        client.reset()
        await eventually(lambda: server._hub._detached)
        assert server._hub.sessions == 1
        await eventually(lambda: server._hub.sessions == 0)
        assert not server._hub._tokens and not server._hub._routes


async def test_sessions_that_wait_are_bounded():
    """Clients that come and vanish do not fill the memory: the longest away goes first."""
    async with ready(max_sessions=5) as server:
        for _ in range(12):
            client = await RawClient.upgraded(server.url)
            await client.frame()
            client.reset()
            await eventually(lambda: server._doorman.connections == 0)
        assert server._hub.sessions == 5


# --- our own mistakes ----------------------------------------------------------------------------


async def test_a_session_that_breaks_hurts_nobody_else(monkeypatch, caplog):
    """Our bug: logged with its traceback, `internal` and 1011 for that client, its speech stopped."""
    engine = InlineEngine()
    async with ready(engine) as server, talking(server) as good, talking(server) as bad:
        await bad.say("text", ctx="c", text=HELLO * 9)
        await bad.until("segment")
        engine.hold()
        utterance = next(c for c in engine.commands[::-1] if isinstance(c, StartUtterance))
        receive = Session.receive

        def broken(self, message, now):
            if getattr(message, "t", None) == "boom":
                raise ZeroDivisionError("a bug")
            receive(self, message, now)

        monkeypatch.setattr(Session, "receive", broken)
        await bad.say("ping", t="boom")
        code, _, messages = await bad.closed()
        assert code == 1011 and messages[-1]["code"] == "internal"
        assert "a bug" not in messages[-1]["message"]
        assert CancelUtterance(utterance.utterance_id) in engine.commands
        assert "ZeroDivisionError: a bug" in caplog.text
        engine.release()
        await good.say("text", ctx="c", text=HELLO, end=True)
        assert (await good.until("done"))[0]["reason"] == "completed"
        assert server._hub.sessions == 1 and not server._hub._routes


@pytest.mark.parametrize(
    "method",
    ["engine_event", "timer", "next_message", "delivered", "detach", "greet", "next_deadline"],
)
async def test_wherever_a_session_breaks_it_is_contained(monkeypatch, method, caplog):
    """A bug in any call of the session ends that session only, and leaves nothing behind."""
    options = SessionOptions(idle_timeout_s=0.3)
    async with ready(session=options) as server, talking(server) as talk:
        await asyncio.sleep(0)
        monkeypatch.setattr(Session, method, lambda *args, **kwargs: 1 / 0)
        with contextlib.suppress(Exception):
            await talk.say("text", ctx="c", text=HELLO, end=True)
            if method == "greet":
                await connect(server.ws_url)
            if method == "detach":
                await talk.ws.close()
            await talk.closed()
        await eventually(lambda: "ZeroDivisionError" in caplog.text)
        monkeypatch.undo()
        await talk.ws.close()
        async with talking(server) as other:
            await other.say("text", ctx="c", text=HELLO, end=True)
            assert (await other.until("done"))[0]["reason"] == "completed"
        await eventually(lambda: server._hub.sessions == 0)


# --- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        {"additional_headers": {"Authorization": "Bearer k1"}},
        {"additional_headers": {"Authorization": "Token k1"}},
        {"additional_headers": {"X-API-Key": "k1"}},
        {"subprotocols": ["rtts.v1", offer("k1")]},
    ],
)
async def test_a_right_key_opens(rest):
    """Each way a key may travel in the handshake."""
    async with ready(api_keys=("k1",)) as server, talking(server, **rest) as talk:
        assert talk.hello["type"] == "ready"
        assert "k1" not in str(talk.ws.response.headers)


async def test_a_wrong_key_is_401_or_4401(caplog):
    """HTTP for programs, a close code for browsers, the key nowhere."""
    caplog.set_level("DEBUG", "rtts")
    async with ready(api_keys=("k1",)) as server:
        wrong = {"Authorization": "Bearer topsecret"}
        status, headers, error = await refused(server, additional_headers=wrong)
        assert status == 401 and error["code"] == "unauthorized"
        assert headers["WWW-Authenticate"] == "Bearer"
        error, code, _ = await turned_away(
            server, server.url, subprotocols=["rtts.v1", offer("topsecret")]
        )
        assert error["code"] == "unauthorized" and code == 4401
        error, code, _ = await turned_away(  # node, by the interface of browsers
            server, None, subprotocols=["rtts.v1", offer("topsecret")]
        )
        assert error["code"] == "unauthorized" and code == 4401
        assert "topsecret" not in caplog.text


async def test_a_key_in_the_first_message():
    """Without a key in the handshake, nothing is said until `auth` comes."""
    async with ready(api_keys=("k1",)) as server:
        async with talking(server, greeted=False) as talk:
            await talk.say("auth", token="k1")
            assert (await talk.next())["type"] == "ready"
            await talk.say("auth", token="whatever")  # once more is ignored
            await talk.say("text", ctx="c", text=HELLO, end=True)
            assert (await talk.until("done"))[0]["reason"] == "completed"
            assert server._doorman.places.taken == 1 and server._doorman._keyless.taken == 0
        for first in (
            {"type": "auth", "token": "wrong"},
            {"type": "text", "ctx": "c", "text": HELLO},
            {"type": "resume", "token": "r_x"},
            "nonsense",
        ):
            async with talking(server, greeted=False) as talk:
                await talk.ws.send(first if isinstance(first, str) else json.dumps(first))
                code, _, messages = await talk.closed()
                assert code in (4401, 4400) and len(messages) == 1 and messages[0]["fatal"]
        await eventually(lambda: server._doorman._keyless.taken == 0)


async def test_a_key_that_does_not_come():
    """auth_timeout closes with 4408."""
    async with (
        ready(api_keys=("k1",), auth_timeout_s=0.1) as server,
        talking(server, greeted=False) as talk,
    ):
        code, _, messages = await talk.closed()
        assert code == 4408 and messages[0]["code"] == "auth_timeout"


async def test_those_without_a_key_do_not_fill_the_house():
    """Sockets that have shown no key take none of the places of those who have."""
    async with ready(api_keys=("k1",), max_sessions=1) as server:
        waiting = [await connect(server.ws_url) for _ in range(20)]
        async with talking(server, additional_headers={"X-API-Key": "k1"}) as talk:
            assert talk.hello
            await Talk(waiting[0]).say("auth", token="k1")  # right, but there is no place
            code, _, messages = await Talk(waiting[0]).closed()
            assert code == 1013 and messages[0]["code"] == "overloaded"
        for each in waiting:
            await each.close()


# --- origins and names ---------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://evil.com", "null", "http://127.0.0.1:1"])
async def test_foreign_pages_are_told_and_closed(origin):
    """A page of another origin gets forbidden_origin and 4403, and nothing else."""
    async with ready() as server:
        error, code, reason = await turned_away(server, origin)
        assert error["code"] == "forbidden_origin" and code == 4403 and reason
        refusals = server.metrics.registry.get_sample_value(
            "rtts_refusals_total", {"code": "forbidden_origin"}
        )
        assert refusals == 1


async def test_own_and_listed_pages_connect():
    """The server's own origin and those of the settings are let in."""
    async with ready(allowed_origins=("https://app.example.com",)) as server:
        for origin in (server.url, "https://app.example.com"):
            async with talking(server, origin=origin) as talk:
                assert talk.hello


async def test_a_rebound_name_is_403():
    """Without keys on loopback, a Host that is not ours is refused."""
    async with ready() as server:
        client = await RawClient.connect(server.url)
        client.send(
            b"GET /v1/tts HTTP/1.1\r\nHost: evil.com\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        assert (await client.response())[0] == 403
        await client.close()


# --- capacity and readiness ----------------------------------------------------------------------


async def test_a_full_server_refuses_and_frees_its_places():
    """The session too many gets 503 with Retry-After; when one ends there is a place."""
    async with ready(max_sessions=2) as server, talking(server) as one, talking(server):
        status, headers, error = await refused(server)
        assert status == 503 and error["code"] == "overloaded"
        assert headers["Retry-After"] == "1" and error["retry_after_ms"] == 1000
        error, code, _ = await turned_away(server, server.url)
        assert error["code"] == "overloaded" and code == 1013
        await one.ws.close()
        await eventually(lambda: server._doorman.places.taken == 1)
        async with talking(server):
            pass


async def test_one_client_may_not_take_all(monkeypatch):
    """Over the limit of one address: 429."""
    monkeypatch.setattr("rtts.server.limits.client_of", lambda address: address)
    async with ready(max_sessions_per_ip=1) as server, talking(server):
        status, headers, error = await refused(server)
        assert status == 429 and error["code"] == "rate_limited" and headers["Retry-After"]


async def test_before_it_is_ready_the_server_refuses():
    """While loading and prewarming: 503 with Retry-After; browsers are told 1013."""
    engine = InlineEngine(starts=False)
    async with started(engine) as server:
        status, headers, error = await refused(server)
        assert status == 503 and error["code"] == "overloaded" and "loading" in error["message"]
        assert headers["Retry-After"] == "1"
        assert (await turned_away(server, server.url))[1] == 1013
        engine.hold()
        engine.come_up()
        engine.say([])
        engine.release()
        await server.ready()
        async with talking(server):
            pass


async def test_a_dead_engine_fails_its_contexts_and_keeps_the_sockets():
    """Contexts end typed, sockets live on, new ones are refused until it has spoken again."""
    engine = InlineEngine()
    async with ready(engine) as server, talking(server) as talk:
        await talk.say("text", ctx="c", text=HELLO * 50)
        await talk.until("segment")
        engine.die(restart_in_s=3.0)
        done, before = await talk.until("done")
        assert done["reason"] == "error" and done["code"] == "engine_dead"
        status, headers, error = await refused(server)
        assert status == 503 and error["code"] == "engine_dead" and headers["Retry-After"] in "34"
        await talk.say("text", ctx="d", text=HELLO)
        assert (await talk.until("error"))[0]["code"] == "engine_dead"
        assert (await talk.until("done"))[0]["ctx"] == "d"
        engine.come_up()
        await server.ready()
        await talk.say("text", ctx="e", text=HELLO, end=True)
        assert (await talk.until("done"))[0]["reason"] == "completed"
