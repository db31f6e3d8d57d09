"""The figures of a server: points that agree with the snapshot, history for who comes late, advice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import msgspec
import pytest
from websockets.asyncio.client import connect

from rtts import advice
from rtts.cli.recorded import read
from rtts.engine.tone import ToneOptions
from rtts.metrics import bucket_s
from rtts.server import figures, history
from rtts.session import SessionOptions
from tests.server.raw import eventually
from tests.server.rig import InlineEngine, ready, started, talking
from tests.server.test_stats import feed_url, receive


async def speak(talk, count, *, first=0, **start):
    for n in range(first, first + count):
        await talk.say("start", ctx=f"c{n}", **start)
        await talk.say("text", ctx=f"c{n}", text="Hello there. ", end=True)
        await talk.until("done")


def median_ms(buckets):
    seen, total = 0, sum(buckets.values())
    for bucket in sorted(buckets, key=int):
        seen += buckets[bucket]
        if 2 * seen >= total:
            return 1000 * bucket_s(int(bucket))
    return None


async def test_who_comes_late_sees_what_was(monkeypatch):
    """The history has every first packet, miss and request from before; its sums are the figures."""
    engine = InlineEngine(ToneOptions(first_chunk_delay_s=0.06))
    async with ready(engine) as server, talking(server) as talk:
        await asyncio.sleep(1.1)  # beyond the first point, which begins with the server
        await speak(talk, 5)
        await speak(talk, 2, first=5, budget_ms=1)
        await talk.say("playback", ctx="c0", first_packet_ms=600, first_sound_ms=650, underruns=2)
        await asyncio.sleep(2.1)  # first packets stand in the point after their second
        async with connect(feed_url(server)) as ws:
            stats = json.loads(await ws.recv())
            past = json.loads(await ws.recv())
            assert stats["type"] == "stats" and past["type"] == "history"
            live = await receive(ws, "stats")
        points = past["points"]
        first_packet: Counter = Counter()
        misses: Counter = Counter()
        for point in points:
            first_packet.update(point.get("first_packet", {}))
            misses.update(point.get("misses", {}))
        assert sum(first_packet.values()) == stats["first_packets"] == 7
        assert abs(median_ms(first_packet) - stats["first_packet_ms"]["p50"]) < 0.02
        assert misses == stats["last_minute"]["misses"] == {"prefill": 2, "client": 1}
        assert [each["ctx"] for each in past["requests"]] == [f"c{n}" for n in range(7)]
        assert past["requests"][0]["client_late"] is True
        assert sum(point.get("client_underruns", 0) for point in points) == 2
        assert "Hello" not in json.dumps(past)
        assert live["point"]["t"] > points[-1]["t"]
        assert live["point"]["slots"] == 256


@pytest.mark.parametrize("jump_s", [7200.0, -7200.0])
async def test_time_is_that_of_the_wall_also_after_it_jumped(monkeypatch, tmp_path, jump_s):
    """The feed, its history, recordings: none goes on in the time before a machine slept."""
    monkeypatch.setattr(figures, "INTERVAL_S", 0.05)
    async with ready(record_file=tmp_path / "a.csv") as server, talking(server) as talk:
        before_ms = server._figures.snapshot()["time_ms"]
        await asyncio.sleep(0.2)
        wall = server._figures._wall_clock
        server._figures._wall_clock = lambda: wall() + jump_s
        await asyncio.sleep(0.2)
        await speak(talk, 1)
        now_ms = server._figures.snapshot()["time_ms"]
        assert jump_s * 1000 <= now_ms - before_ms < (jump_s + 60) * 1000
        points = json.loads(msgspec.json.encode(server._figures.history()))["points"]
        times = [point["t"] for point in points]
        assert times == sorted(times) and abs(times[-1] - now_ms) < 5000
    (reply,), _ = read([tmp_path / "a.csv"])
    assert abs(1000 * reply.at.timestamp() - now_ms) < 5000


def codes(server):
    return [each["code"] for each in server._figures.snapshot()["advice"]]


async def test_advice_comes_and_goes(monkeypatch):
    """It says since when; once its cause is gone it goes."""
    monkeypatch.setattr(figures, "INTERVAL_S", 0.05)
    monkeypatch.setattr(advice, "HOLD_S", 0.1)
    monkeypatch.setattr(advice, "SLOW_LOOP_S", 60.0)  # the machine is shared
    monkeypatch.setattr(history, "WINDOW_S", 10)
    engine = InlineEngine(ToneOptions(first_chunk_delay_s=0.06))
    session = SessionOptions(budget_s=0.001)
    async with ready(engine, session=session) as server, talking(server) as talk:
        await eventually(lambda: server._figures.snapshot()["advice"] == [])  # no longer prewarming
        await speak(talk, 4)
        seen = await eventually(
            lambda: "slow_engine" in codes(server) and server._figures.snapshot()["advice"]
        )
        slow = next(each for each in seen if each["code"] == "slow_engine")
        assert slow["stage"] == "prefill" and slow["severity"] == "problem"
        assert abs(server._figures.snapshot()["time_ms"] - slow["since_ms"]) < 5000
        await eventually(lambda: server._figures.snapshot()["advice"] == [])
        engine.die()
        await eventually(lambda: codes(server) == ["engine_restarting"])


async def test_the_rehearsal_is_nobodys_first_packet(monkeypatch):
    """However long the server speaks to itself before it is ready, points do not count it."""
    engine = InlineEngine(ToneOptions(first_chunk_delay_s=0.3, real_time_factor=0.6))
    async with started(engine) as server:
        monkeypatch.setattr(figures, "INTERVAL_S", 0.05)
        await eventually(lambda: server.service.first_packet.count(server.clock()) == 1)
        assert not server.is_ready
        await asyncio.sleep(1.1)
        async with asyncio.timeout(10):
            await server.ready()
        points = [json.loads(point) for point in server._figures._history._points]
        assert len(points) > 10
        assert all("first_packet" not in point for point in points)


async def test_no_gpu_is_said():
    """The figures of a machine without a GPU say so, and why."""
    async with ready() as server:
        gpu = await eventually(
            lambda: (
                server._figures.snapshot()["gpu"]["reason"] != "not read yet"
                and server._figures.snapshot()["gpu"]
            )
        )
        assert gpu["devices"] == []
        assert gpu["reason"] in ("no GPU", "nvidia-ml-py is not installed")
