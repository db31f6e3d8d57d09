"""The thread host: what is particular to threads. What all hosts do is in test_hosting."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Sequence

import pytest

from rtts.engine.hosting import Backoff, HostState
from rtts.engine.interface import (
    AudioProduced,
    CancelUtterance,
    Command,
    EngineDown,
    Event,
    FinishReason,
)
from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine
from tests.engine.cores import Touchy, never
from tests.engine.hosts import Listener

# The command line's daemons, which other tests of this process may have left behind.
PIPES = {"rtts-stdin", "rtts-stdout"}


def threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("rtts-") and name not in PIPES]


async def started(engine: LocalEngine) -> Listener:
    listener = Listener(engine)
    await engine.start(listener.deliver)
    return listener


async def test_no_thread_is_left_after_close() -> None:
    """One thread a worker while it runs, none when `close` has returned, whatever it was doing."""
    for busy in (False, True):
        listener = await started(LocalEngine(ToneEngine, workers=3, name="mine"))
        assert sorted(threads()) == ["rtts-mine-0", "rtts-mine-1", "rtts-mine-2"]
        await listener.ready()
        if busy:
            for _ in range(6):
                listener.say("a long text " * 5_000)
            await listener.until(lambda listener=listener: bool(listener.of(AudioProduced)))
        await listener.engine.close()
        assert not threads()


async def test_no_thread_is_left_of_the_dead(caplog: pytest.LogCaptureFixture) -> None:
    """Each death ends its thread; closing in the middle of it all leaves none."""
    caplog.set_level(logging.CRITICAL)
    listener = await started(LocalEngine(never, workers=2, backoff=Backoff(0.01, 0.01)))
    await listener.until(lambda: len(listener.of(EngineDown)) >= 6)
    assert len(threads()) <= 2
    await listener.engine.close()
    assert not threads()


async def test_a_core_lives_on_one_thread() -> None:
    """A core is built, fed and stepped on its own thread only."""
    seen: set[int] = set()

    class Watched(ToneEngine):
        def __init__(self) -> None:
            seen.add(threading.get_ident())
            super().__init__()

        def apply(self, command: Command) -> None:
            seen.add(threading.get_ident())
            super().apply(command)

        def step(self, now: float) -> Sequence[Event]:
            seen.add(threading.get_ident())
            return super().step(now)

    listener = await started(LocalEngine(Watched))
    await listener.ended(listener.say("Hello there."))
    await listener.engine.close()
    assert len(seen) == 1
    assert threading.get_ident() not in seen


async def test_a_core_that_exits_is_a_core_that_died(caplog: pytest.LogCaptureFixture) -> None:
    """SystemExit from a library ends the thread; the host sees a death, not silence."""
    caplog.set_level(logging.CRITICAL)
    listener = await started(LocalEngine(Touchy, backoff=Backoff(0.01)))
    await listener.ready()
    assert await listener.ended(listener.say("Hi", instructions="exit")) == ["engine_dead"]
    await listener.ready(times=2)
    await listener.engine.close()


async def test_the_traceback_of_a_death_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An operator finds out where the core raised."""
    listener = await started(LocalEngine(Touchy))
    await listener.ended(listener.say("Hi", instructions="raise"))
    assert "ZeroDivisionError: asked to" in caplog.text
    assert "cores.py" in caplog.text
    await listener.engine.close()


async def test_a_cancel_is_seen_within_one_step() -> None:
    """Commands are applied between steps, also by a core that never rests."""
    steps_after_cancel = 0
    is_cancelled = threading.Event()

    class Counted(ToneEngine):
        def step(self, now: float) -> Sequence[Event]:
            nonlocal steps_after_cancel
            before = is_cancelled.is_set()
            time.sleep(0.002)
            events = super().step(now)
            steps_after_cancel += before and any(isinstance(e, AudioProduced) for e in events)
            return events

    listener = await started(LocalEngine(Counted))
    ledger = listener.say("a long text " * 5_000)
    await listener.heard(ledger)
    listener.submit(CancelUtterance(ledger.start.utterance_id))
    is_cancelled.set()
    assert await listener.ended(ledger) == [FinishReason.CANCELLED]
    assert steps_after_cancel == 0
    await listener.engine.close()


async def test_many_events_are_one_delivery() -> None:
    """While the loop is busy events pile up, and then come at once, in order."""
    sizes: list[int] = []
    listener = Listener(LocalEngine(ToneEngine))

    def deliver(events: Sequence[Event]) -> None:
        sizes.append(len(events))
        listener.deliver(events)

    await listener.engine.start(deliver)
    await listener.ready()
    ledger = listener.say("a long text " * 20)
    time.sleep(0.2)  # noqa: ASYNC251 - the loop is busy
    assert await listener.ended(ledger) == [FinishReason.COMPLETED]
    assert max(sizes) > 100
    await listener.engine.close()


class Tireless(ToneEngine):
    """A core that always has something to do, all of it in Python, and little to say."""

    def has_work(self) -> bool:
        return True

    def next_due_s(self, now: float) -> float | None:
        return None

    def step(self, now: float) -> Sequence[Event]:
        sum(range(1_000))
        return super().step(now)


async def test_a_tireless_core_lets_the_loop_run() -> None:
    """Beside a core that steps without a pause the loop is late by little, most of the time."""
    listener = await started(LocalEngine(Tireless))
    await listener.ready()
    late_s: list[float] = []
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.5)  # so that only what the host does itself can help
    try:
        for _ in range(20):
            asked_s = time.monotonic()
            await asyncio.sleep(0.002)
            late_s.append(time.monotonic() - asked_s - 0.002)
    finally:
        sys.setswitchinterval(interval_s)
    assert sorted(late_s)[len(late_s) // 2] < 0.1
    await listener.engine.close()


async def test_a_core_that_does_not_stop_is_left_behind(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing does not wait for ever for a core that hangs in a step."""
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr("rtts.engine.local._STOP_TIMEOUT_S", 0.05)
    listener = await started(LocalEngine(Touchy))
    await listener.ready()
    ledger = listener.say("Hi", instructions="doze")
    await asyncio.sleep(0.05)
    await listener.engine.close()
    assert threads()
    assert await listener.ended(ledger) == ["shutting_down"]
    await asyncio.sleep(0.4)
    assert not threads()  # it stops once it comes back


def test_a_loop_that_is_gone_ends_the_thread() -> None:
    """An engine nobody closed stops by itself when its loop is closed."""

    async def forget() -> None:
        listener = await started(LocalEngine(ToneEngine))
        await listener.ready()
        listener.say("a long text " * 5_000)

    asyncio.run(forget())
    deadline_s = time.monotonic() + 10.0
    while threads() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not threads()


async def test_state_is_told() -> None:
    """starting, ready, closed."""
    engine = LocalEngine(ToneEngine)
    assert engine.state is HostState.STARTING
    listener = await started(engine)
    await listener.ready()
    assert engine.state is HostState.READY
    await engine.close()
    assert engine.state is HostState.CLOSED
