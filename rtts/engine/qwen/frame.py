"""One codec frame for a batch of slots: talker, code predictor, sampling, codec, in one function.

Static tensors by slot; a batch is the first B slots and a mask of those that run. Nothing inside a
frame waits for the host, so on a GPU the whole of it is one graph for each B. It knows nothing
about text, utterances, credit or time: it is given one text id a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rtts.engine.qwen.code_predictor import CodePredictor
from rtts.engine.qwen.codec import Codec, CodecState
from rtts.engine.qwen.config import ModelConfig, load_config
from rtts.engine.qwen.extra import Tensor, functional, nn, torch
from rtts.engine.qwen.kv_cache import KeyValues
from rtts.engine.qwen.prompt import Row
from rtts.engine.qwen.sampling import Noise, Sampler, Seeded, uniforms
from rtts.engine.qwen.talker import Talker
from rtts.engine.qwen.weights import Weights, open_weights
from rtts.errors import ConfigError

_UNUSED = ("speaker_encoder.",)
_UNUSED_CODEC = (
    "encoder.",
    "decoder.quantizer.rvq_first.input_proj",
    "decoder.quantizer.rvq_rest.input_proj",
)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Tensors of a registered reference, as the rows of a prompt need them.

    Attributes:
        x_vector: `[hidden]`.
        codes: `[T, Q]` int64.
    """

    x_vector: Tensor
    codes: Tensor


OpenWeights = Callable[[Path, torch.dtype, str], Weights]
"""Folder, dtype and device to the tensors in it."""


class Model(nn.Module):
    """The weights of one checkpoint, loaded.

    Args:
        read: Where tensors come from: the folder's files, unless somebody sizes hardware.
    """

    def __init__(
        self, folder: Path, dtype: torch.dtype, device: str, read: OpenWeights = open_weights
    ) -> None:
        super().__init__()
        self.config: ModelConfig = load_config(folder)
        self.dtype, self.device = dtype, torch.device(device)
        self._sides: dict[int | None, Tensor] = {}
        weights = read(folder, dtype, device)
        hidden = self.config.talker.stack.hidden
        self.talker = Talker(weights, self.config.talker)
        self.predictor = CodePredictor(weights, self.config.predictor, hidden)
        codec_weights = read(folder / "speech_tokenizer", dtype, device)
        self.codec = Codec(codec_weights, self.config.codec)
        unknown = [*weights.leftover(*_UNUSED), *codec_weights.leftover(*_UNUSED_CODEC)]
        if unknown:
            raise ConfigError(
                f"model folder {folder}: tensors this version does not know: {unknown[:5]}"
            )

    def rows(self, rows: tuple[Row, ...], conditions: Conditions | None = None) -> Tensor:
        """Input vectors of prompt rows, `[T, hidden]`."""
        return self.text_side(rows) + self.codec_side(rows, conditions)

    def text_side(self, rows: tuple[Row, ...]) -> Tensor:
        """What the text side of each row adds, `[T, hidden]`."""
        ids = torch.tensor([row.text or 0 for row in rows], device=self.device)
        absent = torch.tensor([row.text is None for row in rows], device=self.device)
        return self.talker.project_text(ids).masked_fill(absent[:, None], 0.0)

    def codec_side(self, rows: tuple[Row, ...], conditions: Conditions | None = None) -> Tensor:
        """What the codec side of each row adds, `[T, hidden]`."""
        ids = torch.tensor([row.codec or 0 for row in rows], device=self.device)
        absent = torch.tensor([row.codec is None for row in rows], device=self.device)
        side = functional.embedding(ids, self.talker.codec_embedding)
        side = side.masked_fill(absent[:, None], 0.0)
        if conditions is None:
            return side
        for i, row in enumerate(rows):
            if row.x_vector:
                side[i] = conditions.x_vector
        frames = [(i, row.frame) for i, row in enumerate(rows) if row.frame is not None]
        if frames:
            where, which = zip(*frames, strict=True)
            side[list(where)] = self.frame_side(conditions.codes[list(which)])
        return side

    def last_side(self, row: Row, conditions: Conditions | None = None) -> Tensor:
        """`codec_side` of a prompt's last row, `[hidden]`; one plain id for nearly all, so kept."""
        if row.x_vector or row.frame is not None:
            return self.codec_side((row,), conditions)[0]
        side = self._sides.get(row.codec)
        if side is None:
            side = self._sides[row.codec] = self.codec_side((row,))[0]
        return side

    def frame_side(self, codes: Tensor) -> Tensor:
        """Sum of a frame's sixteen embeddings: `[T, Q]` to `[T, hidden]`."""
        first = functional.embedding(codes[:, 0], self.talker.codec_embedding)
        return first + self.predictor.embed(codes[:, 1:])


@dataclass(frozen=True, slots=True)
class SlotState:
    """Everything the talker side remembers of each slot.

    Owner: engine thread.

    Attributes:
        kv: Keys and values.
        lengths: `[slots]` int64, positions held.
        codec_side: `[slots, hidden]`, the codec side of the next position.
        seen: `[slots, vocab]` bool, group-0 codes of this take.
        frames: `[slots]` int64, frames of this take.
        drawn: `[slots]` int64, frames of the utterance: the counter of its random draws.
        seeds: `[slots]` int64.
        greedy: `[slots]` bool, group 0 is not drawn; `greedy_later` the same for the other groups.
    """

    kv: KeyValues
    lengths: Tensor
    codec_side: Tensor
    seen: Tensor
    frames: Tensor
    drawn: Tensor
    seeds: Tensor
    greedy: Tensor
    greedy_later: Tensor

    @classmethod
    def allocate(cls, model: Model, slots: int, positions: int) -> SlotState:
        """State for `slots` streams of at most `positions` positions."""
        talker = model.config.talker

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=model.device)

        return cls(
            kv=KeyValues.allocate(talker.stack, slots, positions, model.dtype, str(model.device)),
            lengths=zeros(slots, dtype=torch.int64),
            codec_side=zeros(slots, talker.stack.hidden, dtype=model.dtype),
            seen=zeros(slots, talker.vocab, dtype=torch.bool),
            frames=zeros(slots, dtype=torch.int64),
            drawn=zeros(slots, dtype=torch.int64),
            seeds=zeros(slots, dtype=torch.int64),
            greedy=zeros(slots, dtype=torch.bool),
            greedy_later=zeros(slots, dtype=torch.bool),
        )

    def begin_take(self, slot: int, length: int, codec_side: Tensor) -> None:
        """A slot holds a prompt of `length` positions; its last row waits in `codec_side`."""
        self.lengths[slot].fill_(length)
        self.codec_side[slot].copy_(codec_side)
        self.seen[slot].zero_()
        self.frames[slot].zero_()

    def begin_draws(self, slot: int, seed: int, drawn: int, greedy: tuple[bool, bool]) -> None:
        """Where a slot's draws go on: group 0 greedy or not, and the other groups."""
        self.seeds[slot].fill_(seed)
        self.drawn[slot].fill_(drawn)
        self.greedy[slot].fill_(greedy[0])
        self.greedy_later[slot].fill_(greedy[1])

    def move(self, source: int, target: int, positions: int) -> None:
        """Make slot `target` what `source` is, which holds that many positions."""
        for kept in (self.kv.k, self.kv.v):
            kept[:, target, :, :positions].copy_(kept[:, source, :, :positions])
        for kept in (
            *(self.lengths, self.codec_side, self.seen, self.frames),
            *(self.drawn, self.seeds, self.greedy, self.greedy_later),
        ):
            kept[target].copy_(kept[source])


@dataclass(frozen=True, slots=True)
class FrameOutput:
    """What one frame produced for the first B slots; meaningless where not active.

    Attributes:
        codes: `[B, Q]` int64.
        ended: `[B]` bool, the talker chose the end: no audio.
        pcm: `[B, samples]` int16, zero where it ended or was not active.
        finite: `[B]` bool, false where the talker's scores were not all numbers.
    """

    codes: Tensor
    ended: Tensor
    pcm: Tensor
    finite: Tensor


def speak_frame(
    model: Model,
    sampler: Sampler,
    state: SlotState,
    codec_state: CodecState,
    text_side: Tensor,
    active: Tensor,
    span: int,
    noise: Noise | None = None,
) -> FrameOutput:
    """Make one codec frame for each active row of the first B slots.

    Args:
        text_side: `[B, hidden]`, projected text of each row's next position.
        active: `[B]` bool. Inactive rows' state is left as it is.
        span: Positions the talker attends over: more than any active row holds.
        noise: Source of draws; by default each row's own seed and frame count.
    """
    rows = text_side.shape[0]
    lengths, seen = state.lengths[:rows], state.seen[:rows]
    greedy, greedy_later = state.greedy[:rows], state.greedy_later[:rows]
    if noise is None:
        draws = uniforms(state.seeds[:rows], state.drawn[:rows], model.config.talker.groups)
        noise = Seeded(draws)
    x = state.codec_side[:rows] + text_side
    h = model.talker.step(x, state.kv, lengths, active, span)
    scores = model.talker.logits(h)
    finite = scores.isfinite().all(-1)
    scores = torch.where(finite[:, None], scores, 0.0)
    first = sampler.first(scores, seen, state.frames[:rows], greedy, noise)
    row = functional.embedding(first, model.talker.codec_embedding)
    later, codec_side = model.predictor.predict(
        h, row, lambda s, g: sampler.later(s.nan_to_num(), g, greedy_later, noise)
    )
    ended = first == model.config.talker.eos_id
    codes = torch.cat((first[:, None], later), dim=1)
    goes_on = active & ~ended & finite
    playable = codes.clamp(max=model.config.codec.codebook_size - 1)
    samples = model.codec.render(playable[:, :, None], goes_on, codec_state)
    pcm = (samples.float() * 32767.0).round().nan_to_num().to(torch.int16)
    _advance(state, first, codec_side, active)
    return FrameOutput(codes, ended, torch.where(goes_on[:, None], pcm, 0), finite)


def _advance(state: SlotState, first: Tensor, codec_side: Tensor, active: Tensor) -> None:
    rows = active.shape[0]
    step = active.to(torch.int64)
    for counter in (state.lengths, state.frames, state.drawn):
        counter[:rows] += step
    kept = state.codec_side[:rows]
    kept.copy_(torch.where(active[:, None], codec_side, kept))
    seen = state.seen[:rows]
    new = torch.zeros_like(seen).scatter_(1, first[:, None], value=True)
    seen |= new & active[:, None]
