"""Executes plans: the tensors behind slots, voice heads and references.

`execute` starts a step, `collect` waits for it; what lies between is the host's time to do other
things. It knows slots and ids, not utterances, text, credit or time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rtts.engine.qwen.config import SamplingConfig
from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.frame import Conditions, FrameOutput, Model, SlotState, speak_frame
from rtts.engine.qwen.kv_cache import KeyValues
from rtts.engine.qwen.offline import SMALLEST_BATCH, begin_prompt, codec_after, span_for
from rtts.engine.qwen.prompt import PromptBuilder
from rtts.engine.qwen.sampling import Sampler
from rtts.engine.qwen.scheduler import Admit, BuildHead, Plan, RowResult


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was started.

    Attributes:
        failed: Slots whose admission or frame failed, and why.
        output: Of the frame, where the plan had rows.
    """

    plan: Plan
    failed: Mapping[int, str]
    output: FrameOutput | None


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that is done.

    Attributes:
        pcm: s16le samples of the plan's rows, by slot.
        codes: Codes of the plan's rows, by slot.
    """

    plan: Plan
    failed: Mapping[int, str]
    results: Mapping[int, RowResult]
    pcm: Mapping[int, bytes]
    codes: Mapping[int, tuple[int, ...]]


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
        self._sampler = Sampler(sampling, model.config.talker, model.device)
        self._greedy = (not sampling.do_sample, not sampling.subtalker_dosample)
        rows = max(slots, SMALLEST_BATCH)
        self._state = SlotState.allocate(model, rows, positions)
        self._codec_state = model.codec.state(rows)
        self._fresh_codec = model.codec.state(1)
        self._references = references
        self._codec_starts = {
            key: codec_after(model, conditions.codes)
            for key, conditions in references.items()
            if conditions.codes.shape[0]
        }
        self._heads: dict[int, KeyValues] = {}
        self._tainted: set[int] = set()

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
        for build in plan.build:
            self._heads[build.handle] = self._build(build)
        failed: dict[int, str] = {}
        for admit in plan.admit:
            try:
                self._admit(admit)
            except torch.OutOfMemoryError as error:
                failed[admit.slot] = f"out of memory: {error}"
        output = None
        if plan.rows:
            try:
                output = self._frame(plan, failed)
            except torch.OutOfMemoryError as error:
                failed |= {row.slot: f"out of memory: {error}" for row in plan.rows}
        return Flight(plan, failed, output)

    def collect(self, flight: Flight) -> Landed:
        """Wait for a step and bring its results to the host."""
        output, rows = flight.output, flight.plan.rows
        if output is None:
            return Landed(flight.plan, flight.failed, {}, {}, {})
        codes, pcm = output.codes.tolist(), output.pcm.cpu()
        ended, finite = output.ended.tolist(), output.finite.tolist()
        self._tainted |= {row.slot for row in rows if not finite[row.slot]}
        levels = (pcm.float() / 32767.0).square().mean(-1).sqrt().tolist()
        samples = pcm.numpy()
        return Landed(
            flight.plan,
            flight.failed,
            {
                row.slot: RowResult(
                    codes[row.slot][0], levels[row.slot], ended[row.slot], finite[row.slot]
                )
                for row in rows
            },
            {row.slot: samples[row.slot].tobytes() for row in rows},
            {row.slot: tuple(codes[row.slot]) for row in rows},
        )

    def is_nearly_full(self, limit: float) -> bool:
        """Whether more than that share of the device's memory is in use."""
        if self.model.device.type != "cuda":
            return False
        free, total = torch.cuda.mem_get_info(self.model.device)
        reserved = torch.cuda.memory_reserved(self.model.device)
        idle = reserved - torch.cuda.memory_allocated(self.model.device)
        return (total - free - idle) > limit * total

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

    def _admit(self, admit: Admit) -> None:
        slot, state = admit.slot, self._state
        if slot in self._tainted:  # a masked position still counts where it is not a number
            state.kv.clear(slot)
            self._tainted.discard(slot)
        state.kv.copy_in(slot, self._heads[admit.head], admit.head_rows)
        clone = admit.conditioning.clone
        conditions = self._references.get(clone)
        begin_prompt(self.model, state, slot, admit.head_rows, admit.prompt, conditions)
        state.seeds[slot] = admit.seed
        state.drawn[slot] = admit.steps
        state.greedy[slot], state.greedy_later[slot] = self._greedy
        start = self._codec_starts.get(clone, self._fresh_codec)
        self._codec_state.copy_in(slot, start)

    def _frame(self, plan: Plan, failed: Mapping[int, str]) -> FrameOutput:
        bucket = max(plan.bucket, SMALLEST_BATCH)
        texts = [0] * bucket
        active = [False] * bucket
        for row in plan.rows:
            texts[row.slot] = row.text_id
            active[row.slot] = row.slot not in failed
        device = self.model.device
        return speak_frame(
            self.model,
            self._sampler,
            self._state,
            self._codec_state,
            self._text_side(torch.tensor(texts, device=device)),
            torch.tensor(active, device=device),
            span_for(plan.positions + 1, self._state.kv.positions),
        )

    def _text_side(self, ids: Tensor) -> Tensor:
        return self.model.talker.project_text(ids)
