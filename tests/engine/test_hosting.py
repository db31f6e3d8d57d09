"""What every host does, on a thread and in a process alike."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtts.engine.hosting import Backoff, HostedEngine, HostState, Life, Reports
from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    Command,
    EngineDown,
    EngineLoad,
    EngineReady,
    FinishReason,
    GrantAudio,
    LoadVoice,
    StartUtterance,
    UtteranceFailed,
    UtteranceFinished,
    VoiceEvicted,
    VoiceFailed,
    VoiceLoaded,
)
from rtts.engine.local import LocalEngine
from rtts.engine.remote import RemoteEngine, RemoteOptions
from rtts.engine.tone import ToneOptions
from rtts.engine.tone.options import capabilities
from rtts.errors import InternalError
from tests.engine.conformance import Subject, spoken_alone
from tests.engine.cores import Chatty, Touchy, after, misconfigured, never, tone, vanishing
from tests.engine.hosts import Listener

TEXTS = ("Hello there.", "How are you today?", "Fine")
QUICK = Backoff(first_s=0.05, max_s=0.2, healthy_s=30.0)

Make = Callable[..., HostedEngine]


def make_local(
    factory: Callable[..., Any], *, workers: int = 1, backoff: Backoff = QUICK, **kwargs: object
) -> HostedEngine:
    return LocalEngine(lambda: factory(**kwargs), workers, backoff=backoff)


def make_remote(
    factory: Callable[..., Any], *, workers: int = 1, backoff: Backoff = QUICK, **kwargs: object
) -> HostedEngine:
    options = RemoteOptions(backoff=backoff)
    return RemoteEngine(factory, kwargs=kwargs, workers=workers, options=options)


@pytest.fixture(params=[make_local, make_remote], ids=["local", "remote"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


@pytest.fixture
async def hosted(make: Make) -> AsyncIterator[Callable[..., Any]]:
    """Starts engines and closes them after the test."""
    listeners: list[Listener] = []

    async def start(factory: Callable[..., Any] = tone, **kwargs: Any) -> Listener:
        listener = Listener(make(factory, **kwargs))
        listeners.append(listener)
        await listener.engine.start(listener.deliver)
        return listener

    yield start
    for listener in listeners:
        await listener.engine.close()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """For tests whose cores die: the tracebacks are expected."""
    caplog.set_level(logging.CRITICAL)


# --- speaking ------------------------------------------------------------------------------------


async def test_hosting_changes_no_byte(hosted: Callable[..., Any]) -> None:
    """Twenty utterances at once through a host are what the core says of each alone."""
    listener = await hosted()
    ledgers = [listener.say(*TEXTS[n % 3 :], seed=n % 4) for n in range(20)]
    assert await listener.ended(*ledgers) == [FinishReason.COMPLETED] * 20
    subject = Subject(tone, voice="tone", texts=TEXTS)
    for n, ledger in enumerate(ledgers):
        alone = spoken_alone(subject, TEXTS[n % 3 :], seed=n % 4)
        assert {k: bytes(pcm) for k, pcm in ledger.pcm.items()} == alone
    assert listener.engine.utterances == 0


async def test_what_is_submitted_before_ready_is_spoken(hosted: Callable[..., Any]) -> None:
    """Commands right after `start` wait for the engine; state says where it stands."""
    listener = await hosted()
    assert listener.engine.state is HostState.STARTING
    ledger = listener.say(*TEXTS)
    listener.submit(LoadVoice("tone-low"))
    assert await listener.ended(ledger) == [FinishReason.COMPLETED]
    await listener.until(lambda: any(e.voice == "tone-low" for e in listener.of(VoiceLoaded)))
    assert isinstance(listener.events[0], EngineReady)
    assert listener.engine.state is HostState.READY


async def test_text_and_credit_may_come_late(hosted: Callable[..., Any]) -> None:
    """A host that fell asleep wakes for every command."""
    listener = await hosted()
    ledger = listener.say(finish=False, until_s=0.0)
    await asyncio.sleep(0.05)
    listener.submit(AppendText(ledger.start.utterance_id, 0, "Hello there."))
    for until_s in (0.2, 0.4, 10.0):
        await asyncio.sleep(0.02)
        listener.submit(GrantAudio(ledger.start.utterance_id, until_s))
    await listener.until(lambda: ledger.closed == [0])
    listener.submit(CancelUtterance(ledger.start.utterance_id))
    assert await listener.ended(ledger) == [FinishReason.CANCELLED]


async def test_simulated_time_passes(hosted: Callable[..., Any]) -> None:
    """A host comes back when a timed core asks to, neither at once nor late."""
    listener = await hosted(first_chunk_delay_s=0.15)
    await listener.ready()
    asked_s = time.monotonic()
    ledger = listener.say("Hello.")
    await listener.heard(ledger)
    assert 0.15 <= time.monotonic() - asked_s < 1.0


async def test_a_cancel_overtakes_audio_that_was_not_made(hosted: Callable[..., Any]) -> None:
    """A cancel ends an hour of speech at once."""
    listener = await hosted()
    await listener.ready()
    ledger = listener.say("a long text " * 5_000, until_s=1.0)
    await listener.heard(ledger)
    listener.submit(
        GrantAudio(ledger.start.utterance_id, 1e6), CancelUtterance(ledger.start.utterance_id)
    )
    assert await listener.ended(ledger) == [FinishReason.CANCELLED]
    assert ledger.audio_s < 60.0


async def test_what_a_core_says_too_much_is_not_heard(hosted: Callable[..., Any]) -> None:
    """One terminal event per utterance, whatever the core does; the ledgers check it."""
    listener = await hosted(Chatty)
    ledgers = [listener.say("Hi") for _ in range(5)]
    assert await listener.ended(*ledgers) == [FinishReason.COMPLETED] * 5
    assert await listener.ended(listener.say("Hi")) == [FinishReason.COMPLETED]


async def test_programming_errors_are_told(hosted: Callable[..., Any], make: Make) -> None:
    """Starting twice, or submitting before the start, is a bug of ours and says so."""
    listener = await hosted()
    with pytest.raises(InternalError):
        await listener.engine.start(listener.deliver)
    engine = make(tone)
    with pytest.raises(InternalError):
        engine.submit([LoadVoice("tone")])
    await engine.close()


# --- dying ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
async def test_a_death_fails_everybody_once_and_is_survived(hosted: Callable[..., Any]) -> None:
    """The core raises: all its utterances fail typed, then down, then ready, then speech."""
    listener = await hosted(Touchy)
    await listener.ready()
    waiting = [listener.say(finish=False) for _ in range(3)]
    killer = listener.say("Hi", instructions="raise")
    assert await listener.ended(*waiting, killer) == ["engine_dead"] * 4
    for ledger in waiting:
        failed = ledger.terminal
        assert isinstance(failed, UtteranceFailed)
        assert failed.retryable and failed.retry_after_s == QUICK.first_s
        assert "asked to" not in failed.message  # a client is not shown our insides
    down = listener.of(EngineDown)
    assert [each.message for each in down] == ["ZeroDivisionError: asked to"]
    assert down[0].restart_in_s == QUICK.first_s
    assert listener.events.index(down[0]) > max(
        listener.events.index(each) for each in listener.of(UtteranceFailed)
    )
    assert listener.engine.state is HostState.DOWN
    assert listener.engine.restarts == 0
    await listener.ready(times=2)
    assert listener.engine.restarts == 1
    assert listener.engine.state is HostState.READY
    assert await listener.ended(listener.say(*TEXTS)) == [FinishReason.COMPLETED]


@pytest.mark.usefixtures("quiet")
async def test_while_down_utterances_fail_at_once_and_once(hosted: Callable[..., Any]) -> None:
    """Refused without waiting for the restart, not from inside `submit`, and only once."""
    listener = await hosted(Touchy, backoff=Backoff(first_s=30.0, max_s=30.0))
    await listener.ended(listener.say("Hi", instructions="raise"))
    asked_s = time.monotonic()
    refused = listener.say(*TEXTS)
    assert refused.terminal is None  # submit does not call back
    listener.submit(CancelUtterance(refused.start.utterance_id))
    assert await listener.ended(refused) == ["engine_dead"]
    assert time.monotonic() - asked_s < 1.0
    assert isinstance(refused.terminal, UtteranceFailed) and refused.terminal.retryable


@pytest.mark.usefixtures("quiet")
async def test_commands_on_the_way_into_a_death_do_not_haunt(hosted: Callable[..., Any]) -> None:
    """What was submitted before the death was known is failed, and not spoken afterwards."""
    listener = await hosted(Touchy)
    await listener.ready()
    listener.say("Hi", instructions="raise")
    crowd = [listener.say(*TEXTS) for _ in range(20)]  # the loop cannot know of the death yet
    assert await listener.ended(*crowd) == ["engine_dead"] * 20
    await listener.ready(times=2)
    assert await listener.ended(listener.say("Hi")) == [FinishReason.COMPLETED]
    assert listener.engine.utterances == 0


@pytest.mark.usefixtures("quiet")
async def test_a_factory_that_fails_is_told_and_not_hammered(hosted: Callable[..., Any]) -> None:
    """Startup failures carry their message; attempts are spaced by the backoff."""
    listener = await hosted(never, backoff=Backoff(first_s=0.1, max_s=10.0))
    refused = listener.say("Hi")
    await listener.until(lambda: len(listener.of(EngineDown)) == 3)
    down = listener.of(EngineDown)
    assert "FileNotFoundError: no weights" in down[0].message
    assert pytest.approx([each.restart_in_s for each in down]) == [0.1, 0.2, 0.4]
    at_s = listener.when(EngineDown)
    assert at_s[1] - at_s[0] >= 0.1 and at_s[2] - at_s[1] >= 0.2
    assert listener.engine.state is HostState.DOWN
    assert await listener.ended(refused) == ["engine_dead"]


async def test_a_wrong_setting_is_final(
    hosted: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A ConfigError before the first ready is told once, in its own words and without a traceback,
    and the factory is not tried again; who waits is failed."""
    listener = await hosted(misconfigured, backoff=Backoff(first_s=0.02, max_s=0.02))
    refused = listener.say("Hi")
    assert await listener.ended(refused) == ["engine_dead"]
    await asyncio.sleep(0.3)
    assert listener.of(EngineDown) == [
        EngineDown("tone.pitch: 440 is not allowed", 0.0, is_final=True)
    ]
    assert listener.engine.restarts == 0
    assert "Traceback" not in caplog.text


@pytest.mark.usefixtures("quiet")
async def test_a_setting_that_was_right_once_is_tried_again(
    hosted: Callable[..., Any], tmp_path: Path
) -> None:
    """After a first ready a ConfigError is a death like others: a folder may come back."""
    listener = await hosted(vanishing, marks=str(tmp_path))
    await listener.ready()
    listener.say("Hi", instructions="raise")
    await listener.ready(times=2)
    assert [each.is_final for each in listener.of(EngineDown)] == [False, False]


@pytest.mark.usefixtures("quiet")
async def test_a_factory_may_recover(hosted: Callable[..., Any], tmp_path: Path) -> None:
    """After failed attempts the first that works makes the engine ready, voices and all."""
    listener = await hosted(after, marks=str(tmp_path), failures=2)
    listener.submit(LoadVoice("tone-high"))
    await listener.ready()
    assert len(listener.of(EngineDown)) == 2
    await listener.until(lambda: bool(listener.of(VoiceLoaded)))
    assert await listener.ended(listener.say("Hi")) == [FinishReason.COMPLETED]


@pytest.mark.usefixtures("quiet")
async def test_voices_are_loaded_again_after_a_death(hosted: Callable[..., Any]) -> None:
    """A pinned voice is warm in the next life without anybody asking; others are not."""
    listener = await hosted(Touchy)
    listener.submit(LoadVoice("tone-low"), LoadVoice("tone-high", pinned=False))
    await listener.until(lambda: len(listener.of(VoiceLoaded)) == 2)
    listener.say("Hi", instructions="raise")
    await listener.until(lambda: len(listener.of(VoiceLoaded)) == 3)
    assert listener.of(VoiceLoaded)[2].voice == "tone-low"
    low, high = listener.say("Hi", voice="tone-low"), listener.say("Hi", voice="tone-high")
    await listener.ended(low, high)
    cached = [ledger.terminal.stats.voice_cached for ledger in (low, high)]
    assert cached == [True, False]


@pytest.mark.usefixtures("quiet")
async def test_it_dies_again_and_again(hosted: Callable[..., Any]) -> None:
    """A core that dies every few chunks fails utterances, never the host."""
    listener = await hosted(die_after_chunks=3, backoff=Backoff(first_s=0.01, max_s=0.01))
    for life in range(1, 4):
        await listener.ready(times=life)
        assert await listener.ended(listener.say("a long text " * 5)) == ["engine_dead"]
    assert listener.engine.restarts == 2


# --- closing -------------------------------------------------------------------------------------


async def test_close_while_busy(hosted: Callable[..., Any]) -> None:
    """Closing ends what is live, typed, and is done when it returns; twice is as good as once."""
    listener = await hosted()
    await listener.ready()
    busy = [listener.say("a long text " * 5_000) for _ in range(20)]
    await listener.heard(busy[0])
    await asyncio.gather(listener.engine.close(), listener.engine.close())
    assert await listener.ended(*busy) == ["shutting_down"] * 20
    said = len(listener.events)
    late = listener.say("Hi")
    listener.submit(LoadVoice("tone"), CancelUtterance(late.start.utterance_id))
    assert await listener.ended(late) == ["shutting_down"]
    await listener.engine.close()
    assert len(listener.events) == said + 1
    assert listener.engine.state is HostState.CLOSED


async def test_close_before_ready(hosted: Callable[..., Any]) -> None:
    """An engine that is still loading can be closed, and then says nothing more."""
    listener = await hosted()
    await listener.engine.close()
    said = len(listener.events)
    await asyncio.sleep(0.05)
    assert len(listener.events) == said
    assert listener.engine.state is HostState.CLOSED


@pytest.mark.usefixtures("quiet")
async def test_close_while_down(hosted: Callable[..., Any]) -> None:
    """Closing between a death and the restart starts nothing any more."""
    listener = await hosted(Touchy, backoff=Backoff(first_s=0.1))
    await listener.ended(listener.say("Hi", instructions="raise"))
    await listener.engine.close()
    said = len(listener.events)
    await asyncio.sleep(0.2)
    assert len(listener.events) == said
    assert listener.engine.restarts == 0


# --- several workers -----------------------------------------------------------------------------


async def test_workers_look_like_one_engine(hosted: Callable[..., Any]) -> None:
    """One ready, one answer to a load, and the places of both; each speaks its share."""
    listener = await hosted(workers=2, max_utterances=3)
    listener.submit(LoadVoice("tone-low"), LoadVoice("no such voice"))
    await listener.ready()
    assert listener.of(EngineReady)[0].capabilities.max_utterances == 6
    six = [listener.say("a long text", voice="tone-low", until_s=0.1) for _ in range(6)]
    for ledger in six:
        await listener.heard(ledger)
    seventh = listener.say("Hi")
    assert await listener.ended(seventh) == ["overloaded"]
    await listener.until(lambda: bool(listener.of(EngineLoad)))
    await listener.until(lambda: listener.of(EngineLoad)[-1].utterances == 6)
    for ledger in six:
        listener.submit(CancelUtterance(ledger.start.utterance_id))
    await listener.ended(*six)
    await listener.until(lambda: listener.of(EngineLoad)[-1].utterances == 0)
    assert [VoiceLoaded("tone-low", cached=False, load_s=0.0)] == listener.of(VoiceLoaded)
    assert [each.code for each in listener.of(VoiceFailed)] == ["unknown_voice"]
    assert len(listener.of(EngineReady)) == 1


@pytest.mark.usefixtures("quiet")
async def test_one_dead_worker_does_not_take_the_engine_down(hosted: Callable[..., Any]) -> None:
    """Its own utterances fail, the other worker's go on, and new ones find a place at once."""
    listener = await hosted(Touchy, workers=2, backoff=Backoff(first_s=0.3))
    listener.submit(LoadVoice("tone-low"))
    await listener.ready()
    await listener.until(lambda: bool(listener.of(VoiceLoaded)))
    stays = listener.say("a long text", until_s=0.1)
    killer = listener.say("Hi", instructions="raise")
    assert await listener.ended(killer) == ["engine_dead"]
    assert listener.engine.state is HostState.READY
    assert await listener.ended(listener.say("Hi")) == [FinishReason.COMPLETED]
    listener.submit(GrantAudio(stays.start.utterance_id, 100.0))
    assert await listener.ended(stays) == [FinishReason.COMPLETED]
    assert not listener.of(EngineDown)
    # The dead one comes back with its voice, silently.
    loads = lambda: [each for each in listener.of(VoiceLoaded) if each.voice == "tone-low"]  # noqa: E731
    await listener.until(lambda: len(loads()) == 2)
    assert len(listener.of(EngineReady)) == 1
    assert listener.engine.restarts == 1


# --- the bookkeeping, with lives that are made of nothing ----------------------------------------


class PaperLife:
    """A life that does what a test says."""

    def __init__(self, reports: Reports) -> None:
        self.reports = reports
        self.sent: list[Command] = []
        self.is_stopped = False

    def send(self, commands: Sequence[Command]) -> None:
        assert commands and not self.is_stopped
        self.sent += commands

    async def stop(self) -> None:
        self.is_stopped = True


class Paper:
    """A hosted engine with paper lives."""

    def __init__(self, workers: int, backoff: Backoff = QUICK) -> None:
        self.lives: list[list[PaperLife]] = [[] for _ in range(workers)]
        self.refusals = 0  # launches that are to fail
        launches = [self._launch_of(index) for index in range(workers)]
        self.engine = HostedEngine("paper", launches, backoff)
        self.listener = Listener(self.engine)

    def _launch_of(self, index: int) -> Callable[[asyncio.AbstractEventLoop, Reports], Life]:
        def launch(loop: asyncio.AbstractEventLoop, reports: Reports) -> Life:
            if self.refusals:
                self.refusals -= 1
                raise RuntimeError("can't start new thread")
            self.lives[index].append(PaperLife(reports))
            return self.lives[index][-1]

        return launch

    async def start(self, *, ready: bool = True) -> None:
        await self.engine.start(self.listener.deliver)
        if ready:
            for index in range(len(self.lives)):
                self.ready(index)

    def ready(self, index: int, **options: int) -> None:
        caps = capabilities(ToneOptions(**options))  # type: ignore[arg-type]
        self.lives[index][-1].reports.events([EngineReady(caps)])

    def starts(self, index: int) -> list[int]:
        return [c.utterance_id for c in self.lives[index][-1].sent if isinstance(c, StartUtterance)]


@pytest.mark.parametrize(
    ("deaths", "delay_s"), [(1, 0.1), (2, 0.2), (3, 0.4), (7, 6.4), (8, 10.0), (5_000, 10.0)]
)
def test_backoff_doubles_to_its_limit(deaths: int, delay_s: float) -> None:
    """0.1 s, doubled with each death, at most 10 s."""
    assert Backoff().delay_s(deaths) == pytest.approx(delay_s)


async def test_a_healthy_life_starts_the_backoff_afresh() -> None:
    """The count of deaths is forgotten after a life that was ready long enough."""
    for healthy_s, waits in ((60.0, [0.01, 0.02, 0.04]), (0.0, [0.01, 0.01, 0.01])):
        paper = Paper(1, Backoff(first_s=0.01, healthy_s=healthy_s))
        await paper.start()
        for life in range(1, 4):
            await paper.listener.ready(times=life)
            paper.lives[0][-1].reports.died("x")
            await asyncio.sleep(0.1)
            paper.ready(0)
        down = paper.listener.of(EngineDown)
        assert waits == pytest.approx([each.restart_in_s for each in down])
        await paper.engine.close()


async def test_a_new_utterance_goes_where_the_fewest_are() -> None:
    """Least loaded first, and every later command of it to the same worker."""
    paper = Paper(3)
    await paper.start()
    say = paper.listener.say
    first = [say("Hi", finish=False) for _ in range(6)]
    assert [paper.starts(index) for index in range(3)] == [[1, 4], [2, 5], [3, 6]]
    for ledger in (first[1], first[4]):
        number = ledger.start.utterance_id
        done = UtteranceFinished(number, FinishReason.CANCELLED)
        paper.listener.submit(CancelUtterance(number))
        assert paper.lives[1][-1].sent[-1] == CancelUtterance(number)
        paper.lives[1][-1].reports.events([done])
    say("Hi")
    say("Hi")
    assert paper.starts(1) == [2, 5, 7, 8]
    await paper.engine.close()


async def test_a_life_that_cannot_start_is_a_death() -> None:
    """No thread, no process: told, and tried again."""
    paper = Paper(1, Backoff(first_s=0.01))
    paper.refusals = 2
    await paper.start(ready=False)
    refused = paper.listener.say("Hi")
    await paper.listener.until(lambda: len(paper.listener.of(EngineDown)) == 2)
    assert "can't start new thread" in paper.listener.of(EngineDown)[0].message
    assert await paper.listener.ended(refused) == ["engine_dead"]
    await asyncio.sleep(0.05)
    paper.ready(0)
    assert paper.engine.state is HostState.READY
    await paper.engine.close()


async def test_late_words_of_the_dead_are_not_heard() -> None:
    """A life that reports after its death was reported says nothing to anybody."""
    paper = Paper(1, Backoff(first_s=0.01))
    await paper.start()
    ledger = paper.listener.say("Hi")
    number = ledger.start.utterance_id
    dead = paper.lives[0][0]
    dead.reports.died("x")
    said = len(paper.listener.events)
    dead.reports.events([AudioProduced(number, 0, b"\0\0", begun_s=1.0)])
    dead.reports.died("again")
    assert len(paper.listener.events) == said
    await asyncio.sleep(0.05)
    assert dead.is_stopped and len(paper.lives[0]) == 2
    dead.reports.events([EngineReady(capabilities(ToneOptions()))])
    assert paper.engine.state is HostState.DOWN
    await paper.engine.close()


async def test_a_life_that_is_not_ready_again_takes_nothing() -> None:
    """After a death utterances are refused until ready, also while the next life is loading."""
    paper = Paper(1, Backoff(first_s=0.0))
    await paper.start()
    paper.lives[0][-1].reports.died("x")
    await asyncio.sleep(0.05)
    assert len(paper.lives[0]) == 2
    assert await paper.listener.ended(paper.listener.say("Hi")) == ["engine_dead"]
    paper.ready(0)
    paper.listener.say("Hi")
    assert paper.starts(0)
    await paper.engine.close()


async def test_only_pinned_voices_are_remembered() -> None:
    """A load that was answered is asked of the next life only if it was to last."""
    paper = Paper(1, Backoff(first_s=0.0))
    await paper.start()
    paper.listener.submit(
        LoadVoice("tone"), LoadVoice("tone", pinned=False), LoadVoice("tone-low", pinned=False)
    )
    for voice in ("tone", "tone", "tone-low"):
        paper.lives[0][-1].reports.events([VoiceLoaded(voice, cached=False, load_s=0.0)])
    paper.lives[0][-1].reports.died("x")
    await asyncio.sleep(0.05)
    paper.ready(0)
    assert paper.lives[0][-1].sent == [LoadVoice("tone")]
    await paper.engine.close()


async def test_ready_means_all_workers() -> None:
    """Two of three ready is not ready, though they take utterances."""
    paper = Paper(3)
    await paper.start(ready=False)
    paper.ready(0)
    paper.ready(2)
    assert paper.engine.state is HostState.STARTING
    for _ in range(4):
        paper.listener.say("Hi", finish=False)
    assert [paper.starts(index) for index in range(3)] == [[1, 3], [], [2, 4]]
    paper.ready(1)
    assert len(paper.listener.of(EngineReady)) == 1
    await paper.engine.close()


async def test_down_means_all_workers_and_ready_again_too() -> None:
    """The engine is down with its last worker, and ready when all are back."""
    paper = Paper(2, Backoff(first_s=0.01))
    await paper.start()
    paper.lives[0][-1].reports.died("a")
    assert not paper.listener.of(EngineDown)
    paper.lives[1][-1].reports.died("b")
    assert [each.message for each in paper.listener.of(EngineDown)] == ["b"]
    await asyncio.sleep(0.1)
    paper.ready(0)
    assert paper.engine.state is HostState.DOWN
    paper.listener.say("Hi")
    assert paper.starts(0)
    paper.ready(1)
    assert len(paper.listener.of(EngineReady)) == 2
    await paper.engine.close()


async def test_a_load_outlives_the_workers_that_owed_it() -> None:
    """A voice is reported when every worker that lives has it, also across deaths."""
    paper = Paper(2, Backoff(first_s=0.01))
    await paper.start()
    paper.listener.submit(LoadVoice("tone"))
    loaded = VoiceLoaded("tone", cached=True, load_s=0.0)
    paper.lives[0][-1].reports.events([loaded])
    assert not paper.listener.of(VoiceLoaded)
    paper.lives[1][-1].reports.died("x")
    assert [loaded] == paper.listener.of(VoiceLoaded)
    paper.listener.submit(LoadVoice("tone-low"))
    paper.lives[0][-1].reports.died("x")
    await asyncio.sleep(0.1)
    for index in (0, 1):
        paper.ready(index)
        assert LoadVoice("tone-low") in paper.lives[index][-1].sent
    low = [
        VoiceLoaded("tone-low", cached, load_s) for cached, load_s in ((True, 0.1), (False, 0.5))
    ]
    paper.lives[0][-1].reports.events([low[0]])
    paper.lives[1][-1].reports.events([low[1]])
    assert [loaded, VoiceLoaded("tone-low", False, 0.5)] == paper.listener.of(VoiceLoaded)
    await paper.engine.close()


async def test_load_of_several_is_one_load() -> None:
    """Utterances add up, the backlog is the shortest, and it is told at most every 50 ms."""
    paper = Paper(2)
    await paper.start()
    first, second = (paper.lives[index][-1].reports for index in (0, 1))
    first.events([EngineLoad(3, 2.0, 0.1)])
    second.events([EngineLoad(2, 1.0, 0.2)])
    second.events([EngineLoad(1, 0.5, 0.2)])
    assert [EngineLoad(3, 2.0, 0.1)] == paper.listener.of(EngineLoad)
    await paper.listener.until(lambda: len(paper.listener.of(EngineLoad)) == 2)
    assert EngineLoad(4, 0.5, 0.2) == paper.listener.of(EngineLoad)[1]
    at_s = paper.listener.when(EngineLoad)
    assert at_s[1] - at_s[0] >= 0.045
    await paper.engine.close()


async def test_evictions_and_loads_by_use_are_passed_on() -> None:
    """What nobody asked for is news all the same."""
    paper = Paper(2)
    await paper.start()
    news = [VoiceLoaded("tone", False, 0.1), VoiceEvicted("tone-low")]
    paper.lives[1][-1].reports.events(news)
    assert news == paper.listener.events[-2:]
    await paper.engine.close()


actions = st.lists(
    st.tuples(
        st.sampled_from(
            ("say", "say", "say", "finish", "cancel", "ready", "die", "rest", "load", "close")
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(actions=actions, workers=st.integers(1, 3))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_one_terminal_event_in_any_order(
    actions: list[tuple[str, int]], workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever lives, dies or closes, each utterance ends exactly once and none is forgotten."""
    caplog.set_level(logging.CRITICAL)
    asyncio.run(_any_order(actions, workers))


async def _any_order(actions: list[tuple[str, int]], workers: int) -> None:
    paper = Paper(workers, Backoff(first_s=0.0, max_s=0.0))
    listener = paper.listener
    await paper.start(ready=False)
    for action, pick in actions:
        lives = [each[-1] for each in paper.lives]
        life = lives[pick % workers]
        started = [n for n, ledger in listener.ledgers.items() if ledger.terminal is None]
        match action:
            case "say":
                listener.say(finish=False)
            case "finish" if started:
                number = started[pick % len(started)]
                listener.ledgers[number].is_cancelled = True
                for each in lives:  # only its owner is believed
                    each.reports.events([UtteranceFinished(number, FinishReason.CANCELLED)])
            case "cancel" if started:
                listener.submit(CancelUtterance(started[pick % len(started)]))
            case "ready":
                life.reports.events([EngineReady(capabilities(ToneOptions()))])
            case "die":
                life.reports.died("x")
            case "rest":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            case "load":
                listener.submit(LoadVoice("tone"))
            case "close" if pick == 0:
                await paper.engine.close()
            case _:
                pass
    await paper.engine.close()
    await asyncio.sleep(0)
    assert all(ledger.terminal is not None for ledger in listener.ledgers.values())
    assert paper.engine.utterances == 0
