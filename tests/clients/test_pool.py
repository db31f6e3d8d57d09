"""The pool of connections of the Python client, against a scripted server."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any

import pytest
from rtts_client import ConnectError, ConnectionLostError, Context, ContextFailedError, Pool

from rtts.protocol import events
from tests.clients.fake_server import FakeServer, fake_server


def pool_of(fake: FakeServer, **options: Any) -> Pool:
    return Pool(fake.url, proxy=None, **{"give_up_s": 0.5, "open_timeout_s": 1.0} | options)


NAMES = (f"reply-{n}" for n in itertools.count())  # the fake server knows a name once


async def new_context(pool: Pool) -> Context:
    return await pool.context(name=next(NAMES))


async def speak(pool: Pool) -> int:
    async with await new_context(pool) as context:
        return len([event async for event in context.speak("One. Two.")])


async def test_replies_share_one_connection() -> None:
    """One after the other or at the same time, replies use the connection that is there."""
    async with fake_server() as fake:
        pool = pool_of(fake)
        assert await speak(pool) > 6
        await asyncio.gather(*(speak(pool) for _ in range(8)))
        assert pool.n_connections == fake.n_sockets == 1
        await pool.aclose()


async def test_more_replies_than_fit_open_another_connection() -> None:
    """Where the server allows so many contexts on a socket, one more gets a socket of its own."""
    async with fake_server() as fake:
        pool = pool_of(fake)
        open_ones: list[Context] = []
        for _ in range(fake.limits.max_contexts + 1):
            context = await new_context(pool)
            await context.__aenter__()
            open_ones.append(context)
        assert pool.n_connections == fake.n_sockets == 2
        for context in open_ones:
            await context.cancel()
        await speak(pool)
        assert fake.n_sockets == 2
        await pool.aclose()


async def test_prewarming_connects_before_it_is_needed() -> None:
    """Asked early, the connection is there, and the first reply makes no other."""
    async with fake_server() as fake:
        pool = pool_of(fake)
        pool.prewarm()
        pool.prewarm()
        await pool.open()
        assert pool.n_connections == 1
        await speak(pool)
        assert fake.n_sockets == 1
        await pool.aclose()


async def test_all_who_wait_share_one_attempt() -> None:
    """Replies that begin before there is a connection wait for the same one."""
    async with fake_server() as fake:
        pool = pool_of(fake)
        await asyncio.gather(*(speak(pool) for _ in range(5)))
        assert fake.n_sockets == 1
        await pool.aclose()


async def test_who_stops_waiting_does_not_stop_the_others() -> None:
    """A reply that is given up while the connection is made leaves the connection to the next."""
    async with fake_server() as fake:
        pool = pool_of(fake)
        first = asyncio.create_task(speak(pool))
        second = asyncio.create_task(speak(pool))
        await asyncio.sleep(0)
        first.cancel()
        assert await second > 6
        assert fake.n_sockets == 1
        await pool.aclose()


async def test_a_refusal_is_raised_and_the_next_reply_tries_again() -> None:
    """Nobody listens: an error, not a wait; once somebody does, the same pool speaks."""
    async with fake_server() as fake:
        await fake.stop()
        pool = pool_of(fake)
        with pytest.raises(ConnectError) as refusal:
            await speak(pool)
        assert refusal.value.code == "unreachable"
        await fake.start()
        assert await speak(pool) > 6
        await pool.aclose()


async def test_prewarming_in_vain_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An early failure disturbs nobody; it is in the log."""
    async with fake_server() as fake:
        await fake.stop()
        pool = pool_of(fake)
        with caplog.at_level(logging.WARNING, "rtts_client"):
            pool.prewarm()
            await asyncio.sleep(0.1)
        assert "ahead of the first reply" in caplog.text
        await pool.aclose()


async def test_a_server_that_goes_away_keeps_its_replies_and_gets_no_new_ones() -> None:
    """After `goaway` a running reply ends where it is, the next one is on another connection."""
    async with fake_server() as fake:
        pool = pool_of(fake)
        async with await new_context(pool) as context:
            await context.send("One. ")
            await context.__anext__()
            await fake.say(events.GoAway(reason="draining", deadline_ms=1000))
            await asyncio.sleep(0.05)
            assert await speak(pool) > 6
            assert (pool.n_connections, fake.n_sockets) == (2, 2)
            await context.end()
            async for _ in context:
                pass
        await speak(pool)
        assert (pool.n_connections, fake.n_sockets) == (1, 2)
        await pool.aclose()


async def test_a_connection_that_is_lost_for_good_is_replaced() -> None:
    """What cannot be resumed within the time fails its replies, not the ones after it."""
    async with fake_server() as fake:
        pool = pool_of(fake, give_up_s=0.2)
        async with await new_context(pool) as context:
            await context.send("One. ")
            await context.__anext__()
            await fake.stop()
            fake.kick()
            with pytest.raises(ConnectionLostError):
                async for _ in context:
                    pass
        await fake.start()
        assert await speak(pool) > 6
        assert pool.n_connections == 1
        await pool.aclose()


async def test_closing_ends_everything() -> None:
    """Replies fail, connections are gone, later calls say so; a second time does nothing."""
    async with fake_server() as fake:
        pool = pool_of(fake)
        async with await new_context(pool) as context:
            await context.send("One. ")
            await pool.aclose()
            with pytest.raises(ConnectionLostError):
                async for _ in context:
                    pass
        with pytest.raises(ConnectionLostError):
            await pool.context()
        pool.prewarm()
        await pool.aclose()
        assert pool.n_connections == 0


async def test_closing_while_connecting_leaves_nothing() -> None:
    """Who waits is told; no connection is left behind."""
    async with fake_server() as fake:
        fake.faults.is_silent = True
        pool = pool_of(fake)
        waiting = asyncio.create_task(speak(pool))
        await asyncio.sleep(0.05)
        await pool.aclose()
        with pytest.raises((ConnectionLostError, ContextFailedError, asyncio.CancelledError)):
            await waiting
        assert len(asyncio.all_tasks()) < 8


def test_a_pool_outlives_its_event_loop() -> None:
    """A program that runs one loop after another gets a connection in each."""
    pools: list[Pool] = []

    async def speak_on(port: int) -> int:
        async with fake_server(lambda fake: setattr(fake, "port", port)) as fake:
            if not pools:
                pools.append(pool_of(fake))
            assert await speak(pools[0]) > 6
            assert pools[0].n_connections == 1
            return fake.port

    port = asyncio.run(speak_on(0))
    asyncio.run(speak_on(port))
