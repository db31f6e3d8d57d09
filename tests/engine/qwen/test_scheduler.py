"""The scheduler alone, with a made-up model: integers in, integers out, no torch."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.engine.qwen.config import load_config
from rtts.engine.qwen.endings import (
    EndingWatch,
    budget_frames,
    expected_frames,
)
from rtts.engine.qwen.options import EndingOptions, LateText, LayoutPolicy, QwenOptions, TextOptions
from rtts.engine.qwen.plan import Plan, RowResult, RowStep, bucket_for
from rtts.engine.qwen.prefix_cache import PrefixIndex
from rtts.engine.qwen.prompt import Conditioning, PromptBuilder
from rtts.engine.qwen.scheduler import (
    FrameDone,
    Outcome,
    Phase,
    Scheduler,
    Utterance,
    UtteranceDone,
)
from rtts.engine.qwen.takes import TextQueue
from rtts.engine.qwen.tokenizer import load_tokenizer

OPTIONS = QwenOptions(model="none", slots=5, positions=256, prefill_rows=24, wait_limit_s=1e9)


@pytest.fixture(scope="module")
def builder(checkpoint: Callable[[str, int], Path]) -> PromptBuilder:
    folder = checkpoint("custom_voice", 0)
    return PromptBuilder(load_config(folder), load_tokenizer(folder))


@dataclass
class World:
    """A scheduler, a made-up model that ends takes by chance, and a ledger that checks each step."""

    builder: PromptBuilder
    options: QwenOptions = OPTIONS
    end_probability: float = 0.1
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    now: float = 1000.0
    live: dict[int, Utterance] = field(default_factory=dict)
    appended: dict[int, list[int]] = field(default_factory=dict)
    closed: dict[int, list[int]] = field(default_factory=dict)
    given: dict[int, list[int]] = field(default_factory=dict)
    heads: set[int] = field(default_factory=set)
    holds: dict[int, tuple[int, int]] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            self.builder,
            self.options,
            head_bytes=10,
            smallest_bucket=4,
        )

    def start(self, *texts: str, until_s: float = 1e6, speaker: str = "ann") -> Utterance:
        conditioning = self.builder.conditioning(speaker=speaker)
        queue = TextQueue(self.builder)
        rows = len(self.builder.head(conditioning))
        utterance = Utterance(len(self.appended), conditioning, None, 0, queue, until_s, rows)
        self.live[utterance.id] = utterance
        for ledger in (self.appended, self.closed, self.given):
            ledger[utterance.id] = []
        for text in texts:
            self.append(utterance, text)
        return utterance

    def append(self, utterance: Utterance, text: str) -> None:
        index = len(self.appended[utterance.id])
        if utterance.id in self.live and not utterance.queue.is_finished:
            self.appended[utterance.id].append(index)
            assert utterance.queue.append(index, text)
            self.scheduler.text_changed(utterance)

    def finish(self, utterance: Utterance) -> None:
        utterance.queue.is_finished = True
        if utterance.id in self.live and self.scheduler.text_changed(utterance):
            self.end(utterance)

    def end(self, utterance: Utterance) -> None:
        del self.live[utterance.id]
        self.ended.append(utterance.id)
        assert utterance.phase is Phase.ENDED
        assert self.appended[utterance.id] == self.closed[utterance.id]

    def step(self) -> Plan:
        plan, lost = self.scheduler.schedule(self.now)
        assert not lost
        self.check(plan)
        results = {
            row.slot: RowResult(
                self.chance.randrange(64), self.chance.random() * 0.01, self.ends(row), True
            )
            for row in plan.rows
        }
        self.now += 0.01
        for outcome in self.scheduler.commit(plan, results, {}, self.now):
            self.take(outcome)
        return plan

    def ends(self, row: RowStep) -> bool:
        take = self.live[row.utterance_id].take
        assert take is not None
        return take.frames > 2 and self.chance.random() < self.end_probability

    def check(self, plan: Plan) -> None:
        """What every plan must be."""
        self.heads -= {handle for _, handle in plan.drop}
        self.heads |= {head.handle for head in plan.build}
        prefill = sum(len(self.builder.head(head.conditioning)) for head in plan.build)
        prefill += sum(len(admit.prompt.body) for admit in plan.admit)
        assert prefill <= self.options.prefill_rows or len(plan.admit) <= 1
        assert all(admit.head in self.heads for admit in plan.admit)
        for move in plan.moves:  # before admissions
            assert move.target != move.source
            self.holds[move.target] = self.holds.pop(move.source)
            assert self.holds[move.target][1] == move.positions
        for admit in plan.admit:
            held = admit.head_rows + len(admit.prompt.body)
            self.holds[admit.slot] = (admit.utterance_id, held)
        slots = [row.slot for row in plan.rows]
        assert len(slots) == len(set(slots))
        assert not slots or max(slots) < plan.bucket <= max(4, self.options.slots)
        for row in plan.rows:
            utterance = self.live[row.utterance_id]
            assert utterance.slot == row.slot
            whose, held = self.holds[row.slot]
            assert whose == row.utterance_id
            self.holds[row.slot] = (whose, held + 1)
            assert plan.positions <= self.options.positions
            self.given[row.utterance_id].append(row.text_id)

    def take(self, outcome: Outcome) -> None:
        utterance = outcome.utterance
        if isinstance(outcome, UtteranceDone):
            self.end(utterance)
            return
        assert isinstance(outcome, FrameDone)
        assert outcome.segment == len(self.closed[utterance.id])
        assert utterance.produced * 0.08 <= utterance.until_s + 1e-5
        if outcome.ends_segment:
            self.closed[utterance.id].append(outcome.segment)

    def run(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            due = self.scheduler.next_due_s(self.now)
            if due is None:
                return
            self.now = max(self.now, due)
            self.step()
        raise AssertionError("never done")


WORDS = ("Hello there.", "Good day.", "Yes.", "\u4f60\u597d\u3002", "So it is, is it not?")


@settings(max_examples=60, deadline=None)
@given(data=st.data(), late=st.sampled_from(LateText), layout=st.sampled_from(LayoutPolicy))
def test_any_order(
    builder: PromptBuilder, data: st.DataObject, late: LateText, layout: LayoutPolicy
) -> None:
    """Starts, text, finishes, grants and cancels in any order: plans fit, segments close once and in
    order, credit holds, and once all text and credit is there everyone ends and every slot is free."""
    text = TextOptions(late=late, layout=layout, anchor_frames=40)
    world = World(builder, replace(OPTIONS, text=text, prefix_bytes=200))
    everyone: list[Utterance] = []
    for action in data.draw(st.lists(st.integers(0, 9), min_size=20, max_size=80)):
        if action <= 1:
            until_s = data.draw(st.sampled_from((0.0, 0.5, 1e6)))
            speaker = data.draw(st.sampled_from(("ann", "bob", "dylan")))
            everyone.append(world.start(until_s=until_s, speaker=speaker))
        elif action <= 4 and everyone:
            world.append(data.draw(st.sampled_from(everyone)), data.draw(st.sampled_from(WORDS)))
        elif action == 5 and everyone:
            world.finish(data.draw(st.sampled_from(everyone)))
        elif action == 6 and everyone:
            chosen = data.draw(st.sampled_from(everyone))
            if world.live.pop(chosen.id, None):
                world.scheduler.remove(chosen)
        elif action == 7 and everyone:
            data.draw(st.sampled_from(everyone)).until_s += 0.5
        else:
            world.step()
    for utterance in list(world.live.values()):
        utterance.until_s = 1e6
        world.finish(utterance)
    world.run()
    assert not world.live
    assert world.scheduler.speaking == world.scheduler.waiting == 0


@settings(max_examples=40, deadline=None)
@given(data=st.data(), anchor=st.sampled_from((10, 40, 750)))
def test_what_is_fed_depends_on_the_text_alone(
    builder: PromptBuilder, data: st.DataObject, anchor: int
) -> None:
    """Held and streaming, the ids each step gets are the same whenever the text comes; without early
    ends they are the text's, in order."""
    texts = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
    text = TextOptions(late=LateText.HOLD, layout=LayoutPolicy.STREAMING, anchor_frames=anchor)
    options = replace(OPTIONS, text=text)
    fed = []
    for at_once in (True, False):
        world = World(builder, options, end_probability=0.0)
        utterance = world.start()
        for part in texts:
            world.append(utterance, part)
            if not at_once:
                for _ in range(data.draw(st.integers(0, 30))):
                    world.step()
        world.finish(utterance)
        world.run()
        fed.append(world.given[utterance.id])
    assert fed[0] == fed[1]
    if anchor == 750:
        expected = builder.text_ids(texts[0])
        for before, part in pairwise(texts):
            wide = before == "\u4f60\u597d\u3002"
            expected += builder.text_ids(part if wide else f" {part}")
        assert expected == fed[0][: len(expected)]
        assert {builder.end_id, builder.pad_id} >= set(fed[0][len(expected) :])


def test_streaming_admission_is_one_row(builder: PromptBuilder) -> None:
    """With its head cached an utterance whose text arrives needs no prefill, and runs at once."""
    world = World(builder)
    world.start("Yes.")
    world.step()
    world.start("Yes.")
    plan = world.step()
    assert not plan.build
    assert [admit.prompt.body for admit in plan.admit] == [()]
    assert [row.slot for row in plan.rows] == [0, 1]


def test_ranks_are_closed(builder: PromptBuilder) -> None:
    """Once a crowd has thinned out, those who still run share the smallest batch that holds them,
    beside whoever has just come; who is waiting for credit stays where he is."""
    world = World(builder, replace(OPTIONS, slots=32, prefill_rows=4096), end_probability=0.0)
    crowd = [world.start("So it is, is it not?") for _ in range(32)]
    assert world.step().bucket == 32
    for utterance in crowd[:13] + crowd[15:29]:
        world.scheduler.remove(utterance)
        del world.live[utterance.id]
    crowd[14].until_s = 0.0
    sizes = [world.step().bucket for _ in range(3)]
    assert sizes == [4, 4, 4]
    assert [u.slot for u in crowd[29:]] == [2, 1, 0]
    assert crowd[13].slot == 3
    assert crowd[14].slot == 14
    world.start("Yes.")
    assert world.step().bucket == 8  # all four places are taken


def test_who_waits_for_credit_makes_room(builder: PromptBuilder) -> None:
    """Those who run end up in the low slots although others hold them, and nobody is lost."""
    world = World(builder, replace(OPTIONS, slots=32, prefill_rows=4096), end_probability=0.0)
    crowd = [world.start("So it is, is it not?") for _ in range(20)]
    assert world.step().bucket == 32
    for utterance in crowd[:17]:
        utterance.until_s = 0.0
    assert [world.step().bucket for _ in range(3)] == [4, 4, 4]
    assert sorted(u.slot for u in crowd) == [0, 1, 2, *range(3, 17), 20, 21, 22]
    for utterance in crowd[:17]:
        utterance.until_s = 1e6
    assert len(world.step().rows) == 20


def test_first_come_first_served(builder: PromptBuilder) -> None:
    """With every slot taken, who waited longest is next; late ones are refused at the limit."""
    world = World(builder, replace(OPTIONS, slots=1, wait_limit_s=5.0), end_probability=0.0)
    first, second, third = (world.start("Yes.") for _ in range(3))
    world.step()
    world.scheduler.remove(first)
    del world.live[0]
    world.step()
    assert second.phase is Phase.SPEAKING
    plan, lost = world.scheduler.schedule(world.now + 5.0)
    assert [third] == [outcome.utterance for outcome in lost]


def test_prefix_index() -> None:
    """Least recently used first out, pinned and in use never; counters add up."""
    index = PrefixIndex(30)
    keys = [Conditioning(speaker=name) for name in "abcd"]
    handles = [index.add(key, 10) for key in keys]
    index.pin(keys[0])
    assert handles[1] == index.find(keys[1])
    assert index.evict(frozenset({handles[2]})) == [(keys[3], handles[3])]
    assert index.find(keys[3]) is None
    assert index.has_voice(replace(keys[1], language="english"))
    index.add(keys[3], 10)
    assert index.evict() == [(keys[2], handles[2])]
    stats = index.stats
    assert (stats.hits, stats.misses, stats.evictions, stats.entries) == (1, 1, 2, 3)
    assert stats.size_bytes == 30


@given(text=st.text(max_size=200), more=st.text(max_size=20))
def test_budgets_grow_with_text(text: str, more: str) -> None:
    """More text never has a smaller budget, and the budget covers what is expected."""
    expected = expected_frames(text)
    options = EndingOptions()
    assert expected <= expected_frames(text + more)
    assert expected < budget_frames(expected, options)


@settings(max_examples=50)
@given(period=st.integers(1, 12), length=st.integers(1, 30), seed=st.integers(0, 99))
def test_repetition(period: int, length: int, seed: int) -> None:
    """A periodic run of the set length is stuck from its last frame on, if its period is short."""
    options = EndingOptions(repeat_frames=24)
    watch, chance = EndingWatch(options), random.Random(seed)
    lead = [1000 + n for n in range(length)]
    cycle = [n * 1000 + chance.randrange(999) for n in range(period)]
    codes = lead + [cycle[n % period] for n in range(24)]
    stuck = [watch.is_stuck(code, 1.0, text_consumed=False) for code in codes]
    assert [False] * (len(codes) - 1) == stuck[:-1]
    assert (period <= 8) == stuck[-1]


def test_silence_counts_only_after_the_text() -> None:
    """Near-silent frames before the text is consumed, or with sound between, do not count."""
    watch = EndingWatch(EndingOptions(silence_frames=3))
    levels = [(0.0, False)] * 5 + [(0.0, True), (0.0, True), (0.5, True)] + [(0.0, True)] * 3
    stuck = [
        watch.is_stuck(n, level, text_consumed=consumed)
        for n, (level, consumed) in enumerate(levels)
    ]
    assert stuck == [False] * 10 + [True]


def test_bucket() -> None:
    """The smallest power of two from the smallest batch that holds the rows."""
    assert [bucket_for(n, 12, 4) for n in (1, 4, 5, 8, 9, 12)] == [4, 4, 8, 8, 12, 12]
    assert bucket_for(1, 1, 4) == 4


def test_imports_no_torch() -> None:
    """The scheduler and everything it decides with run without torch."""
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import rtts.engine.qwen.scheduler, rtts.engine.qwen.takes, rtts.engine.qwen.endings\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
