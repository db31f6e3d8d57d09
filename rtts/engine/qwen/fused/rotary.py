"""Rotary angles by position, tabulated in float32."""

from __future__ import annotations

from rtts.engine.qwen.extra import Tensor, torch


def rotary_tables(inverse_frequency: Tensor, positions: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each `[positions, head_dim / 2]` float32."""
    at = torch.arange(positions, device=inverse_frequency.device, dtype=torch.float32)
    angle = at[:, None] * inverse_frequency.float()
    return angle.cos().contiguous(), angle.sin().contiguous()
