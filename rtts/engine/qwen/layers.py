"""Decoder layers as weights: RMSNorm, rotary positions, attention projections, gated MLP.

Modules hold weights only. Keys and values are the caller's; a layer projects, the caller attends,
the layer finishes. Shared by the talker, the code predictor and the codec's transformer.

Source: `Qwen3TTSDecoderLayer` and `Qwen3TTSTokenizerV2DecoderTransformerLayer` of qwen-tts 0.1.1.
Differs: q, k and v are one matrix, gate and up are one matrix.
"""

from __future__ import annotations

from rtts.engine.qwen.config import DecoderConfig
from rtts.engine.qwen.extra import Tensor, functional, nn, torch
from rtts.engine.qwen.weights import Weights


def frozen(tensor: Tensor) -> nn.Parameter:
    """A weight: contiguous and without gradient."""
    return nn.Parameter(tensor.contiguous(), requires_grad=False)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, computed in float32 (or wider)."""
    wide = x if x.dtype == torch.float64 else x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


class Rotary(nn.Module):
    """Half-split rotary positions.

    The talker's three-row "interleaved" M-RoPE has equal rows in this model, which is this rotation.
    """

    inverse_frequency: Tensor

    def __init__(self, stack: DecoderConfig, device: torch.device) -> None:
        super().__init__()
        even = torch.arange(0, stack.head_dim, 2, dtype=torch.int64).float()
        frequency = 1.0 / (stack.rope_theta ** (even / stack.head_dim))
        self.inverse_frequency = frequency.to(device)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine, each `[..., head_dim]`, for positions `[...]`."""
        angle = positions.float()[..., None] * self.inverse_frequency
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply a rotation; `cos` and `sin` broadcast against `x` `[..., head_dim]`."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention with grouped key-value heads.

    Args:
        q: `[B, heads, T, head_dim]`.
        k: `[B, kv_heads, T_kv, head_dim]`; `v` likewise.
        mask: Bool, true where a query may look, broadcastable to `[B, heads, T, T_kv]`.

    Returns:
        `[B, heads, T, head_dim]`.
    """
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
    )


class DecoderLayer(nn.Module):
    """One layer's weights.

    Args:
        head_norms: Whether queries and keys are normed per head (talker and predictor).
        layer_scales: Whether each residual branch has a gain (codec).
    """

    def __init__(
        self,
        weights: Weights,
        prefix: str,
        stack: DecoderConfig,
        *,
        head_norms: bool,
        layer_scales: bool,
    ) -> None:
        super().__init__()
        self.stack = stack
        self.split = [
            stack.heads * stack.head_dim,
            stack.kv_heads * stack.head_dim,
            stack.kv_heads * stack.head_dim,
        ]
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        self.qkv = frozen(
            torch.cat(
                [
                    weights.take(f"{attention}.{part}_proj.weight", size, stack.hidden)
                    for part, size in zip("qkv", self.split, strict=True)
                ]
            )
        )
        self.out = frozen(weights.take(f"{attention}.o_proj.weight", stack.hidden, self.split[0]))
        self.gate_up = frozen(
            torch.cat(
                [
                    weights.take(f"{mlp}.{part}_proj.weight", stack.intermediate, stack.hidden)
                    for part in ("gate", "up")
                ]
            )
        )
        self.down = frozen(
            weights.take(f"{mlp}.down_proj.weight", stack.hidden, stack.intermediate)
        )
        self.norm_in = frozen(weights.take(f"{prefix}.input_layernorm.weight", stack.hidden))
        self.norm_mlp = frozen(
            weights.take(f"{prefix}.post_attention_layernorm.weight", stack.hidden)
        )
        self.q_norm = self.k_norm = None
        if head_norms:
            self.q_norm = frozen(weights.take(f"{attention}.q_norm.weight", stack.head_dim))
            self.k_norm = frozen(weights.take(f"{attention}.k_norm.weight", stack.head_dim))
        self.scale_attention = self.scale_mlp = None
        if layer_scales:
            self.scale_attention = frozen(
                weights.take(f"{prefix}.self_attn_layer_scale.scale", stack.hidden)
            )
            self.scale_mlp = frozen(weights.take(f"{prefix}.mlp_layer_scale.scale", stack.hidden))

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of `x`, rotated.

        Args:
            x: `[B, T, hidden]`.
            cos: `[B or 1, T, head_dim]`; `sin` likewise.

        Returns:
            `[B, heads, T, head_dim]` and twice `[B, kv_heads, T, head_dim]`.
        """
        normed = rms_norm(x, self.norm_in, self.stack.eps)
        q, k, v = (
            part.view(*part.shape[:2], -1, self.stack.head_dim)
            for part in torch.split(functional.linear(normed, self.qkv), self.split, dim=-1)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q = rms_norm(q, self.q_norm, self.stack.eps)
            k = rms_norm(k, self.k_norm, self.stack.eps)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        cos, sin = cos[:, None], sin[:, None]
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output from its input and what attention gave (`[B, heads, T, head_dim]`)."""
        branch = functional.linear(attended.transpose(1, 2).flatten(2), self.out)
        x = x + (branch if self.scale_attention is None else self.scale_attention * branch)
        normed = rms_norm(x, self.norm_mlp, self.stack.eps)
        gate, up = functional.linear(normed, self.gate_up).chunk(2, dim=-1)
        branch = functional.linear(functional.silu(gate) * up, self.down)
        return x + (branch if self.scale_mlp is None else self.scale_mlp * branch)
