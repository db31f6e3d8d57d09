from __future__ import annotations

import asyncio
import http
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rtts_client import (
    Audio,
    Chunking,
    Client,
    ConnectError,
    ConnectionLostError,
    Context,
    ContextError,
    ContextEvent,
    ContextFailedError,
    Done,
    Flushed,
    Format,
    GoingAway,
    Marks,
    Reconnected,
    Segment,
    SlowReaderError,
    Started,
    Warned,
    connect,
)
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from rtts.protocol import events
from tests.clients.fake_server import FakeServer, Faults, fake_server

SENTENCES = ["Hello there. ", "How are ", "you today. ", "Fine"]


def open_client(fake: FakeServer, **options: Any) -> Client:
    return connect(fake.url, proxy=None, **{"give_up_s": 2.0, "open_timeout_s": 1.0} | options)


async def read(context: Context) -> list[ContextEvent]:
    return [event async for event in context]


def heard(seen: list[ContextEvent]) -> str:
    return b"".join(event.data for event in seen if isinstance(event, Audio)).decode()


def expected(ctx: str, n: int) -> str:
    return "".join(f"{ctx}:{seq} " for seq in range(n))


async def say(context: Context, texts: list[str]) -> None:
    for text in texts:
        await context.send(text)
        await asyncio.sleep(0)
    await context.end()


async def settle(client: Client) -> None:
    """Until the server has seen what was sent before, and its answers are here."""
    await client.ping()  # a ping may overtake text once
    await client.ping()


def of(seen: list[ContextEvent], kind: type) -> list[Any]:
    return [event for event in seen if isinstance(event, kind)]


# --- speaking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["rtts.v1", "rtts.v1.json"])
async def test_a_reply_comes_back_as_typed_events(protocol: str) -> None:
    """Text in, events out in order, `Done` last; the same in both subprotocols."""
    async with fake_server() as fake, open_client(fake, protocol=protocol) as client:
        assert client.ready.voices == ["tone"]
        async with client.context(voice="tone", speed=1.5, format=Format("opus")) as context:
            await say(context, SENTENCES)
            seen = await read(context)
        assert isinstance(seen[0], Started) and isinstance(seen[1], Segment)
        assert isinstance(seen[-1], Done) and seen[-1].reason == "completed"
        assert "".join(event.text for event in of(seen, Segment)) == "".join(SENTENCES)
        assert heard(seen) == expected("c1", 9)
        assert {event.ctx for event in of(seen, Audio)} == {"c1"}
        assert context.format is not None and context.format.sample_rate == 24_000
        (start,) = fake.sent_of(events.Start)
        assert (start.voice, start.speed, start.format) == ("tone", 1.5, events.Format())


async def test_speak_sends_and_reads_at_the_same_time() -> None:
    """An async iterator of text goes in while events come out."""
    first_heard = asyncio.Event()

    async def tokens() -> AsyncIterator[str]:
        yield "One. "
        await first_heard.wait()  # would never come if sending blocked reading
        yield "Two."

    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            seen = []
            async for event in context.speak(tokens()):
                seen.append(event)
                if isinstance(event, Audio):
                    first_heard.set()
        assert heard(seen) == expected("c1", 6)


async def test_speak_takes_a_string_or_an_iterable() -> None:
    """Whatever text comes from."""
    async with fake_server() as fake, open_client(fake) as client:
        for text in ("One. Two.", ["One. ", "Two."]):
            async with client.context() as context:
                seen = [event async for event in context.speak(text)]
            assert "".join(event.text for event in of(seen, Segment)) == "One. Two."


async def test_an_error_of_the_text_cancels_and_is_raised() -> None:
    """When the language model fails, the reply stops and the caller hears of it."""

    async def tokens() -> AsyncIterator[str]:
        yield "One. "
        await asyncio.sleep(0.02)
        raise RuntimeError("the model is gone")

    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            with pytest.raises(RuntimeError, match="the model is gone"):
                async for _ in context.speak(tokens()):
                    pass
        await settle(client)
        assert fake.contexts["c1"].is_done
        assert len(fake.sent_of(events.Cancel)) == 1


async def test_flushes_are_answered_by_their_id() -> None:
    """`flush` returns the id that `Flushed` carries."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("no punctuation")
            first = await context.flush()
            await context.send(" at all")
            second = await context.flush()
            await context.end()
            seen = await read(context)
        assert [event.id for event in of(seen, Flushed)] == [first, second]


async def test_contexts_are_independent() -> None:
    """Many replies on one connection, each with its own audio."""
    async with fake_server() as fake, open_client(fake) as client:

        async def one() -> tuple[str, str]:
            async with client.context() as context:
                seen = [event async for event in context.speak("One. Two. ")]
                return context.name, heard(seen)

        for name, audio in await asyncio.gather(*(one() for _ in range(6))):
            assert audio == expected(name, 6)


async def test_leaving_a_context_early_cancels_it() -> None:
    """Breaking out of the loop costs the server nothing more."""
    async with fake_server(lambda fake: setattr(fake, "speaks", False)) as fake:  # noqa: SIM117
        async with open_client(fake) as client:
            async with client.context() as context:
                await context.send("never spoken. ")
                async for _ in context:
                    break
            await settle(client)
            assert fake.contexts["c1"].is_done
            assert not client._contexts


async def test_cancel_says_what_was_heard_and_drops_the_rest() -> None:
    """`cancel` returns `Done` with spoken and remaining; unread audio is gone."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("Heard. Not heard")
            async for event in context:
                if isinstance(event, Audio):
                    break
            done = await context.cancel(played_ms=120.5)
            assert (done.reason, done.played_ms) == ("cancelled", 120.5)
            assert (done.spoken, done.remaining) == ("Heard. ", "Not heard")
            assert await read(context) == [done]
            assert await context.cancel() == done
        assert len(fake.sent_of(events.Cancel)) == 1


async def test_cancel_counts_text_that_was_never_sent() -> None:
    """`spoken` and `remaining` divide what the caller said, wherever it was on its way."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("Heard. ")
            await settle(client)
            await context.send("still here")
            done = await context.cancel()
        assert (done.spoken, done.remaining) == ("Heard. ", "still here")
        assert fake.contexts["c1"].text == "Heard. "


async def test_text_after_the_end_is_an_error_of_the_caller() -> None:
    """It is raised where it happens."""
    async with fake_server() as fake, open_client(fake) as client, client.context() as context:
        await context.end()
        await context.end()
        with pytest.raises(ValueError, match="has ended"):
            await context.send("x")


async def test_text_after_cancel_is_not_sent() -> None:
    """A barge-in silences tokens that still trickle in."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("Heard. ")
            await settle(client)
            canceling = asyncio.create_task(context.cancel())
            await asyncio.sleep(0)
            await context.send("too late. ")
            await canceling
            await context.send("much too late. ")
            await settle(client)
        assert "".join(text.text for text in fake.sent_of(events.Text)) == "Heard. "


# --- failing -------------------------------------------------------------------------------------


async def test_a_refused_context_raises_typed() -> None:
    """The error carries code, retry_after and the server's last word."""
    async with fake_server() as fake, open_client(fake) as client:
        fake.faults.refuses = ("overloaded", 1500)
        async with client.context() as context:
            await say(context, ["Hello."])
            seen = []
            with pytest.raises(ContextFailedError) as caught:
                async for event in context:
                    seen.append(event)
            assert await read(context) == []
        assert (caught.value.code, caught.value.retry_after_s) == ("overloaded", 1.5)
        assert caught.value.done is not None and caught.value.done.code == "overloaded"
        assert [event.code for event in of(seen, ContextError)] == ["overloaded"]
        fake.faults.refuses = None
        async with client.context() as context:
            assert heard([event async for event in context.speak("One.")]) == expected("c2", 3)


@pytest.mark.parametrize("reason", ["expired", "shutdown", "error"])
async def test_every_bad_end_raises(reason: Any) -> None:
    """A reply that was not spoken whole never looks like one that was."""
    async with fake_server() as fake, open_client(fake) as client, client.context() as context:
        await context.send("One. ")
        await settle(client)
        await fake.say(events.Done("c1", reason, 1, 2, 0.0, 0, 5))
        with pytest.raises(ContextFailedError, match=reason):
            await read(context)


@pytest.mark.parametrize(
    ("status", "headers", "body", "code", "retry_after_s"),
    [
        (401, {}, b"", "unauthorized", None),
        (503, {"Retry-After": "3"}, b"", "overloaded", 3.0),
        (503, {}, b'{"error": {"code": "shutting_down", "message": "bye"}}', "shutting_down", None),
        (
            503,
            {"Retry-After": "2"},
            b'{"error": {"code": "loading", "message": "soon", "retry_after_ms": 1500}}',
            "loading",
            1.5,
        ),
        (404, {}, b"[]", "refused", None),
    ],
)
async def test_a_refused_handshake_is_typed(
    status: int, headers: dict[str, str], body: bytes, code: str, retry_after_s: float | None
) -> None:
    """HTTP statuses become codes; a JSON body is believed first."""

    def refuse(ws: ServerConnection, request: Request) -> Response:
        response = ws.respond(http.HTTPStatus(status), "")
        response.body = body
        del response.headers["Content-Length"]
        response.headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            response.headers[name] = value
        return response

    async with fake_server(process_request=refuse) as fake:
        with pytest.raises(ConnectError) as caught:
            async with open_client(fake):
                pass
        error = caught.value
        assert (error.status, error.code, error.retry_after_s) == (status, code, retry_after_s)


async def test_the_key_travels_in_the_header() -> None:
    """`api_key` is sent as a bearer token."""
    seen: list[str | None] = []

    def look(_: ServerConnection, request: Request) -> None:
        seen.append(request.headers.get("Authorization"))

    async with fake_server(process_request=look) as fake, open_client(fake, api_key="secret"):
        pass
    assert seen == ["Bearer secret"]


async def test_a_server_that_says_nothing_is_given_up_on() -> None:
    """No `ready` within the timeout is a ConnectError, not a hang."""
    async with fake_server(lambda fake: setattr(fake.faults, "is_silent", True)) as fake:
        with pytest.raises(ConnectError, match="no_answer"):
            async with open_client(fake, open_timeout_s=0.1):
                pass


async def test_a_port_that_does_not_speak_http_is_given_up_on() -> None:
    """A listener that never answers the handshake is a ConnectError."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match="unreachable"):
            async with connect(f"ws://127.0.0.1:{port}", proxy=None, open_timeout_s=0.1):
                pass
        with pytest.raises(ConnectError, match="unreachable"):
            async with connect("ws://127.0.0.1:1", proxy=None):
                pass


async def test_a_fatal_close_is_not_retried() -> None:
    """After `slow_consumer` or the like the client does not come back for more."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("One. ")
            await settle(client)
            await fake.say(events.Error("slow_consumer", "too slow", True))
            await fake.sockets[0].close(4408)
            with pytest.raises(ConnectionLostError, match="slow_consumer"):
                await read(context)
        with pytest.raises(ConnectionLostError, match="slow_consumer"):
            async with client.context():
                pass
        assert fake.n_sockets == 1


async def test_an_idle_close_reconnects_on_demand() -> None:
    """A socket closed for idleness comes back with the next context, not before."""
    async with fake_server() as fake, open_client(fake) as client:
        await fake.say(events.Error("idle_timeout", "idle", True))
        await fake.sockets[0].close(4408)
        await asyncio.sleep(0.05)
        assert fake.n_sockets == 1
        async with client.context() as context:
            assert heard([event async for event in context.speak("One.")]) == expected("c1", 3)
        assert fake.n_sockets == 2


async def test_nonsense_from_the_server_ends_the_connection() -> None:
    """What is not rtts.v1 is a lost connection with its own code, not a crash or a hang."""
    async with fake_server() as fake, open_client(fake) as client, client.context() as context:
        await context.send("One. ")
        await settle(client)
        await fake.sockets[0].send('{"type":"done"}')
        with pytest.raises(ConnectionLostError):
            await read(context)


async def test_unknown_messages_and_kinds_are_ignored() -> None:
    """Additions to rtts.v1 do not disturb an old client."""
    news: list[str | bytes] = [
        '{"type":"weather","ctx":"c1"}',
        b"\x01\x02" + bytes(30),
        b"\x02\x01" + bytes(30),
        '{"type":"warning","code":"new","message":"","ctx":"c9","since":3}',
    ]
    async with fake_server(lambda fake: fake.faults.extra.extend(news)) as fake:  # noqa: SIM117
        async with open_client(fake) as client, client.context() as context:
            assert heard([event async for event in context.speak("One.")]) == expected("c1", 3)


async def test_half_a_character_waits_for_its_other_half() -> None:
    """Text cut inside an emoji is joined; half of one that stays alone goes both ways all the same."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("hi \ud83d")
            await settle(client)
            await context.send("\ude00. \ude00")
            await settle(client)
            done = await context.cancel()
        assert "".join(text.text for text in fake.sent_of(events.Text)) == "hi \U0001f600. \ude00"
        assert (done.spoken, done.remaining) == ("hi \U0001f600. ", "\ude00")
        async with client.context() as context:
            seen = [event async for event in context.speak("cut \ud83d")]
        assert "".join(event.text for event in of(seen, Segment)) == "cut \ud83d"


async def test_a_context_must_be_entered() -> None:
    """Forgetting `async with` is an error, not a hang."""
    async with fake_server() as fake, open_client(fake) as client:
        context = client.context()
        with pytest.raises(RuntimeError, match="async with"):
            await context.send("x")
        with pytest.raises(RuntimeError, match="async with"):
            await read(context)
        with pytest.raises(RuntimeError, match="async with"):
            await context.cancel()


async def test_a_bug_of_ours_is_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the reading task dies, whoever waits is told."""

    def broken(*_: Any) -> None:
        raise KeyError("oops")

    async with fake_server() as fake, open_client(fake) as client, client.context() as context:
        await context.send("One. ")
        await settle(client)
        monkeypatch.setattr(context, "_receive", broken)
        await context.send("Two. ")
        with pytest.raises(ConnectionLostError, match="internal"):
            async for _ in context:
                pass


async def test_a_name_is_used_by_one_context_at_a_time() -> None:
    """The caller's own names are checked here already."""
    async with fake_server() as fake, open_client(fake) as client, client.context(name="a"):
        with pytest.raises(ContextFailedError, match="ctx_exists"):
            async with client.context(name="a"):
                pass


# --- reconnecting --------------------------------------------------------------------------------


async def speak_through(fake: FakeServer) -> list[ContextEvent]:
    async with open_client(fake) as client, client.context() as context:
        speaking = asyncio.create_task(read(context))
        for text in SENTENCES:
            await context.send(text)
            await asyncio.sleep(0.003)
        await context.flush()
        await context.end()
        return await speaking


def assert_whole(fake: FakeServer, seen: list[ContextEvent]) -> None:
    assert heard(seen) == expected("c1", 9)
    assert "".join(event.text for event in of(seen, Segment)) == "".join(SENTENCES)
    assert fake.contexts["c1"].text == "".join(SENTENCES)
    assert [len(of(seen, kind)) for kind in (Started, Flushed, Done)] == [1, 1, 1]
    assert [event.segment for event in of(seen, Marks)] == [0, 1, 2]


@pytest.mark.parametrize("after", range(1, 18))
async def test_a_socket_lost_after_any_message_loses_nothing(after: int) -> None:
    """Wherever the server's stream breaks: audio once and in order, events once, text once."""
    async with fake_server() as fake:
        fake.faults.drop_after_sent = [after]
        seen = await speak_through(fake)
        assert_whole(fake, seen)
        assert fake.n_sockets == 2
        assert len(of(seen, Reconnected)) <= 1


@pytest.mark.parametrize("after", range(1, 8))
async def test_a_message_lost_on_the_way_is_sent_again(after: int) -> None:
    """Wherever the client's stream breaks, from `start` to `end`, the server gets it all once."""
    async with fake_server() as fake:
        fake.faults.drop_after_received = [after]
        assert_whole(fake, await speak_through(fake))


async def test_many_losses_and_duplicates() -> None:
    """A bad network and a server that replays everything each time: still exactly once."""
    async with fake_server() as fake:
        fake.faults = Faults(drop_after_sent=[3, 5, 8, 11, 14], replays_everything=True)
        seen = await speak_through(fake)
        assert_whole(fake, seen)
        assert fake.n_sockets == 6


async def test_reconnected_is_told_to_every_context() -> None:
    """A caller can see that the network was away, and for how long."""
    async with fake_server() as fake, open_client(fake) as client:  # noqa: SIM117
        async with client.context() as one, client.context() as two:
            await one.send("One. ")
            await two.send("Two. ")
            await settle(client)
            fake.kick()
            await one.end()
            await two.end()
            for context in (one, two):
                seen = await read(context)
                (back,) = of(seen, Reconnected)
                assert 0.0 <= back.away_s < 1.0
                assert heard(seen) == expected(context.name, 3)


async def test_cancel_survives_a_lost_socket() -> None:
    """A cancel given while nobody listens is sent after the reconnect."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("One. two")
            await settle(client)
            fake.kick()
            done = await context.cancel()
        assert (done.spoken, done.remaining) == ("One. ", "two")


async def test_an_abandoned_context_is_cancelled_after_a_reconnect() -> None:
    """Leaving a context while the socket is away does not leave it running on the server."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("One. two")
            await settle(client)
            fake.kick()
        async with client.context() as other:
            await read_speech(other)
        assert fake.contexts["c1"].is_done
        assert not client._contexts


async def read_speech(context: Context) -> str:
    return heard([event async for event in context.speak("One.")])


async def test_a_server_that_forgot_fails_the_context_and_serves_the_next() -> None:
    """After a restart of the server old contexts fail typed; the connection is a new one."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("One. ")
            await settle(client)
            fake.faults.forgets = True
            fake.kick()
            with pytest.raises(ContextFailedError, match="resume_failed"):
                await read(context)
        async with client.context() as context:
            assert await read_speech(context) == expected("c2", 3)


async def test_a_session_is_told_of_its_own_contexts_only() -> None:
    """A player that goes on after a restart tells the new session nothing of what it never knew."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as over:
            assert await read_speech(over)
        async with client.context() as running:
            await running.send("Two. ")
            await settle(client)
            fake.faults.forgets = True
            fake.kick()
            await over.report_playback(10)
            with pytest.raises(ContextFailedError, match="resume_failed"):
                await read(running)
        n_told = len(fake.received)
        async with client.context() as context:
            for each in (over, running):
                await each.report_playback(20)
            assert await read_speech(context)
            await context.report_playback(first_sound_ms=30)
            await settle(client)
        later = [each for each in fake.received[n_told:] if isinstance(each, events.Playback)]
        assert {each.ctx for each in later} == {"c3"} and later[-1].first_sound_ms == 30


async def test_a_server_that_is_gone_is_given_up_on() -> None:
    """After `give_up_s` contexts and pings fail, and new contexts at once."""
    async with fake_server() as fake, open_client(fake, give_up_s=0.3) as client:
        async with client.context() as context:
            await context.send("One. ")
            await settle(client)
            await fake.stop()
            fake.kick()
            with pytest.raises(ConnectionLostError, match="gave up after 0.3 s"):
                await read(context)
        with pytest.raises(ConnectionLostError):
            async with client.context():
                pass
        with pytest.raises(ConnectionLostError):
            await client.ping()


async def test_a_key_that_was_withdrawn_stops_the_retries() -> None:
    """A refusal that will not change is not asked again."""
    is_open = True

    def check(ws: ServerConnection, _: Request) -> Response | None:
        return None if is_open else ws.respond(http.HTTPStatus.UNAUTHORIZED, "no")

    async with fake_server(process_request=check) as fake, open_client(fake) as client:  # noqa: SIM117
        async with client.context() as context:
            await context.send("One. ")
            await settle(client)
            is_open = False
            fake.kick()
            with pytest.raises(ConnectionLostError, match="unauthorized"):
                await read(context)


async def test_a_ping_measures_and_does_not_hang() -> None:
    """Round trip in seconds; a lost socket fails it."""
    async with fake_server() as fake, open_client(fake) as client:
        assert 0.0 < await client.ping() < 1.0
        pending = asyncio.create_task(client.ping())
        await asyncio.sleep(0)
        fake.kick()
        with pytest.raises(ConnectionLostError):
            await pending
        assert await client.ping() > 0.0


async def test_goaway_is_told() -> None:
    """Contexts see it as an event, the client as an attribute; a new socket clears it."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("One. ")
            await settle(client)
            await fake.say(events.GoAway("draining", 20_000))
            await context.end()
            seen = await read(context)
        assert [event.deadline_ms for event in of(seen, GoingAway)] == [20_000]
        assert client.goaway is not None
        await fake.sockets[0].close(1012)
        await settle(client)
        assert client.goaway is None


async def test_closing_the_client_ends_everything() -> None:
    """Whoever still reads is told."""
    async with fake_server() as fake:
        async with open_client(fake) as client:
            context = client.context()
            await context.__aenter__()
            reading = asyncio.create_task(read(context))
            await settle(client)
        with pytest.raises(ConnectionLostError, match="closed"):
            await reading
        assert len(fake.sent_of(events.Close)) == 1
        assert not fake.sockets


# --- pace ----------------------------------------------------------------------------------------


async def test_a_reader_that_stops_holds_the_server_and_nobody_else() -> None:
    """Unread audio stays near the buffer plus the lead, other contexts go on, nothing is lost."""

    def slow_speech(fake: FakeServer) -> None:
        fake.honours_reports = True
        fake.audio_per_segment = 50
        fake.message_ms = 100

    async with fake_server(slow_speech) as fake, open_client(fake) as client:
        async with client.context(buffer_s=2.0) as stuck, client.context() as other:
            for _ in range(10):
                await stuck.send("One. ")  # five seconds each, at once
                await settle(client)
            await stuck.end()
            assert len(await read_speech(other)) > 50
            await asyncio.sleep(0.05)
            limit_s = 5.0 + client.ready.limits.max_lead_ms / 1000 + 0.2
            assert stuck._clock.waiting_s <= limit_s < 50.0
            fake.honours_reports = False
            seen = await read(stuck)
            assert heard(seen) == expected("c1", 500)
        reports = [report.played_ms for report in fake.sent_of(events.Playback)]
        assert [played for played in reports if played is not None]


async def test_audio_nobody_reads_cancels_its_context_only() -> None:
    """Past `max_buffer_s` the context fails typed, what came before can be read, others go on."""

    def long_speech(fake: FakeServer) -> None:
        fake.audio_per_segment = 100
        fake.message_ms = 100

    async with fake_server(long_speech) as fake, open_client(fake) as client:
        async with client.context(max_buffer_s=5.0) as stuck:
            await stuck.send("One. Two. ")
            await settle(client)
            async with client.context() as other:
                assert len(await read_speech(other)) > 50
            seen = []
            with pytest.raises(SlowReaderError):
                async for event in stuck:
                    seen.append(event)
            assert heard(seen) == expected("c1", 51)
        assert fake.contexts["c1"].is_done


async def test_long_text_is_sent_as_there_is_room() -> None:
    """A book never overfills the server's buffer, and is spoken whole."""

    def small_buffer(fake: FakeServer) -> None:
        fake.limits = events.Limits(8, 40, 65536, 10_000, 300_000, 7_200_000, 5_000)

    book = "".join(f"Sentence {i}. " for i in range(60))
    async with fake_server(small_buffer) as fake, open_client(fake) as client:
        async with client.context() as context:
            seen = [event async for event in context.speak(book)]
        assert fake.contexts["c1"].text == book
        assert not of(seen, ContextError)
        assert max(len(text.text) for text in fake.sent_of(events.Text)) <= 40


async def test_a_full_buffer_is_waited_for() -> None:
    """If the server is fuller than it seemed, the refused text and those behind it come again."""
    async with fake_server() as fake, open_client(fake) as client:
        fake.faults.refuses_texts = 1
        async with client.context(chunking=Chunking(mode="client")) as context:
            seen = [event async for event in context.speak(["One. ", "Two. ", "Three. "])]
        assert fake.contexts["c1"].text == "One. Two. Three. "
        assert not of(seen, ContextError)


async def test_text_the_server_never_speaks_does_not_block_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Text without anything to speak frees no room the client could see; it tries anyway."""
    monkeypatch.setattr("rtts_client.context.RETRY_S", 0.05)

    def deaf(fake: FakeServer) -> None:
        fake.limits = events.Limits(8, 20, 65536, 10_000, 300_000, 7_200_000, 5_000)
        fake.speaks = False

    async with fake_server(deaf) as fake, open_client(fake) as client:
        async with client.context() as context:
            speaking = asyncio.create_task(read(context))
            await context.send("x" * 50)
            await context.end()
            await asyncio.sleep(0.12)
            fake.contexts["c1"].said = 20  # it had nothing to speak in it
            await asyncio.sleep(0.2)
            fake.contexts["c1"].said = 40
            await speaking
        assert fake.contexts["c1"].text == "x" * 50


async def test_a_long_text_the_server_never_speaks_is_soon_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the first piece of a long listing waits for a sign of life; its like follow at once."""
    monkeypatch.setattr("rtts_client.context.RETRY_S", 0.4)
    monkeypatch.setattr("rtts_client.context.TAKEN_S", 0.01)

    def deaf(fake: FakeServer) -> None:
        fake.limits = events.Limits(8, 20, 65536, 10_000, 300_000, 7_200_000, 5_000)
        fake.speaks = False

    async with fake_server(deaf) as fake, open_client(fake) as client:
        async with client.context() as context:
            speaking = asyncio.create_task(read(context))
            await context.send("x" * 20)
            await asyncio.sleep(0.05)
            fake.contexts["c1"].said = 10_000  # nothing of this waits for its audio
            await context.send("x" * 200)
            await context.end()
            async with asyncio.timeout(4):
                await speaking
        assert fake.contexts["c1"].text == "x" * 220


async def test_a_torrent_of_tokens_stays_within_the_rate() -> None:
    """Tokens that come faster than messages may are merged, not refused."""
    pieces = [f"w{i}. " for i in range(2000)]
    async with (
        fake_server(lambda fake: setattr(fake, "message_ms", 1)) as fake,
        open_client(fake) as client,
    ):
        async with client.context() as context:
            for piece in pieces:
                await context.send(piece)
                await asyncio.sleep(0)
            await context.end()
            await read(context)
        assert fake.contexts["c1"].text == "".join(pieces)
        assert len(fake.sent_of(events.Text)) < 400


async def test_pieces_stay_pieces_where_that_means_something() -> None:
    """In mode "client" every send is a message of its own."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context(chunking=Chunking(mode="client")) as context:
            async for _ in context.speak(["a", "b", "c" * 3000]):
                pass
        assert [text.text for text in fake.sent_of(events.Text)] == ["a", "b", "c" * 3000]


# --- reports and files ---------------------------------------------------------------------------


async def test_the_first_packet_is_measured_and_reported_once() -> None:
    """From the text that completed the first segment to its audio, as seen here."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("Not yet")
            await asyncio.sleep(0.1)
            await context.send(" now. ")
            await asyncio.sleep(0.05)
            await context.send("More.")
            await context.end()
            await read(context)
            assert context.first_packet_s is not None and 0.0 < context.first_packet_s < 0.08
        await settle(client)
        (report,) = fake.sent_of(events.Playback)
        assert report.first_packet_ms == pytest.approx(1000 * context.first_packet_s, abs=0.001)
        assert report.played_ms is None


async def test_reports_can_be_turned_off_and_made() -> None:
    """Nothing is reported behind the caller's back; the caller can report anything."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context(reports=False) as context:
            await read_speech(context)
            await context.report_playback(120, first_sound_ms=80.5, underruns=1, stalled_ms=20)
        await settle(client)
        (report,) = fake.sent_of(events.Playback)
        assert report == events.Playback(
            ctx="c1", played_ms=120, first_sound_ms=80.5, underruns=1, stalled_ms=20
        )


async def test_save_writes_what_the_server_made(tmp_path: Path) -> None:
    """The payloads in a row are the file; a WAV gets its sizes."""
    async with fake_server() as fake, open_client(fake) as client:
        done = await client.save(["One. ", "Two."], tmp_path / "x.ogg", voice="tone")
        assert done.reason == "completed"
        assert (tmp_path / "x.ogg").read_text() == expected("c1", 6)
        start = fake.sent_of(events.Start)[0]
        assert (start.format.container, start.max_lead_ms, start.voice) == ("ogg", 0, "tone")
        fake.audio_per_segment = 10
        await client.save("One.", tmp_path / "x.wav")
        data = (tmp_path / "x.wav").read_bytes()
        assert struct.unpack_from("<I", data, 4) == (len(data) - 8,)
        assert struct.unpack_from("<I", data, 40) == (len(data) - 44,)
        with pytest.raises(ValueError, match=".mp3"):
            await client.save("One.", tmp_path / "x.mp3")
        async with client.context() as context:
            with pytest.raises(ValueError, match="container"):
                await context.save(tmp_path / "y.ogg")


async def test_warnings_are_events() -> None:
    """What did not go as asked is told, and speech goes on."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("One. ")
            await settle(client)
            await fake.say(events.Warned("unspeakable_text", "no such script", "c1", 0))
            await context.end()
            seen = await read(context)
        assert [event.code for event in of(seen, Warned)] == ["unspeakable_text"]


async def test_a_name_that_the_server_would_refuse_is_refused_at_once():
    """The server cannot say for which context it refuses it, so waiting would never end."""
    async with fake_server() as fake, open_client(fake) as client:
        for name in ("a\nb", "\0", "\x7f", "\ud83d", "x" * 129):
            with pytest.raises(ValueError, match="control character"):
                client.context(name=name)
        async with client.context(name="\U0001f600" * 128) as context:
            await context.cancel()


async def test_no_figure_loses_a_cancel():
    """What the protocol would refuse is as much as it takes."""
    async with fake_server() as fake, open_client(fake) as client:
        async with client.context() as context:
            await context.send("One. ")
            await settle(client)
            await context.report_playback(first_sound_ms=1e300, stalled_ms=-3)
            done = await asyncio.wait_for(context.cancel(1e308), 5)
        assert done.reason == "cancelled"
        *_, report = [each for each in fake.received if isinstance(each, events.Playback)]
        assert (report.first_sound_ms, report.stalled_ms) == (86_400_000, 0)
