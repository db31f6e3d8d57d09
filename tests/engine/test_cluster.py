"""Several equal engines: who speaks what, and what becomes of it when one dies."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.cluster import (
    AFFINITY_S,
    BYTES_PER_S,
    LIVE_S,
    OPEN_S,
    Candidate,
    Cluster,
    difference,
    merged,
    rank,
)
from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    EngineDown,
    EngineMembers,
    EngineReady,
    FinishReason,
    FinishText,
    LoadVoice,
    StartUtterance,
    VoiceEvicted,
)
from rtts.engine.remote import RemoteEngine, RemoteOptions
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.engine.tone.options import capabilities
from tests.engine.hosts import Listener
from tests.engine.test_hosting import QUICK, Paper

TONE = capabilities(ToneOptions())


def equals(count: int) -> list[Candidate]:
    return [Candidate(member, 0) for member in range(count)]


def say(cluster: Cluster, number: int, text: str, members: int, **fields: object) -> int:
    """Place an utterance whose text is complete."""
    start = StartUtterance(number, **{"voice": "v", **fields})  # type: ignore[arg-type]
    member = cluster.place(start, equals(members))
    cluster.on_command(AppendText(number, 0, text))
    cluster.on_command(FinishText(number))
    return member


class TestPlacing:
    @given(
        st.integers(1, 8),
        st.lists(st.integers(1, 3000), min_size=1, max_size=60),
        st.booleans(),
    )
    @settings(max_examples=150, deadline=None)
    def test_balance(self, members: int, lengths: list[int], is_everywhere: bool) -> None:
        """No engine owes more than another by more than one utterance, and what affinity allows."""
        cluster = Cluster(members)
        if is_everywhere:
            cluster.on_command(LoadVoice("v"))
        for number, length in enumerate(lengths):
            say(cluster, number, "x" * length, members)
            owed = cluster.owed_s()
            all_ = [owed.get(member, 0.0) for member in range(members)]
            longest = max(LIVE_S, max(lengths[: number + 1]) / BYTES_PER_S)
            allowed = longest + (0.0 if is_everywhere else AFFINITY_S)
            assert max(all_) - min(all_) <= allowed + 1e-9

    def test_owed_is_text_less_audio(self) -> None:
        """What was said is owed until it was heard; an open or overlong utterance owes something."""
        cluster = Cluster(1)
        cluster.place(StartUtterance(1, "v"), equals(1))
        assert cluster.owed_s() == {0: OPEN_S}
        cluster.on_command(AppendText(1, 0, "x" * 150))
        assert cluster.owed_s() == {0: pytest.approx(10.0)}
        cluster.on_event(0, AudioProduced(1, 0, bytes(48_000 * 4)))
        assert cluster.owed_s() == {0: pytest.approx(6.0)}
        cluster.on_event(0, AudioProduced(1, 0, bytes(48_000 * 4)))
        assert cluster.owed_s() == {0: OPEN_S}
        cluster.on_command(FinishText(1))
        assert cluster.owed_s() == {0: pytest.approx(2.0)}
        cluster.on_event(0, AudioProduced(1, 0, bytes(48_000 * 9)))
        assert cluster.owed_s() == {0: LIVE_S}
        cluster.ended(1)
        assert cluster.owed_s() == {}

    def test_a_long_text_weighs_more_than_short_ones(self) -> None:
        """While one engine speaks a chapter, the other gets the short ones, all of them."""
        cluster = Cluster(2)
        cluster.on_command(LoadVoice("v"))
        assert say(cluster, 0, "x" * 1500, 2) == 0
        assert [say(cluster, n, "x" * 30, 2) for n in range(1, 40)] == [1] * 39

    def test_affinity(self) -> None:
        """A voice goes where it was, until that owes more by a limit; forgotten when it is evicted."""
        cluster = Cluster(3)
        say(cluster, 0, "x" * 45, 3, voice="other")
        assert say(cluster, 1, "x", 3, voice="mine") == 1
        cluster.ended(0)
        cluster.ended(1)
        assert say(cluster, 2, "x", 3, voice="mine") == 1  # all owe nothing
        assert say(cluster, 3, "x" * 60, 3, voice="mine") == 1
        assert say(cluster, 4, "x", 3, voice="mine") != 1  # it owes 4.5 s more
        for number in range(2, 5):
            cluster.ended(number)
        for member in range(3):
            cluster.on_event(member, VoiceEvicted("mine"))
        assert say(cluster, 5, "x", 3, voice="mine") == 0

    def test_instructions_are_part_of_a_voice(self) -> None:
        """Where a voice comes from its instructions, others are another voice."""
        cluster = Cluster(2)
        cluster.on_command(LoadVoice("design"))
        assert say(cluster, 0, "x", 2, voice="design", instructions="low") == 0
        assert say(cluster, 1, "x", 2, voice="design", instructions="high") == 1
        cluster.ended(0)
        cluster.ended(1)
        assert say(cluster, 2, "x", 2, voice="design", instructions="high") == 1

    def test_a_dead_engine_has_no_voices(self) -> None:
        """After a death nothing is warm there."""
        cluster = Cluster(2)
        say(cluster, 0, "x", 2, voice="other")
        assert say(cluster, 1, "x", 2) == 1
        cluster.ended(0)
        cluster.ended(1)
        cluster.died(1)
        assert say(cluster, 2, "x", 2) == 0

    def test_rank(self) -> None:
        """A free slot before a place in the queue, before a full engine, before one that loads."""
        small = replace(TONE, slots=2, max_utterances=4)
        ranks = [rank(is_ready=True, live=live, capabilities=small) for live in (0, 1, 2, 3, 4)]
        assert ranks == [0, 0, 1, 1, 2]
        assert rank(is_ready=False, live=0, capabilities=small) == 3
        assert rank(is_ready=True, live=9, capabilities=TONE) == 0
        cluster = Cluster(2)
        assert cluster.place(StartUtterance(0, "v"), [Candidate(0, 1), Candidate(1, 0)]) == 1


class TestCapabilities:
    def test_what_they_hold_is_added_up(self) -> None:
        """Places, slots and memory are sums; what works less well is told once."""
        one = replace(TONE, slots=4, memory=(("weights", 5), ("slots", 2)), degraded=("a",))
        both = merged([one, replace(one, max_utterances=10, degraded=("a", "b"))])
        assert (both.max_utterances, both.slots) == (TONE.max_utterances + 10, 8)
        assert both.memory == (("weights", 10), ("slots", 4))
        assert both.degraded == ("a", "b")

    def test_size_is_no_difference(self) -> None:
        """Cards of different sizes are equals; other voices or another model are not."""
        assert difference(TONE, replace(TONE, slots=9, max_utterances=3, memory=(("x", 1),))) == ""
        other = replace(TONE, model="m", voices=TONE.voices[:1])
        assert difference(TONE, other) == "model, voices"


class TestHosted:
    async def test_one_that_differs_ends_the_start(self, caplog: pytest.LogCaptureFixture) -> None:
        """Two engines of different voices are no cluster: a wrong setting, told as that."""
        caplog.set_level("CRITICAL")
        paper = Paper(2)
        await paper.start(ready=False)
        paper.ready(0)
        paper.ready(1, voices=("tone",))  # type: ignore[arg-type]
        (down,) = paper.listener.of(EngineDown)
        assert down.is_final
        assert down.message == "worker 1 differs from the others in voices"
        await paper.engine.close()

    async def test_one_that_comes_back_different_stays_out(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Later it is a death like others: the rest speaks on, and it is tried again."""
        caplog.set_level("CRITICAL")
        paper = Paper(2)
        await paper.start()
        paper.lives[1][-1].reports.died("x")
        await asyncio.sleep(0.1)
        paper.ready(1, voices=("tone",))  # type: ignore[arg-type]
        assert not paper.listener.of(EngineDown)
        assert paper.listener.of(EngineMembers)[-1].up == 1
        await asyncio.sleep(0.3)
        paper.ready(1)
        assert paper.listener.of(EngineMembers)[-1] == EngineMembers(
            2, 2, 2 * TONE.max_utterances, 0
        )
        await paper.engine.close()

    async def test_a_process_that_is_killed_takes_its_own(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its utterances fail typed at once, the other's are spoken, and it comes back."""
        caplog.set_level("CRITICAL")
        slow = ToneOptions(real_time_factor=0.05)
        engine = RemoteEngine(ToneEngine, each=[(slow,)] * 2, options=RemoteOptions(backoff=QUICK))
        listener = Listener(engine)
        await engine.start(listener.deliver)
        await listener.ready()
        ledgers = [listener.say("Some words. " * 20, seed=n) for n in range(6)]
        await listener.heard(ledgers[0])
        os.kill(engine.pids[0], signal.SIGKILL)
        endings = await listener.ended(*ledgers)
        assert sorted(map(str, endings)) == ["completed"] * 3 + ["engine_dead"] * 3
        assert not listener.of(EngineDown)
        await listener.until(lambda: [m.up for m in listener.of(EngineMembers)] == [2, 1, 2])
        places = [each.max_utterances for each in listener.of(EngineMembers)]
        assert places == [512, 256, 512]
        again = [listener.say("Fine.") for _ in range(4)]
        assert await listener.ended(*again) == [FinishReason.COMPLETED] * 4
        assert len(listener.of(EngineReady)) == 1
        await engine.close()

    async def test_each_has_its_own_arguments(self) -> None:
        """Processes may differ in what they are given, and a client sees one engine."""
        each = [(ToneOptions(max_utterances=n),) for n in (3, 5)]
        listener = Listener(RemoteEngine(ToneEngine, each=each))
        await listener.engine.start(listener.deliver)
        await listener.ready()
        assert listener.of(EngineReady)[0].capabilities.max_utterances == 8
        endings = await listener.ended(*[listener.say("Hello there.") for _ in range(8)])
        assert endings == [FinishReason.COMPLETED] * 8
        await listener.engine.close()
