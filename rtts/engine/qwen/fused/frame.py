"""One codec frame for the first B slots, as a chain of fused kernels.

Everything it reads and writes is static: captured once a batch size, it is replayed. The oracle is
`rtts.engine.qwen.frame.speak_frame`.
"""

from __future__ import annotations

from rtts.engine.qwen.config import SUPPRESSED_IDS, SamplingConfig
from rtts.engine.qwen.extra import Tensor, functional, torch
from rtts.engine.qwen.frame import Model, SlotState
from rtts.engine.qwen.fused import tiles
from rtts.engine.qwen.fused.attention import attend
from rtts.engine.qwen.fused.choose import (
    enter_kernel,
    finish_kernel,
    first_kernel,
    later_kernel,
)
from rtts.engine.qwen.fused.codec import FusedCodec, FusedCodecState
from rtts.engine.qwen.fused.launch import launch, power_of_two
from rtts.engine.qwen.fused.linear import fold, linear, norm
from rtts.engine.qwen.fused.rotary import rotary_tables
from rtts.engine.qwen.layers import DecoderLayer
from rtts.engine.qwen.sampling import MIN_NEW_TOKENS

PACKED = 2
"""Numbers packed behind a row's codes: flags (1 ended, 2 finite, 4 goes on), level's bits."""


class FusedFrame:
    """The chain, its tables and its scratch.

    Owner: engine thread.

    Args:
        rows: The largest batch.

    Attributes:
        inputs: `[rows, 2]` int64, written before each frame: text id, 1 where active.
        packed: `[rows, Q + PACKED]` int32, what the host is told of a row.
        pcm: `[rows, samples]` int16.
    """

    def __init__(
        self,
        model: Model,
        sampling: SamplingConfig,
        state: SlotState,
        codec: FusedCodec,
        codec_state: FusedCodecState,
        rows: int,
    ) -> None:
        self._model, self._sampling, self._state = model, sampling, state
        self._codec, self._codec_state = codec, codec_state
        talker, predictor = model.talker, model.predictor
        stack, small = talker.config.stack, predictor.config.stack
        groups, hidden, inner = talker.config.groups, stack.hidden, small.hidden
        device, dtype = model.device, model.dtype

        def scratch(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.text_table = model.talker.tabulate_text()
        for layer in (*talker.layers, *predictor.layers):
            fold(layer.qkv, layer.norm_in)
            fold(layer.gate_up, layer.norm_mlp)
        fold(predictor.heads, predictor.norm)
        self._entry_first, self._entry_later = _entries(model)
        self.tables = rotary_tables(talker.rotary.inverse_frequency, state.kv.positions + 1)
        self._small_tables = rotary_tables(predictor.rotary.inverse_frequency, groups)
        self._x, self._h = scratch(rows, hidden), scratch(rows, hidden)
        self._small_x = scratch(2 * rows, inner)
        widest = max(talker.layers[0].qkv.shape[0], predictor.layers[0].qkv.shape[0])
        self._qkv = scratch(2 * rows * widest)
        self._attended = scratch(
            2 * rows * max(stack.heads * stack.head_dim, small.heads * small.head_dim)
        )
        self._mid = scratch(2 * rows * max(stack.intermediate, small.intermediate))
        self._scores = scratch(
            rows * max(talker.config.vocab, predictor.config.vocab), dtype=torch.float32
        )
        norms = 2 * stack.layers + (groups - 1) * (2 * small.layers + 1) + 1
        self._squares = scratch(norms, 2 * rows, dtype=torch.int64)
        self._small_norms = 2 * stack.layers + 1
        self._total = scratch(rows, hidden, dtype=torch.float32)
        shape = (small.layers, rows, small.kv_heads, groups, small.head_dim)
        self._small_k, self._small_v = scratch(*shape), scratch(*shape)
        self.active = scratch(rows, dtype=torch.int64)
        self.inputs = scratch(rows, 2, dtype=torch.int64)
        self.codes = scratch(rows, groups, dtype=torch.int64)
        self._flags = scratch(rows, dtype=torch.int32)
        self.packed = scratch(rows, groups + PACKED, dtype=torch.int32)
        self.pcm = codec.pcm

    def run(self, rows: int) -> None:
        """Make one frame of the first `rows` slots."""
        self.talk(rows)
        self.predict(rows)
        self.render(rows)

    def talk(self, rows: int) -> None:
        """Talker and code group 0."""
        talker, state = self._model.talker, self._state
        stack, hidden = talker.config.stack, talker.config.stack.hidden
        self._squares.zero_()
        launch(
            enter_kernel,
            (rows,),
            self.inputs, state.codec_side, self.text_table, self._x, self._squares[0], self.active,
            H=hidden, BH=power_of_two(hidden), num_warps=4,
        )  # fmt: skip
        x = self._x[:rows]
        for i, layer in enumerate(talker.layers):
            self._layer(
                layer, x, state.kv.k[i], state.kv.v[i], self.tables, self._squares[2 * i :],
                rows=rows, lengths=state.lengths, active=self.active,
            )  # fmt: skip
        h = self._h[:rows]
        has_entry = self._model.predictor.project is None  # else its projection adds up the squares
        emit = self._squares[self._small_norms if has_entry else self._small_norms - 1]
        norm(x, talker.norm, h, emit, stack.eps)
        scores = self._scores[: rows * talker.config.vocab].view(rows, -1)
        linear(h, talker.codec_head, scores)

    def predict(self, rows: int) -> None:
        """All code groups."""
        model, state, settings = self._model, self._state, self._sampling
        predictor, talker = model.predictor, model.talker.config
        groups, vocab, eps = (
            predictor.config.groups,
            predictor.config.vocab,
            predictor.config.stack.eps,
        )
        small, h = self._small_x, self._h[:rows]
        squares = self._squares[self._small_norms :]
        if predictor.project is None:
            small[:rows].copy_(h)  # whose squares are there already
        else:
            linear(h, predictor.project, small[:rows], bias=predictor.project_bias, emit=squares[0])
        widths = {
            "H": talker.stack.hidden,
            "BH": power_of_two(talker.stack.hidden),
            "HP": small.shape[1],
            "BHP": power_of_two(small.shape[1]),
            "GROUPS": groups,
        }
        launch(
            first_kernel,
            (rows,),
            self._scores, state.seen, state.frames, state.drawn, state.seeds, state.greedy,
            self.active, self.codes, self._flags,
            model.talker.codec_embedding, self._entry_first, self._total, small[rows:], squares[0, rows:],
            settings.repetition_penalty, settings.temperature, settings.top_p,
            V=talker.vocab, BV=power_of_two(talker.vocab), K=settings.top_k,
            P=settings.top_p < 1.0, EOS=talker.eos_id, SUPPRESSED=SUPPRESSED_IDS,
            EARLY=MIN_NEW_TOKENS, num_warps=tiles.CHOOSE_WARPS, **widths,
        )  # fmt: skip
        scores = self._scores[: rows * vocab].view(rows, -1)
        for group in range(1, groups):
            steps = 2 if group == 1 else 1
            x = small[: steps * rows]
            for i, layer in enumerate(predictor.layers):
                self._layer(
                    layer, x, self._small_k[i], self._small_v[i], self._small_tables,
                    squares[2 * i :],
                    rows=rows, first=0 if steps == 2 else group, steps=steps,
                )  # fmt: skip
            last = squares[2 * len(predictor.layers), (steps - 1) * rows :]
            linear(x[-rows:], predictor.heads[group - 1], scores, squares=last, eps=eps)
            squares = squares[2 * len(predictor.layers) + (group < groups - 1) :]
            launch(
                later_kernel,
                (rows,),
                scores, state.drawn, state.seeds, state.greedy_later, self.active, self.codes,
                predictor.embeddings[group - 1], self._entry_later[group - 1], self._total,
                small, squares[0], state.codec_side, group,
                settings.subtalker_temperature, settings.subtalker_top_p,
                V=vocab, BV=power_of_two(vocab), K=settings.subtalker_top_k,
                P=settings.subtalker_top_p < 1.0, LAST=group == groups - 1,
                num_warps=tiles.CHOOSE_WARPS, **widths,
            )  # fmt: skip

    def render(self, rows: int) -> None:
        """Codes to samples, counters, and what the host is told."""
        state, samples = self._state, self._codec.config.samples_per_frame
        self._codec.render(self.codes, self._flags, self._codec_state, rows)
        launch(
            finish_kernel,
            (rows,),
            self.pcm, self.codes, self._flags, self.active, state.lengths, state.frames,
            state.drawn, self._codec_state.frames, self.packed,
            SAMPLES=samples, BS=power_of_two(samples), GROUPS=self.codes.shape[1], num_warps=4,
        )  # fmt: skip

    def _layer(
        self,
        layer: DecoderLayer,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        tables: tuple[Tensor, Tensor],
        squares: Tensor,
        *,
        rows: int,
        lengths: Tensor | None = None,
        active: Tensor | None = None,
        first: int = 0,
        steps: int = 1,
    ) -> None:
        """One decoder layer, `x` in place; `squares` of its two norms and of whoever comes next."""
        count, stack = x.shape[0], layer.stack
        qkv = self._qkv[: count * layer.qkv.shape[0]].view(count, -1)
        attended = self._attended[: count * stack.heads * stack.head_dim].view(count, -1)
        mid = self._mid[: count * stack.intermediate].view(count, -1)
        linear(x, layer.qkv, qkv, squares=squares[0], eps=stack.eps)
        assert layer.q_norm is not None and layer.k_norm is not None
        attend(
            qkv, attended, keys, values, stack, tables, rows=rows,
            norms=(layer.q_norm, layer.k_norm), lengths=lengths, active=active, first=first,
            steps=steps,
        )  # fmt: skip
        linear(attended, layer.out, x, residual=x, emit=squares[1])
        linear(x, layer.gate_up, mid, squares=squares[1], eps=stack.eps, gated=True)
        linear(mid, layer.down, x, residual=x, emit=squares[2])


def _entries(model: Model) -> tuple[Tensor, Tensor]:
    """The predictor's input for each code: of group 0 `[vocab, H]`, of the others `[Q-1, vocab, H]`."""
    predictor = model.predictor
    first, later = model.talker.codec_embedding.detach(), predictor.embeddings.detach()
    if predictor.project is None:
        return first, later
    with torch.no_grad():
        return (
            functional.linear(first, predictor.project, predictor.project_bias).contiguous(),
            functional.linear(later, predictor.project, predictor.project_bias).contiguous(),
        )
