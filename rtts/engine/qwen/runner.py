"""Executes plans: the tensors behind slots, voice heads and references.

`execute` starts a step, `collect` waits for it; what lies between is the host's time to do other
things. It knows slots and ids, not utterances, text, credit or time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rtts.engine.qwen.config import SamplingConfig
from rtts.engine.qwen.extra import torch
from rtts.engine.qwen.frame import Conditions, Model
from rtts.engine.qwen.graphs import PromptRows, frames_for
from rtts.engine.qwen.kv_cache import KeyValues
from rtts.engine.qwen.plan import Admit, BuildHead, Move, Plan, RowResult
from rtts.engine.qwen.prompt import PromptBuilder, Row

_MEMORY_EVERY_S = 0.25
"""Asking the driver takes as long as admitting an utterance."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was started.

    Attributes:
        failed: Slots whose admission or frame failed, and why.
        is_speaking: Whether a frame was begun.
        unbuilt: Heads that could not be built, by handle, and why.
        marks: Where prompts were admitted and the device keeps time: before, behind them, and
            behind the frame.
    """

    plan: Plan
    failed: Mapping[int, str]
    is_speaking: bool
    unbuilt: Mapping[int, str] = field(default_factory=dict)
    marks: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that is done.

    Attributes:
        pcm: s16le samples of the plan's rows, by slot.
        codes: Codes of the plan's rows, by slot.
        parts_s: Device time of the prompts that were admitted, of the frame with its codec, and 0,
            for the codec is in the frame's graph; empty where nobody was, or nothing keeps time.
    """

    plan: Plan
    failed: Mapping[int, str]
    results: Mapping[int, RowResult]
    pcm: Mapping[int, bytes]
    codes: Mapping[int, tuple[int, ...]]
    parts_s: tuple[float, ...] = ()


class Runner:
    """The device side of the engine.

    Owner: engine thread.

    Args:
        references: Registered voices by their content hash.
    """

    def __init__(
        self,
        model: Model,
        builder: PromptBuilder,
        sampling: SamplingConfig,
        slots: int,
        positions: int,
        references: Mapping[str, Conditions],
    ) -> None:
        self.model, self._builder = model, builder
        self._greedy = (not sampling.do_sample, not sampling.subtalker_dosample)
        self.frames = frames_for(model, sampling, slots, positions)
        self.frames.prepare()
        self._state = self.frames.state
        self._references: dict[str, Conditions] = {}
        self._codec_starts: dict[str, Any] = {}
        for key, conditions in references.items():
            self.add_reference(key, conditions)
        self._heads: dict[int, KeyValues] = {}
        self._tainted: set[int] = set()
        self._memory_share, self._memory_read_s = self._read_memory(), -math.inf
        # The queue of a GPU tells when it got where. On a CPU nothing does: cores read no clock.
        is_timed = model.device.type == "cuda"
        self._new_mark = partial(torch.cuda.Event, enable_timing=True) if is_timed else None

    @torch.inference_mode()
    def add_reference(self, key: str, conditions: Conditions) -> None:
        """Know a registered voice by its content hash."""
        self._references[key] = conditions
        if conditions.codes.shape[0]:
            self._codec_starts[key] = self.frames.codec_after(conditions.codes)

    @property
    def head_row_bytes(self) -> int:
        """Memory of one row of a stored head."""
        kv = self._state.kv
        return kv.nbytes // (kv.k.shape[1] * kv.k.shape[3])

    @torch.inference_mode()
    def execute(self, plan: Plan) -> Flight:
        """Start a step."""
        for _, handle in plan.drop:
            del self._heads[handle]
        unbuilt: dict[int, str] = {}
        for build in plan.build:
            try:
                self._heads[build.handle] = self._build(build)
            except torch.OutOfMemoryError as error:
                unbuilt[build.handle] = f"out of memory: {error}"
        for move in plan.moves:
            self._move(move)
        marks = [self._mark()] if plan.admit and self._new_mark else []
        failed = self._admit_all(plan.admit, unbuilt)
        if marks:
            marks.append(self._mark())
        is_speaking = False
        if plan.rows:
            try:
                self._frame(plan, failed)
                is_speaking = True
                if marks:
                    marks.append(self._mark())
                if plan.now - self._memory_read_s > _MEMORY_EVERY_S:  # while the device is at work
                    self._memory_share, self._memory_read_s = self._read_memory(), plan.now
            except torch.OutOfMemoryError as error:
                failed |= {row.slot: f"out of memory: {error}" for row in plan.rows}
        return Flight(plan, failed, is_speaking, unbuilt, tuple(marks))

    def collect(self, flight: Flight) -> Landed:
        """Wait for a step and bring its results to the host."""
        rows = flight.plan.rows
        if not flight.is_speaking:
            return Landed(flight.plan, flight.failed, {}, {}, {})
        heard = self.frames.collect()
        self._tainted |= {row.slot for row in rows if not heard.finite[row.slot]}
        results, pcm, codes = {}, {}, {}
        for slot in (row.slot for row in rows):
            of_row = heard.codes[slot]
            results[slot] = RowResult(
                of_row[0], heard.levels[slot], heard.ended[slot], heard.finite[slot]
            )
            pcm[slot], codes[slot] = heard.pcm[slot].tobytes(), tuple(of_row)
        parts_s = _parts_s(flight.marks)
        return Landed(flight.plan, flight.failed, results, pcm, codes, parts_s)

    def _mark(self) -> Any:
        """A moment of the device's queue."""
        assert self._new_mark is not None
        mark = self._new_mark()
        mark.record()
        return mark

    def is_nearly_full(self, limit: float) -> bool:
        """Whether more than that share of the device's memory is in use, when last looked at.

        Where it was, it is looked at again: while everybody is refused no frame does so.
        """
        if self._memory_share > limit:
            self._memory_share = self._read_memory()
        return self._memory_share > limit

    def _read_memory(self) -> float:
        if self.model.device.type != "cuda":
            return 0.0
        free, total = torch.cuda.mem_get_info(self.model.device)
        reserved = torch.cuda.memory_reserved(self.model.device)
        idle = reserved - torch.cuda.memory_allocated(self.model.device)
        return (total - free - idle) / total

    def _build(self, build: BuildHead) -> KeyValues:
        rows = self._builder.head(build.conditioning)
        kv = KeyValues.allocate(
            self.model.config.talker.stack,
            1,
            len(rows),
            self.model.dtype,
            str(self.model.device),
        )
        conditions = self._references.get(build.conditioning.clone)
        self.model.talker.prefill(self.model.rows(rows, conditions), kv, 0, 0)
        return kv

    def _move(self, move: Move) -> None:
        self._clean(move.target)
        self.frames.move(move.source, move.target, move.positions)

    def _clean(self, slot: int) -> None:
        if slot in self._tainted:  # a masked position still counts where it is not a number
            self._state.kv.clear(slot)
            self._tainted.discard(slot)

    def _admit_all(self, admits: Sequence[Admit], unbuilt: Mapping[int, str]) -> dict[int, str]:
        """Put prompts into slots; which failed, and why.

        What the device has to do comes last, and together: a prompt takes it a millisecond or two.
        """
        failed: dict[int, str] = {}
        ready: list[Admit] = []
        for admit in admits:
            if admit.head in unbuilt:
                failed[admit.slot] = unbuilt[admit.head]
                continue
            try:
                self._admit(admit)
                ready.append(admit)
            except torch.OutOfMemoryError as error:
                failed[admit.slot] = f"out of memory: {error}"
        try:
            if prompts := self._prompts(ready):
                self.frames.prefill(prompts)
        except torch.OutOfMemoryError as error:
            failed |= {admit.slot: f"out of memory: {error}" for admit in ready}
        return failed

    def _admit(self, admit: Admit) -> None:
        """All of a prompt but the keys and values of its body."""
        slot, state, prompt = admit.slot, self._state, admit.prompt
        self._clean(slot)
        state.kv.copy_in(slot, self._heads[admit.head], admit.head_rows)
        clone = admit.conditioning.clone
        last = self.model.last_side(prompt.last, self._references.get(clone))
        state.begin_take(slot, admit.head_rows + len(prompt.body), last)
        state.begin_draws(slot, admit.seed, admit.steps, self._greedy)
        self.frames.begin_codec(slot, self._codec_starts.get(clone))

    def _prompts(self, admits: Sequence[Admit]) -> list[PromptRows]:
        """The prompts' bodies as vectors; those that name no reference are looked up in one go."""
        prompts: list[PromptRows] = []
        plain: list[Admit] = []
        for admit in admits:
            conditions = self._references.get(admit.conditioning.clone)
            if not admit.prompt.body:
                continue
            if conditions is None:
                plain.append(admit)
            else:
                x = self.model.rows(admit.prompt.body, conditions)
                prompts.append(PromptRows(x, admit.slot, admit.head_rows))
        if plain:
            rows: tuple[Row, ...] = sum((admit.prompt.body for admit in plain), ())
            parts = self.model.rows(rows).split([len(admit.prompt.body) for admit in plain])
            prompts += [
                PromptRows(x, admit.slot, admit.head_rows)
                for x, admit in zip(parts, plain, strict=True)
            ]
        return prompts

    def _frame(self, plan: Plan, failed: Mapping[int, str]) -> None:
        bucket = max(plan.bucket, self.frames.smallest)
        texts = [0] * bucket
        active = [False] * bucket
        for row in plan.rows:
            texts[row.slot] = row.text_id
            active[row.slot] = row.slot not in failed
        self.frames.start(texts, active, plan.positions)


def _parts_s(marks: Sequence[Any]) -> tuple[float, ...]:
    """Seconds between marks, see `Landed.parts_s`."""
    if len(marks) < 3:
        return ()
    begun, admitted, framed = marks
    framed.synchronize()
    return begun.elapsed_time(admitted) / 1000, admitted.elapsed_time(framed) / 1000, 0.0
