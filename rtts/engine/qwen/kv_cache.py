"""Keys and values by slot: static tensors, written in place, one position more than is ever read.

It knows shapes; who owns which slot is the scheduler's business.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts.engine.qwen.config import DecoderConfig
from rtts.engine.qwen.extra import Tensor, torch


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values of a stack of layers.

    Owner: engine thread.

    Attributes:
        k: `[L, slots, kv_heads, positions + 1, head_dim]`. The last position is where rows that are
            not active write, so that no row needs a mask on its write; it is never attended to.
        v: Likewise.
    """

    k: Tensor
    v: Tensor

    @classmethod
    def allocate(
        cls, stack: DecoderConfig, slots: int, positions: int, dtype: torch.dtype, device: str
    ) -> KeyValues:
        """Zeroed keys and values (zero, not empty: garbage could be NaN and NaN * 0 is NaN)."""
        shape = (stack.layers, slots, stack.kv_heads, positions + 1, stack.head_dim)
        return cls(
            torch.zeros(shape, dtype=dtype, device=device),
            torch.zeros(shape, dtype=dtype, device=device),
        )

    @property
    def positions(self) -> int:
        """Positions a slot can hold."""
        return int(self.k.shape[3]) - 1

    @property
    def nbytes(self) -> int:
        """Device memory of both tensors."""
        return 2 * self.k.numel() * self.k.element_size()

    def copy_in(self, slot: int, prefix: KeyValues, length: int) -> None:
        """Put the first `length` positions of a one-slot prefix into a slot."""
        self.k[:, slot, :, :length].copy_(prefix.k[:, 0, :, :length])
        self.v[:, slot, :, :length].copy_(prefix.v[:, 0, :, :length])

    def clear(self, slot: int) -> None:
        """Zero a slot."""
        self.k[:, slot].zero_()
        self.v[:, slot].zero_()

    def write(self, layer: int, positions: Tensor, k: Tensor, v: Tensor) -> None:
        """Write one position of each of the first B slots.

        Args:
            positions: `[B]` int64.
            k: `[B, kv_heads, 1, head_dim]`; `v` likewise.
        """
        rows = torch.arange(positions.shape[0], device=positions.device)
        self.k[layer][rows, :, positions] = k[:, :, 0]
        self.v[layer][rows, :, positions] = v[:, :, 0]
