"""Who makes frames for the runner: the plain modules, or fused kernels captured as graphs.

Both sides have one interface, so that what surrounds a frame runs on a CPU too. Graphs are a
declared list, one a batch size, captured by `prepare` and never later; a batch size outside the list
is an error, not a capture. It knows slots, not utterances, plans or time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from rtts.engine.qwen.config import SamplingConfig
from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.frame import FrameOutput, Model, SlotState, speak_frame
from rtts.engine.qwen.offline import SMALLEST_BATCH, codec_after, span_for
from rtts.engine.qwen.sampling import Sampler
from rtts.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from rtts.engine.qwen.fused.frame import FusedFrame
    from rtts.engine.qwen.fused.prefill import FusedPrefill

log = logging.getLogger(__name__)

PREFILL_ROWS = (16, 32, 64, 128, 256)
"""Prompt rows of one captured prefill; several prompts share one, longer ones take several."""


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Rows of a prompt that are to be put into a slot.

    Attributes:
        x: `[T, hidden]`.
        start: Position of the first.
    """

    x: Tensor
    slot: int
    start: int


@dataclass(frozen=True, slots=True)
class HostFrame:
    """A frame of the first B slots, on the host; meaningless where not active.

    Attributes:
        codes: B lists of Q codes.
        ended: The talker chose the end: no audio.
        finite: False where the talker's scores were not all numbers.
        levels: Root mean square of the samples, of 1.0 full scale.
        pcm: `[B, samples]` int16.
    """

    codes: Sequence[Sequence[int]]
    ended: Sequence[bool]
    finite: Sequence[bool]
    levels: Sequence[float]
    pcm: Any


class Frames(Protocol):
    """Makes frames. Owner: engine thread.

    Attributes:
        state: What the talker remembers of each slot.
        smallest: Rows of the smallest batch.
    """

    state: SlotState
    smallest: int

    def prepare(self) -> None:
        """Do all that is done once. Afterwards nothing is compiled or captured."""

    def codec_after(self, codes: Tensor) -> Any:
        """The codec's state after `codes` `[T, Q]`: where a cloned voice starts."""

    def begin_codec(self, slot: int, start: Any) -> None:
        """Put a slot's codec to `start` (from `codec_after`), or to the start of a stream (None)."""

    def prefill(self, prompts: Sequence[PromptRows]) -> None:
        """Write the keys and values of these rows, each prompt's in a slot of its own.

        Args:
            prompts: At least one.
        """

    def move(self, source: int, target: int, positions: int) -> None:
        """Make slot `target` what `source` is, which holds that many positions."""

    def start(self, texts: Sequence[int], active: Sequence[bool], positions: int) -> None:
        """Begin a frame of the first `len(texts)` slots.

        Args:
            texts: A text id for each slot.
            positions: Positions the longest row will hold.
        """

    def collect(self) -> HostFrame:
        """Wait for the frame that was begun."""


class PlainFrames:
    """The plain modules, operation by operation: CPUs, and the oracle of the other."""

    def __init__(self, model: Model, sampling: SamplingConfig, slots: int, positions: int) -> None:
        self._model = model
        self._sampler = Sampler(sampling, model.config.talker, model.device)
        self.smallest = SMALLEST_BATCH
        rows = max(slots, self.smallest)
        self.state = SlotState.allocate(model, rows, positions)
        self._codec_state = model.codec.state(rows)
        self._fresh = model.codec.state(1)
        self._output: FrameOutput | None = None

    @torch.inference_mode()
    def prepare(self) -> None:
        """Make a frame of nobody, so that the first utterance does not wait for what is done once."""
        self.start([0] * self.smallest, [False] * self.smallest, 1)
        self.collect()

    def codec_after(self, codes: Tensor) -> Any:
        """See `Frames`."""
        return codec_after(self._model, codes)

    def begin_codec(self, slot: int, start: Any) -> None:
        """See `Frames`."""
        self._codec_state.copy_in(slot, self._fresh if start is None else start)

    def prefill(self, prompts: Sequence[PromptRows]) -> None:
        """See `Frames`."""
        for prompt in prompts:
            self._model.talker.prefill(prompt.x, self.state.kv, prompt.slot, prompt.start)

    def move(self, source: int, target: int, positions: int) -> None:
        """See `Frames`."""
        self.state.move(source, target, positions)
        self._codec_state.copy_in(target, self._codec_state, source)

    def start(self, texts: Sequence[int], active: Sequence[bool], positions: int) -> None:
        """See `Frames`."""
        device = self._model.device
        self._output = speak_frame(
            self._model,
            self._sampler,
            self.state,
            self._codec_state,
            self._model.talker.project_text(torch.tensor(texts, device=device)),
            torch.tensor(active, device=device),
            span_for(positions + 1, self.state.kv.positions),
        )

    def collect(self) -> HostFrame:
        """See `Frames`."""
        output = self._output
        if output is None:
            raise EngineError("no frame was begun")
        self._output = None
        pcm = output.pcm.cpu()
        levels = (pcm.float() / 32767.0).square().mean(-1).sqrt().tolist()
        return HostFrame(
            output.codes.tolist(),
            output.ended.tolist(),
            output.finite.tolist(),
            levels,
            pcm.numpy(),
        )


def buckets_for(slots: int) -> tuple[int, ...]:
    """The declared batch sizes: powers of two below `slots`, and `slots`."""
    sizes = []
    size = 1
    while size < slots:
        sizes.append(size)
        size *= 2
    return (*sizes, slots)


class GraphFrames:
    """Fused kernels, one captured graph a batch size, inputs and outputs in pinned memory.

    Attributes:
        captures: Graphs captured.
        captures_after_ready: Captures and eager runs after `prepare`: there is no code path to one.
    """

    captures_after_ready = 0

    def __init__(self, model: Model, sampling: SamplingConfig, slots: int, positions: int) -> None:
        from rtts.engine.qwen.fused.codec import FusedCodec  # needs Triton: only where it runs
        from rtts.engine.qwen.fused.frame import PACKED, FusedFrame

        self._model, self.smallest = model, 1
        self._slots = slots
        model.talker.tabulate_text()  # before there are slots: it takes two tables for a moment
        torch.cuda.empty_cache()
        self.state = SlotState.allocate(model, slots, positions)
        self._codec = FusedCodec(model.codec, slots, positions)
        self._codec_state = self._codec.state(slots)
        self._fused: FusedFrame = FusedFrame(
            model, sampling, self.state, self._codec, self._codec_state, slots
        )
        groups = model.config.talker.groups
        self._width = groups + PACKED
        self._groups = groups

        def pinned(source: Tensor) -> Tensor:
            return torch.zeros(source.shape, dtype=source.dtype, pin_memory=True)

        self._inputs = pinned(self._fused.inputs)
        self._packed = pinned(self._fused.packed)
        self._pcm = pinned(self._fused.pcm)
        self._inputs_np, self._packed_np = self._inputs.numpy(), self._packed.numpy()
        self._pcm_np = self._pcm.numpy()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._prefills: dict[int, tuple[FusedPrefill, torch.cuda.CUDAGraph]] = {}
        longest = max(PREFILL_ROWS)
        self._where = torch.zeros(3, longest, dtype=torch.int64)
        self._done = torch.cuda.Event()
        self._running = 0
        self._pool: Any = None

    @property
    def captures(self) -> int:
        """Graphs captured."""
        return len(self._graphs) + len(self._prefills)

    @property
    def fused(self) -> FusedFrame:
        """The chain of kernels, for measurements."""
        return self._fused

    @torch.inference_mode()
    def prepare(self) -> None:
        """Capture the declared list, largest first, so that all share one pool of memory."""
        from rtts.engine.qwen.fused.launch import compile_all
        from rtts.engine.qwen.fused.prefill import FusedPrefill

        self._inputs.zero_()  # nobody active: running it changes nothing
        buckets = buckets_for(self._slots)
        prefills = [
            FusedPrefill(self._model, self.state, self._fused.tables, rows) for rows in PREFILL_ROWS
        ]
        frames = [partial(self._fused.run, bucket) for bucket in buckets]
        kernels = compile_all([*frames, *(each.run for each in prefills)], os.cpu_count() or 1)
        log.info("compiled %d kernels", kernels)
        for bucket in reversed(buckets):
            self._graphs[bucket] = self._capture(partial(self._chain, bucket))
        for each in prefills:
            self._prefills[each.rows] = (each, self._capture(each.run))
        torch.cuda.synchronize(self._model.device)
        log.info(
            "captured %d graphs; %d slots: keys and values %d MiB, codec state %d MiB; in use %d MiB",
            self.captures,
            self._slots,
            self.state.kv.nbytes >> 20,
            self._codec_state.nbytes >> 20,
            torch.cuda.memory_allocated(self._model.device) >> 20,
        )

    def _capture(self, chain: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """One graph, in the pool of all."""
        chain()
        torch.cuda.synchronize(self._model.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            chain()
        self._pool = graph.pool()
        return graph

    def _chain(self, rows: int) -> None:
        fused = self._fused
        fused.inputs[:rows].copy_(self._inputs[:rows], non_blocking=True)
        fused.run(rows)
        self._packed[:rows].copy_(fused.packed[:rows], non_blocking=True)
        self._pcm[:rows].copy_(fused.pcm[:rows], non_blocking=True)

    @torch.inference_mode()
    def codec_after(self, codes: Tensor) -> Any:
        """See `Frames`."""
        from rtts.engine.qwen.fused.codec import LONGEST_REFERENCE

        if codes.shape[0] > LONGEST_REFERENCE:
            raise ConfigError(
                f"a reference of {codes.shape[0]} frames: at most {LONGEST_REFERENCE}"
            )
        state = self._codec.state(1)
        flags = torch.full((1,), 4, dtype=torch.int32, device=self._model.device)
        for frame in codes:
            self._codec.render(frame[None].contiguous(), flags, state, 1)
            state.frames.add_(1)
        return state

    def begin_codec(self, slot: int, start: Any) -> None:
        """See `Frames`."""
        if start is None:
            self._codec_state.flat[slot].zero_()
            self._codec_state.frames[slot].zero_()
        else:
            self._codec_state.copy_in(slot, start)

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[PromptRows]) -> None:
        """See `Frames`. One replay for all where they fit: the weights are read once for each."""
        x = torch.cat([prompt.x for prompt in prompts])
        places = [
            (prompt.slot, prompt.start + row)
            for prompt in prompts
            for row in range(prompt.x.shape[0])
        ]
        longest = max(PREFILL_ROWS)
        for begin in range(0, len(places), longest):
            self._prefill(x[begin : begin + longest], places[begin : begin + longest])

    def _prefill(self, x: Tensor, places: Sequence[tuple[int, int]]) -> None:
        """Prefill as many rows as one graph takes, each with its slot and position."""
        count = len(places)
        rows = min(size for size in PREFILL_ROWS if size >= count)
        chain, graph = self._prefills[rows]
        chain.x[:count].copy_(x)
        self._where[:, count:rows] = 0  # padding does not count, wherever it is said to lie
        self._where[:2, :count] = torch.tensor(places).T
        self._where[2, :count] = 1
        chain.where.copy_(self._where[:, :rows])
        graph.replay()

    @torch.inference_mode()
    def move(self, source: int, target: int, positions: int) -> None:
        """See `Frames`."""
        self.state.move(source, target, positions)
        self._codec_state.copy_in(target, self._codec_state, source)

    def start(self, texts: Sequence[int], active: Sequence[bool], positions: int) -> None:
        """See `Frames`."""
        rows = len(texts)
        graph = self._graphs.get(rows)
        if graph is None:
            raise EngineError(f"no graph of {rows} rows was captured")
        self._inputs_np[:rows, 0] = texts
        self._inputs_np[:rows, 1] = active
        graph.replay()
        self._done.record()
        self._running = rows

    def collect(self) -> HostFrame:
        """See `Frames`."""
        rows = self._running
        if not rows:
            raise EngineError("no frame was begun")
        self._done.synchronize()
        self._running = 0
        packed, groups = self._packed_np[:rows], self._groups
        flags = packed[:, groups]
        return HostFrame(
            packed[:, :groups].tolist(),
            ((flags & 1) != 0).tolist(),
            ((flags & 2) != 0).tolist(),
            packed[:, groups + 1].copy().view("float32").tolist(),
            self._pcm_np[:rows],
        )


def frames_for(model: Model, sampling: SamplingConfig, slots: int, positions: int) -> Frames:
    """The maker for the model's device."""
    if model.device.type == "cuda":
        if find_spec("triton") is None:
            raise ConfigError("engine qwen on a GPU needs Triton, which is not installed")
        return GraphFrames(model, sampling, slots, positions)
    return PlainFrames(model, sampling, slots, positions)
