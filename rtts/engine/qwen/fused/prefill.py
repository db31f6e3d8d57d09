"""Prompt rows of one slot through the talker in fused kernels: keys and values, nothing else.

The rows of a chain are padded to its size; padding writes where nobody looks. The oracle is
`rtts.engine.qwen.talker.Talker.prefill`.
"""

from __future__ import annotations

from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.frame import Model, SlotState
from rtts.engine.qwen.fused.attention import attend
from rtts.engine.qwen.fused.linear import SQUARE_UNIT, linear


class FusedPrefill:
    """A chain for `rows` prompt rows. Build it after the weights are folded (`FusedFrame`).

    Owner: engine thread.

    Attributes:
        x: `[rows, hidden]`, the rows' vectors.
        where: `[3, rows]` int64: slot, position, 1 where the row counts.
    """

    def __init__(
        self, model: Model, state: SlotState, tables: tuple[Tensor, Tensor], rows: int
    ) -> None:
        self._talker, self._kv, self._tables = model.talker, state.kv, tables
        stack = model.talker.config.stack

        def scratch(width: int, dtype: torch.dtype = model.dtype) -> Tensor:
            return torch.zeros(rows, width, dtype=dtype, device=model.device)

        self.rows = rows
        self.x = scratch(stack.hidden)
        self.where = torch.zeros(3, rows, dtype=torch.int64, device=model.device)
        self._qkv = scratch(int(model.talker.layers[0].qkv.shape[0]))
        self._attended = scratch(stack.heads * stack.head_dim)
        self._mid = scratch(stack.intermediate)
        self._squares = torch.zeros(
            2 * stack.layers + 1, rows, dtype=torch.int64, device=model.device
        )

    def run(self) -> None:
        """Write the rows' keys and values."""
        stack, x, squares = self._talker.config.stack, self.x, self._squares
        slots, positions, active = self.where
        squares.zero_()
        squares[0].copy_((x.double().square() * SQUARE_UNIT).to(torch.int64).sum(-1))
        last = len(self._talker.layers) - 1
        for i, layer in enumerate(self._talker.layers):
            assert layer.q_norm is not None and layer.k_norm is not None
            linear(x, layer.qkv, self._qkv, squares=squares[2 * i], eps=stack.eps)
            for place in (True, False):
                attend(
                    self._qkv, self._attended, self._kv.k[i], self._kv.v[i], stack, self._tables,
                    rows=self.rows, norms=(layer.q_norm, layer.k_norm), lengths=positions,
                    active=active, slots=slots, place=place,
                )  # fmt: skip
                if i == last:
                    return  # what comes after the last keys and values, nobody reads
            linear(self._attended, layer.out, x, residual=x, emit=squares[2 * i + 1])
            linear(
                x, layer.gate_up, self._mid, squares=squares[2 * i + 1], eps=stack.eps, gated=True
            )
            linear(self._mid, layer.down, x, residual=x, emit=squares[2 * i + 2])
