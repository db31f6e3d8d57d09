"""Who runs in the next step: slots, credit, text, endings, in integers.

`schedule(now)` makes a plan, the runner executes it, `commit` takes the outcome in. Nothing here
touches a tensor, a clock or a command: time is `now`, text is ids, audio is a count of frames.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from operator import attrgetter

from rtts.engine.qwen.endings import Ending
from rtts.engine.qwen.options import FRAME_S, LateText, QwenOptions
from rtts.engine.qwen.plan import Admit, BuildHead, Move, Plan, RowResult, RowStep, bucket_for
from rtts.engine.qwen.prefix_cache import PrefixIndex
from rtts.engine.qwen.prompt import Conditioning, PromptBuilder, Reference
from rtts.engine.qwen.takes import Next, Take, TakePlanner, TextQueue

_CREDIT_EPSILON_S = 1e-6  # credit and frame lengths are floats
_LEAST_LENGTH = 0.7  # of what a text is expected to take: a brisk reading
_MOVES_A_STEP = 4  # into low slots; each takes the host 0.1 ms, and as much who makes room
_by_slot = attrgetter("slot")

log = logging.getLogger(__name__)


class Phase(Enum):
    """Where an utterance stands.

    WAITING_TEXT -> WAITING_SLOT -> SPEAKING -> WAITING_TEXT | WAITING_SLOT | ENDED; any -> ENDED.
    """

    WAITING_TEXT = auto()  # no slot, nothing to speak yet
    WAITING_SLOT = auto()
    SPEAKING = auto()  # has a slot and a take
    ENDED = auto()


@dataclass(slots=True)
class Utterance:
    """One talker stream.

    Owner: engine thread.

    Attributes:
        until_s: Credit.
        head_rows: Rows of its voice head.
        waits_since_s: When a step first found it waiting for a slot.
        is_admitted: Whether its take's prompt is in its slot.
        produced: Frames of audio so far, over all takes.
        steps: Steps so far, over all takes: the counter of its random draws.
        first_audio_s: When its first frame was committed.
        voice_cached: Whether its head was cached when it was first admitted.
        worst: The worst ending of its takes.
        busy_s: Its share of the steps it was in.
    """

    id: int
    conditioning: Conditioning
    reference: Reference | None
    seed: int
    queue: TextQueue
    until_s: float
    head_rows: int
    phase: Phase = Phase.WAITING_TEXT
    slot: int = -1
    take: Take | None = None
    waits_since_s: float | None = None
    is_admitted: bool = False
    produced: int = 0
    steps: int = 0
    first_audio_s: float = 0.0
    voice_cached: bool = True
    worst: Ending = Ending.EOS
    busy_s: float = 0.0

    @property
    def expected_s(self) -> float:
        """Seconds of audio that the text it has should take, what is spoken included."""
        frames = float(self.produced)
        if self.take is not None:
            frames += max(0.0, self.take.expected - self.take.frames)
        return (frames + sum(segment.expected for segment in self.queue.waiting)) * FRAME_S


@dataclass(frozen=True, slots=True)
class FrameDone:
    """A frame of an utterance is out, or only the end of a segment is known.

    Attributes:
        slot: Where its samples are.
        is_audible: Whether there is a frame.
        begun_s: When its step began.
    """

    utterance: Utterance
    segment: int
    slot: int
    is_audible: bool
    ends_segment: bool
    begun_s: float


@dataclass(frozen=True, slots=True)
class UtteranceDone:
    """An utterance came to its end."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class UtteranceLost:
    """An utterance cannot go on."""

    utterance: Utterance
    code: str
    message: str


Outcome = FrameDone | UtteranceDone | UtteranceLost


class Scheduler:
    """The slot table and everyone who waits for it.

    Owner: engine thread.

    Args:
        head_bytes: Memory of one head row in the store.
    """

    def __init__(
        self,
        builder: PromptBuilder,
        options: QwenOptions,
        *,
        head_bytes: int,
        smallest_bucket: int = 1,
    ) -> None:
        self._builder, self._options = builder, options
        self._head_bytes, self._smallest = head_bytes, smallest_bucket
        self._planner = TakePlanner(
            builder,
            options.text,
            options.endings,
            options.positions,
        )
        self.prefixes = PrefixIndex(options.prefix_bytes)
        self._wanted_heads: deque[tuple[Conditioning, bool]] = deque()
        self._damaged_heads: set[Conditioning] = set()
        self._slots: list[Utterance | None] = [None] * options.slot_count
        self._waiting: deque[Utterance] = deque()

    # --- what commands do ------------------------------------------------------------------

    def want_head(self, conditioning: Conditioning, *, pinned: bool) -> None:
        """Have a head built and kept, when a step has room for it."""
        self._wanted_heads.append((conditioning, pinned))

    def could_not_build(self, conditioning: Conditioning) -> None:
        """A planned head was not built: whoever needs it next tries again."""
        self.prefixes.drop(conditioning)

    def slot_wait_s(self) -> float:
        """Least time in which a new utterance could get a slot; 0 where that may be at once.

        An utterance cannot end before playback has given it credit for the text that it has.
        """
        position = len(self._waiting) - self._slots.count(None)
        if position < 0:
            return 0.0
        owed_s = sorted(
            max(0.0, _LEAST_LENGTH * utterance.expected_s - utterance.until_s)
            for utterance in self._slots
            if utterance is not None
        )
        return owed_s[min(position, len(owed_s) - 1)] if owed_s else 0.0

    def text_changed(self, utterance: Utterance) -> bool:
        """Segments were appended or the text finished; whether that ended the utterance."""
        if utterance.phase is Phase.SPEAKING and utterance.take is not None:
            self._planner.feed(utterance.take, utterance.queue)
        elif utterance.phase is Phase.WAITING_TEXT:
            if self._planner.can_begin(utterance.queue, utterance.reference):
                self._wait_for_slot(utterance)
            elif utterance.queue.is_finished and not utterance.queue.waiting:
                self.remove(utterance)
                return True
        return False

    def remove(self, utterance: Utterance) -> None:
        """Forget an utterance; its slot is free at once."""
        if utterance.phase is Phase.WAITING_SLOT:
            self._waiting.remove(utterance)
        self._free_slot(utterance)
        utterance.phase = Phase.ENDED

    # --- a step ------------------------------------------------------------------------------

    def schedule(self, now: float) -> tuple[Plan, list[Outcome]]:
        """Decide the next step, and refuse those who waited too long for it."""
        lost = self._refuse_late(now)
        damaged = self._drop_damaged()
        self._close_late_text(now)
        running = self._running()
        moves = tuple(self._close_ranks([utterance.slot for utterance, _ in running]))
        self._give_slots()
        build, admit = self._plan_prompts()
        running += self._running(admit)
        rows = sorted(
            (RowStep(utterance.slot, utterance.id, text) for utterance, text in running),
            key=_by_slot,
        )
        positions = 0
        for row in rows:
            positions = max(positions, self._consume(row.slot))
        used = max((row.slot for row in rows), default=-1) + 1
        in_use = frozenset([head.handle for head in build] + [item.head for item in admit])
        drop = (*damaged, *self.prefixes.evict(in_use))
        bucket = bucket_for(used, len(self._slots), self._smallest) if rows else 0
        plan = Plan(now, drop, tuple(build), tuple(admit), tuple(rows), bucket, positions, moves)
        return plan, lost

    def commit(
        self, plan: Plan, results: Mapping[int, RowResult], failed: Mapping[int, str], now: float
    ) -> list[Outcome]:
        """Take a step's outcome in.

        Args:
            results: Of the plan's rows, by slot.
            failed: Slots whose admission or frame failed, and why.
        """
        outcomes: list[Outcome] = []
        for slot, message in failed.items():
            utterance = self._slots[slot]
            if utterance is not None and plan.concerns(slot, utterance.id):
                self.remove(utterance)
                outcomes.append(UtteranceLost(utterance, "utterance_failed", message))
        for row in plan.rows:
            utterance = self._slots[row.slot]
            if utterance is None or utterance.id != row.utterance_id:
                continue  # cancelled while the step ran
            outcomes += self._commit_row(utterance, results[row.slot], plan.now, now)
        return outcomes

    def next_due_s(self, now: float) -> float | None:
        """When `schedule` has something to do: `now` for at once, None for never."""
        if self._wanted_heads:
            return now
        dues: list[float] = []
        for utterance in self._slots:
            due = None if utterance is None else self._due_s(utterance, now)
            if due is not None and due <= now:
                return now
            if due is not None:
                dues.append(due)
        if self._waiting:
            since_s = self._waiting[0].waits_since_s
            if None in self._slots or since_s is None:
                return now
            dues.append(since_s + self._options.wait_limit_s)
        return min(dues, default=None)

    @property
    def speaking(self) -> int:
        """Slots in use."""
        return sum(utterance is not None for utterance in self._slots)

    @property
    def waiting(self) -> int:
        """Utterances that wait for a slot."""
        return len(self._waiting)

    # --- scheduling ----------------------------------------------------------------------------

    def _refuse_late(self, now: float) -> list[Outcome]:
        lost: list[Outcome] = []
        for utterance in self._waiting:
            if utterance.waits_since_s is None:
                utterance.waits_since_s = now
        if None in self._slots:
            return lost
        while self._waiting:
            first = self._waiting[0]
            since_s = now if first.waits_since_s is None else first.waits_since_s
            if now - since_s < self._options.wait_limit_s:
                break
            self.remove(first)
            lost.append(UtteranceLost(first, "overloaded", "no slot was free in time"))
        return lost

    def _drop_damaged(self) -> list[tuple[Conditioning, int]]:
        """Heads of which frames came out as no numbers go; those that are to stay are built anew."""
        dropped = []
        for key in self._damaged_heads:
            if not self.prefixes.has(key):
                continue
            log.error("a voice head (%s) is damaged and dropped", key.speaker or key.clone or "-")
            if self.prefixes.is_pinned(key):
                self.want_head(key, pinned=True)
            dropped.append((key, self.prefixes.drop(key)))
        self._damaged_heads.clear()
        return dropped

    def _close_late_text(self, now: float) -> None:
        for utterance in self._slots:
            if utterance is None or utterance.take is None or not utterance.take.is_open:
                continue
            due = self._close_due_s(utterance)
            if due is not None and due <= now:
                utterance.take.close()

    def _close_due_s(self, utterance: Utterance) -> float | None:
        """When a take that waits for text is closed; None if it does not wait, or waits for ever."""
        take = utterance.take
        if self._options.text.late is LateText.HOLD or take is None:
            return None
        if not utterance.is_admitted or take.next_text() is not Next.WAIT:
            return None
        played_out_s = utterance.first_audio_s + utterance.produced * FRAME_S
        return played_out_s - self._options.text.close_lead_s

    def _running(self, admits: Sequence[Admit] | None = None) -> list[tuple[Utterance, int]]:
        """Who runs in the next step, of all or of those just admitted, each with its text id."""
        slots = self._slots if admits is None else [self._slots[admit.slot] for admit in admits]
        return [
            (utterance, text)
            for utterance in slots
            if utterance is not None and (text := self._runnable(utterance)) is not None
        ]

    def _close_ranks(self, running: Sequence[int]) -> Iterator[Move]:
        """Move who runs in a high slot to a low one, where that makes the batch smaller.

        A batch is the first slots up to the last that runs: without this it stays as large as the
        largest crowd since the last quiet moment. Whoever waits for credit in a low slot makes room.
        """
        if not running:
            return
        coming = min(len(self._waiting), self._slots.count(None))
        present = bucket_for(running[-1] + 1, len(self._slots), self._smallest)
        size = bucket_for(len(running) + coming, len(self._slots), self._smallest)
        while size < present:
            outside = [slot for slot in running if slot >= size]
            free = [slot for slot in range(size) if self._slots[slot] is None]
            idle = self._idle(size, running)
            beyond = [slot for slot in range(size, len(self._slots)) if self._slots[slot] is None]
            lacking = max(0, len(outside) + coming - len(free))
            if lacking <= min(len(idle), len(beyond)):
                for source in islice(reversed(outside), _MOVES_A_STEP):
                    if not free:
                        yield self._move(idle[-1], beyond.pop(0))
                        free.append(idle.pop())
                    yield self._move(source, free.pop(0))
                return
            size *= 2

    def _idle(self, size: int, running: Sequence[int]) -> list[int]:
        """The first slots' utterances that do not run, and could be elsewhere."""
        runs = set(running)
        return [
            slot
            for slot, utterance in enumerate(self._slots[:size])
            if utterance is not None and utterance.is_admitted and slot not in runs
        ]

    def _move(self, source: int, target: int) -> Move:
        utterance = self._slots[source]
        assert utterance is not None and utterance.take is not None
        self._slots[source], self._slots[target] = None, utterance
        utterance.slot = target
        take = utterance.take
        return Move(source, target, utterance.head_rows + len(take.prompt.body) + take.frames)

    def _give_slots(self) -> None:
        for slot, taken in enumerate(self._slots):
            if taken is not None or not self._waiting:
                continue
            utterance = self._waiting.popleft()
            utterance.slot, utterance.phase = slot, Phase.SPEAKING
            self._slots[slot] = utterance
            self._begin_take(utterance)

    def _begin_take(self, utterance: Utterance) -> None:
        utterance.take = self._planner.begin(
            utterance.queue, utterance.head_rows, utterance.reference
        )
        self._planner.feed(utterance.take, utterance.queue)
        utterance.is_admitted = False

    def _plan_prompts(self) -> tuple[list[BuildHead], list[Admit]]:
        """Admissions in slot order, then wanted heads, within the step's prefill rows (but one)."""
        build: list[BuildHead] = []
        admit: list[Admit] = []
        room = self._options.prefill_rows
        for utterance in self._slots:
            if utterance is None or utterance.is_admitted or utterance.take is None:
                continue
            if not self._has_credit(utterance):
                continue
            cost = self._admission_rows(utterance)
            if cost > room and admit:
                continue
            room -= cost
            admit.append(self._admit(utterance, build))
        while self._wanted_heads and (room > 0 or not build):
            conditioning, pinned = self._wanted_heads.popleft()
            if not self.prefixes.has(conditioning):
                room -= len(self._builder.head(conditioning))
                build.append(self._build(conditioning))
            if pinned:
                self.prefixes.pin(conditioning)
        return build, admit

    def _admission_rows(self, utterance: Utterance) -> int:
        assert utterance.take is not None
        rows = len(utterance.take.prompt.body)
        if not self.prefixes.has(utterance.conditioning):
            rows += utterance.head_rows
        return rows

    def _admit(self, utterance: Utterance, build: list[BuildHead]) -> Admit:
        assert utterance.take is not None
        handle = self.prefixes.find(utterance.conditioning)
        if handle is None:
            build.append(self._build(utterance.conditioning))
            handle = build[-1].handle
            if utterance.produced == 0:
                utterance.voice_cached = False
        utterance.is_admitted = True
        return Admit(
            slot=utterance.slot,
            utterance_id=utterance.id,
            head=handle,
            head_rows=utterance.head_rows,
            prompt=utterance.take.prompt,
            conditioning=utterance.conditioning,
            seed=utterance.seed,
            steps=utterance.steps,
        )

    def _build(self, conditioning: Conditioning) -> BuildHead:
        size = self._head_bytes * len(self._builder.head(conditioning))
        return BuildHead(self.prefixes.add(conditioning, size), conditioning)

    def _has_credit(self, utterance: Utterance) -> bool:
        return (utterance.produced + 1) * FRAME_S <= utterance.until_s + _CREDIT_EPSILON_S

    def _runnable(self, utterance: Utterance) -> int | None:
        """The text id of the utterance's next frame; None if it does not run."""
        take = utterance.take
        if take is None or not utterance.is_admitted or not self._has_credit(utterance):
            return None
        text = take.next_text()
        return None if isinstance(text, Next) else text

    def _consume(self, slot: int) -> int:
        """Note that a row runs; the positions it holds then."""
        utterance = self._slots[slot]
        assert utterance is not None and utterance.take is not None
        take = utterance.take
        take.consume()
        utterance.steps += 1
        return utterance.head_rows + len(take.prompt.body) + take.frames

    def _due_s(self, utterance: Utterance, now: float) -> float | None:
        if utterance.take is None or not self._has_credit(utterance):
            return None
        if not utterance.is_admitted or not isinstance(utterance.take.next_text(), Next):
            return now
        return self._close_due_s(utterance)

    # --- committing ----------------------------------------------------------------------------

    def _commit_row(
        self, utterance: Utterance, result: RowResult, begun_s: float, now: float
    ) -> Sequence[Outcome]:
        take = utterance.take
        assert take is not None
        if not result.finite:
            if take.frames == 1:  # nothing but the prompt went in
                self._damaged_heads.add(utterance.conditioning)
            self.remove(utterance)
            message = "the talker's scores are not numbers"
            return [UtteranceLost(utterance, "utterance_failed", message)]
        if result.ended:
            return self._end_take(utterance, take, Ending.EOS, begun_s)
        utterance.produced += 1
        if utterance.produced == 1:
            utterance.first_audio_s = now
        ends_segment = take.ends_segment(is_silent=take.watch.is_silent(result.rms))
        outcomes: list[Outcome] = [
            FrameDone(utterance, take.segment.index, utterance.slot, True, ends_segment, begun_s)
        ]
        if ends_segment:
            take.current += 1
        stuck = take.watch.is_stuck(result.code, result.rms, text_consumed=take.text_consumed)
        if stuck or take.frames >= take.budget:
            ending = Ending.STUCK if stuck else Ending.BUDGET
            outcomes += self._end_take(utterance, take, ending, begun_s)
        return outcomes

    def _end_take(
        self, utterance: Utterance, take: Take, ending: Ending, begun_s: float
    ) -> list[Outcome]:
        """Close the take's segments; go on with the next take, wait for text, or end."""
        if ending is not Ending.EOS:
            utterance.worst = ending
        utterance.queue.give_back(take.unfed())
        outcomes: list[Outcome] = [
            FrameDone(utterance, fed.segment.index, utterance.slot, False, True, begun_s)
            for fed in take.fed[take.current :]
        ]
        utterance.take = None
        if self._planner.can_begin(utterance.queue, utterance.reference):
            if self._waiting:  # others have waited longer
                self._free_slot(utterance)
                self._wait_for_slot(utterance)
            else:
                self._begin_take(utterance)
        elif utterance.queue.is_finished and not utterance.queue.waiting:
            self.remove(utterance)
            outcomes.append(UtteranceDone(utterance))
        else:
            self._free_slot(utterance)
            utterance.phase = Phase.WAITING_TEXT
        return outcomes

    def _wait_for_slot(self, utterance: Utterance) -> None:
        utterance.phase, utterance.waits_since_s = Phase.WAITING_SLOT, None
        self._waiting.append(utterance)

    def _free_slot(self, utterance: Utterance) -> None:
        if utterance.slot >= 0:
            self._slots[utterance.slot] = None
        utterance.slot, utterance.take, utterance.is_admitted = -1, None, False
