"""The feed: figures each second, a record for each context, gaps told where they are."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from rtts.errors import OverloadedError
from rtts.metrics import Metrics
from rtts.server import figures, stats
from rtts.server.stats import MAX_WAITING, MAX_WATCHERS, Feed, Watcher, encode
from tests.server.raw import RawClient, eventually, handshake
from tests.server.rig import ready, talking


def feed_url(server) -> str:
    return "ws" + server.url[4:] + "/v1/stats"


async def receive(ws, kind: str):
    async with asyncio.timeout(5):
        while (message := json.loads(await ws.recv()))["type"] != kind:
            pass
        return message


@given(st.lists(st.sampled_from(["push", "next"]), max_size=80))
async def test_a_watcher_loses_nothing_untold(steps):
    """What a watcher reads, plus what it is told it missed, is everything, in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "MAX_WAITING", 5)
        watcher, pushed, read = Watcher(), 0, []
        for step in steps:
            if step == "push":
                watcher.push(encode({"type": "request", "n": pushed}))
                pushed += 1
            elif watcher._waiting or watcher._n_dropped:
                read.append(json.loads(await watcher.next()))
        while watcher._waiting or watcher._n_dropped:
            read.append(json.loads(await watcher.next()))
        expected = 0
        for message in read:
            if message["type"] == "dropped":
                expected += message["records"]
            else:
                assert message["n"] == expected
                expected += 1
        assert expected == pushed


async def test_stats_and_requests_are_pushed(monkeypatch):
    """One snapshot at once, one each second, one record for each context; no text."""
    monkeypatch.setattr(figures, "INTERVAL_S", 0.05)
    async with ready() as server, talking(server) as talk:
        async with connect(feed_url(server), subprotocols=["rtts-stats.v1"]) as ws:
            assert ws.subprotocol == "rtts-stats.v1"
            first = json.loads(await ws.recv())
            assert first["type"] == "stats" and first["ready"]
            text = "Nobody should read this in a feed. "
            await talk.say("text", ctx="turn", text=text, end=True)
            await talk.until("done")
            request = await receive(ws, "request")
            assert request["ctx"] == "turn" and request["reason"] == "completed"
            assert request["first_packet_ms"] > 0 and request["within_budget"] is True
            assert "read this" not in json.dumps(request)
            await talk.say("playback", ctx="turn", first_sound_ms=64.0)
            assert (await receive(ws, "client"))["client_first_sound_ms"] == 64.0
            await ws.send("whatever")  # a watcher has nothing to say, and may say it
            later = [await receive(ws, "stats") for _ in range(3)]
            assert later[-1]["first_packets"] == 1
        await eventually(lambda: server._feed.watchers == 0)


async def test_a_slow_watcher_is_told_what_it_missed():
    """It costs bounded memory, delays nobody, and learns how many records are gone."""
    async with ready() as server:
        slow = await RawClient.connect(server.url, rcvbuf=4096, limit=1024)
        slow.writer.transport.pause_reading()
        slow.send(handshake("/v1/stats"))
        await eventually(lambda: server._feed.watchers == 1)
        async with connect(feed_url(server)) as ws:
            await receive(ws, "stats")

            async def read():
                return [(await receive(ws, "request"))["n"] for _ in range(3000)]

            reading = asyncio.create_task(read())
            for n in range(3000):
                server._feed.publish({"type": "request", "n": n, "filler": "x" * 100})
                if n % 50 == 0:
                    await asyncio.sleep(0.002)
            assert await reading == list(range(3000))
        await eventually(lambda: server._feed.watchers == 1)
        (watcher,) = server._feed._watchers
        assert len(watcher._waiting) <= MAX_WAITING + 1 and watcher._n_dropped > 0
        dropped = server.metrics.registry.get_sample_value("rtts_stats_dropped_records_total")
        assert dropped == watcher._n_dropped
        slow.writer.transport.resume_reading()
        await slow.response()
        seen = []
        while not any(message["type"] == "dropped" for message in seen):
            _, payload = await asyncio.wait_for(slow.frame(), 5)
            seen.append(json.loads(payload))
        numbers = [message["n"] for message in seen if message["type"] == "request"]
        assert numbers == list(range(len(numbers)))
        assert seen[-1]["records"] + len(numbers) == 3000
        await slow.close()


async def test_watchers_are_bounded():
    """The feed takes so many and refuses the next with 503."""
    feed = Feed(Metrics(budget_s=0.5, version="0"))
    watchers = [feed.subscribe() for _ in range(MAX_WATCHERS)]
    with pytest.raises(OverloadedError):
        feed.subscribe()
    feed.unsubscribe(watchers[0])
    feed.subscribe()
    async with ready() as server:
        server._feed._watchers = {Watcher() for _ in range(MAX_WATCHERS)}
        with pytest.raises(InvalidStatus) as refused:
            await connect(feed_url(server))
        assert refused.value.response.status_code == 503


async def test_the_feed_needs_a_key_and_its_subprotocol():
    """As every other path; a browser shows its key in a subprotocol."""
    async with ready(api_keys=("k1",)) as server:
        for rest, status in (({}, 401), ({"additional_headers": {"X-API-Key": "no"}}, 401)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(feed_url(server), **rest)
            assert refused.value.response.status_code == status
        with pytest.raises(InvalidStatus) as refused:
            key = {"X-API-Key": "k1"}
            await connect(feed_url(server), subprotocols=["rtts.v1"], additional_headers=key)
        assert refused.value.response.status_code == 400
        offers = ["rtts-stats.v1", "rtts.auth.azE"]
        async with connect(feed_url(server), subprotocols=offers, origin=server.url) as ws:
            assert ws.subprotocol == "rtts-stats.v1"
            assert (await receive(ws, "stats"))["ready"]


async def test_a_watcher_of_a_loading_server_sees_it_load():
    """The feed is there before the server is ready."""
    from tests.server.rig import InlineEngine, started

    async with started(InlineEngine(starts=False)) as server, connect(feed_url(server)) as ws:
        assert (await receive(ws, "stats"))["reasons"] == ["loading"]
