"""Attention over prompt rows: FlashAttention where it is installed and can run, torch's own otherwise.

For prefilling voice heads with the plain modules. A frame's own attention, and that of prompts on a
GPU's captured path, is `fused.attention`, whatever is chosen here.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.layers import attend

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""As `layers.attend`; the mask is causal, the queries being the last of the positions."""

SDPA = "SDPA"


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """What attends.

    Attributes:
        name: "SDPA", or "flash-attn" and its version.
        trouble: Why flash-attn, though installed, is not what is used; nothing if there is no reason.
    """

    attend: Attend
    name: str = SDPA
    trouble: str = ""


def choose_prompt_attention(device: torch.device, dtype: torch.dtype) -> PromptAttention:
    """flash-attn for 16-bit values on a GPU where its package can be imported, else SDPA."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return PromptAttention(attend)
    if importlib.util.find_spec("flash_attn") is None:
        return PromptAttention(attend)
    try:
        package: Any = importlib.import_module("flash_attn")
        flash = package.flash_attn_func
    except (ImportError, AttributeError) as error:  # built for another torch; another generation
        trouble = f"flash-attn is installed but cannot be used, so that prompts use SDPA: {error}"
        return PromptAttention(attend, trouble=trouble)

    def attend_flash(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out: Tensor = flash(q, k, v, causal=True)  # aligned to the last key since 2.1
        return out.transpose(1, 2)

    return PromptAttention(attend_flash, f"flash-attn {package.__version__}")
