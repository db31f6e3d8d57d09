"""Encoding on threads: everything is done, and nobody hears a difference."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from rtts.engine.interface import Event
from rtts.engine.tone import ToneOptions
from rtts.protocol.audio_message import HEADER
from rtts.server.encoders import Encoders, threads_here
from tests.server.raw import eventually
from tests.server.rig import InlineEngine, ready, talking

TEXT = "A first sentence, you see. And a second one <break time='300ms'/> that stops. A third! "


async def _run(encoders: Encoders, jobs: Sequence[Callable[[], object]]) -> list[str]:
    """Have jobs done; the names of the threads that were told of the ends."""
    told: list[str] = []
    for job in jobs:
        assert encoders.has_room
        encoders.begin(job, lambda: told.append(threading.current_thread().name))  # type: ignore[arg-type]
    await eventually(lambda: len(told) == len(jobs))
    return told


async def test_jobs_run_side_by_side_and_the_loop_is_told() -> None:
    """Jobs that wait for each other need as many threads; each end is told on the loop's thread."""
    encoders, meeting = Encoders(3), threading.Barrier(3, timeout=10)
    done: list[str] = []

    def job() -> None:
        meeting.wait()
        done.append(threading.current_thread().name)

    for _ in range(5):
        told = await _run(encoders, [job] * 3)
        assert set(told) == {threading.current_thread().name}
    encoders.close()
    encoders.close()
    assert len(done) == 15
    assert len(set(done)) == 3
    assert threading.current_thread().name not in done


async def test_room_is_bounded() -> None:
    """No more is begun than the threads will soon be at, so that what is urgent can still go first."""
    encoders, gate = Encoders(2), threading.Event()
    ends: list[None] = []
    while encoders.has_room:
        encoders.begin(lambda: gate.wait(10), lambda: ends.append(None))  # type: ignore[arg-type, return-value]
    begun = 2 * 2
    gate.set()
    await eventually(lambda: len(ends) == begun)
    assert encoders.has_room
    encoders.close()


async def test_a_job_that_raises_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """What a job raises is logged and its end told; the next are done, on as many threads."""
    encoders, meeting = Encoders(2), threading.Barrier(2, timeout=10)
    await _run(encoders, [lambda: 1 / 0, lambda: 1 / 0])
    await _run(encoders, [meeting.wait, meeting.wait])
    encoders.close()
    assert "encoding failed" in caplog.text


@pytest.mark.parametrize("threads", [0, 1])
def test_one_thread_is_none(threads: int) -> None:
    """With fewer than two there are no threads, and always room."""
    before = threading.active_count()
    encoders = Encoders(threads)
    assert threading.active_count() == before
    assert (encoders.width, encoders.has_room) == (0, True)


def test_threads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few cores have no threads to spare, many have a bounded number."""
    for cores, threads in ((1, 0), (2, 0), (4, 0), (6, 2), (16, 7), (128, 8)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, n=cores: set(range(n)), raising=False)
        assert threads_here() == threads


class LumpyEngine(InlineEngine):
    """Hands over what everybody's utterances made in 20 ms at once, as an engine of batches does."""

    lump: list[Event] | None = None

    def say(self, events: Sequence[Event]) -> None:
        if self.lump is None:
            self.lump = []
            asyncio.get_running_loop().call_later(0.02, self._hand_over)
        self.lump += events

    def _hand_over(self) -> None:
        lump, self.lump = self.lump or [], None
        super().say(lump)


async def _heard(threads: int, spy: Callable[[int], None]) -> dict[int, list[bytes]]:
    """What six clients hear of a server with so many encoders: each one's audio messages."""
    engine = LumpyEngine(ToneOptions(max_utterances=10))
    async with ready(engine, encoder_threads=threads) as server:
        encoders = server._encoders
        begin = encoders.begin

        def counting(job: Callable[[], None], done: Callable[[], None]) -> None:
            begin(job, done)
            spy(encoders._n_begun)

        encoders.begin = counting  # type: ignore[method-assign]

        async def client(number: int) -> list[bytes]:
            async with talking(server) as talk:
                codec = ("opus", "opus", "pcm_s16le")[number % 3]
                await talk.say("start", ctx="a", seed=number, format={"codec": codec})
                await talk.say("text", ctx="a", text=TEXT * (1 + number % 2), end=True)
                _, before = await talk.until("done")
                return [message[HEADER.size :] for message in before if isinstance(message, bytes)]

        heard = await asyncio.gather(*(client(number) for number in range(6)))
        await eventually(lambda: server.service.live_utterances == 0)
    return dict(enumerate(heard))


async def test_threads_change_no_byte() -> None:
    """Whoever encodes, and with whom: every client gets the same audio, pauses included."""
    sizes: list[int] = []
    alone = await _heard(0, sizes.append)
    assert not sizes
    together = await _heard(4, sizes.append)
    assert max(sizes, default=0) > 1, "nothing was encoded together"
    for number, messages in alone.items():
        assert b"".join(messages) == b"".join(together[number])
    assert all(b"".join(messages) for messages in alone.values())
