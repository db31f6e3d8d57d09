"""The codec's decoder: codes to samples, continuing exactly where each row left off.

Every layer is causal, so the past a layer needs is its last few inputs: convolution histories, the
last input column of each overlapping transposed convolution, the transformer's keys and values
inside its window. With those carried, any division of a stream into calls gives the samples of
one call over all of it; nothing is decoded twice. The modules hold weights, `CodecState` holds the
past. It does not know slots' owners, sample formats or time.

Source: `Qwen3TTSTokenizerV2Decoder` of qwen-tts 0.1.1. Differs: carries state, where the reference
decodes 25 frames of left context again (`chunked_decode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from rtts.engine.qwen.config import CodecConfig
from rtts.engine.qwen.extra import Tensor, functional, nn, torch
from rtts.engine.qwen.layers import DecoderLayer, Rotary, attend, frozen, rms_norm
from rtts.engine.qwen.weights import Weights

_EPSILON_USAGE = 1e-5  # EuclideanCodebook.epsilon
_EPSILON_SNAKE = 1e-9  # SnakeBeta.no_div_by_zero
_EPSILON_LAYER_NORM = 1e-6  # ConvNeXtBlock.norm
_MOST_ROWS = 8
"""Rows computed together. From 16 on a CPU's pointwise convolution takes another path, and a row's bits
would depend on its neighbours (measured: torch 2.13; 4 to 8 rows agree bit for bit)."""


@dataclass(frozen=True, slots=True)
class CodecState:
    """What the decoder remembers of each slot.

    Owner: engine thread. All zero is the start of a stream.

    Attributes:
        frames: `[slots]` int64, codec frames rendered so far: the next absolute position.
        k: `[L, slots, heads, window - 1, head_dim]`, right-aligned: the newest is last.
        v: Likewise.
        pasts: One `[slots, channels, columns]` for each layer that looks back, in the order they run.
    """

    frames: Tensor
    k: Tensor
    v: Tensor
    pasts: tuple[Tensor, ...]

    def reset(self, mask: Tensor) -> None:
        """Put the slots where `mask` `[slots]` is true back to the start of a stream."""
        self.frames.masked_fill_(mask, 0)
        self.k.masked_fill_(mask[None, :, None, None, None], 0)
        self.v.masked_fill_(mask[None, :, None, None, None], 0)
        for past in self.pasts:
            past.masked_fill_(mask[:, None, None], 0)

    def copy_in(self, slot: int, other: CodecState, other_slot: int = 0) -> None:
        """Make a slot continue where a slot of `other` left off (a cloned voice's reference)."""
        self.frames[slot] = other.frames[other_slot]
        self.k[:, slot].copy_(other.k[:, other_slot])
        self.v[:, slot].copy_(other.v[:, other_slot])
        for mine, theirs in zip(self.pasts, other.pasts, strict=True):
            mine[slot].copy_(theirs[other_slot])

    def part(self, first: int, end: int) -> CodecState:
        """Slots `first` to `end`, as a view."""
        return CodecState(
            frames=self.frames[first:end],
            k=self.k[:, first:end],
            v=self.v[:, first:end],
            pasts=tuple(past[first:end] for past in self.pasts),
        )

    @property
    def nbytes(self) -> int:
        """Device memory of all slots."""
        return sum(part.numel() * part.element_size() for part in (self.k, self.v, *self.pasts))


class _Past:
    """Hands each layer its history in running order, for the first B slots, and puts back the new one.

    Rows outside `active` get their old history back bit for bit.
    """

    def __init__(self, state: CodecState, active: Tensor) -> None:
        self._state = state
        self._active = active
        self._next = 0

    def extend(self, x: Tensor) -> Tensor:
        """`x` `[B, C, T]` with the layer's history in front; keeps the newest columns for next time."""
        stored = self._state.pasts[self._next]
        self._next += 1
        rows, width = x.shape[0], stored.shape[-1]
        old = stored[:rows]
        joined = torch.cat((old, x), dim=-1)
        newest = joined[..., joined.shape[-1] - width :]
        old.copy_(torch.where(self._active[:, None, None], newest, old))
        return joined


class _Conv(nn.Module):
    """A causal convolution of stride 1."""

    def __init__(
        self,
        weights: Weights,
        name: str,
        channels_in: int,
        channels_out: int,
        kernel: int,
        *,
        dilation: int = 1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.weight = frozen(
            weights.take(f"{name}.weight", channels_out, channels_in // groups, kernel)
        )
        self.bias = frozen(weights.take(f"{name}.bias", channels_out))
        self.dilation, self.groups = dilation, groups
        self.past_shape = (channels_in, (kernel - 1) * dilation)

    def forward(self, x: Tensor, past: _Past) -> Tensor:
        if self.past_shape[1]:
            x = past.extend(x)
        return functional.conv1d(
            x, self.weight, self.bias, dilation=self.dilation, groups=self.groups
        )


class _Upsample(nn.Module):
    """A causal transposed convolution: kernel = stride (no past) or 2 x stride (one column)."""

    def __init__(
        self,
        weights: Weights,
        name: str,
        channels_in: int,
        channels_out: int,
        kernel: int,
        stride: int,
    ) -> None:
        super().__init__()
        self.weight = frozen(weights.take(f"{name}.weight", channels_in, channels_out, kernel))
        self.bias = frozen(weights.take(f"{name}.bias", channels_out))
        self.stride = stride
        self.past_shape = (channels_in, kernel // stride - 1)

    def forward(self, x: Tensor, past: _Past) -> Tensor:
        if not self.past_shape[1]:
            return functional.conv_transpose1d(x, self.weight, self.bias, stride=self.stride)
        columns = x.shape[-1]
        joined = past.extend(x)
        whole = functional.conv_transpose1d(joined, self.weight, self.bias, stride=self.stride)
        return whole[..., self.stride : self.stride * (columns + 1)]


class _Snake(nn.Module):
    """SnakeBeta: x + sin(x e^alpha)^2 / (e^beta + epsilon); the exponentials are taken at load."""

    def __init__(self, weights: Weights, name: str, channels: int) -> None:
        super().__init__()
        alpha = weights.take(f"{name}.alpha", channels)
        beta = weights.take(f"{name}.beta", channels)
        self.frequency = frozen(alpha.exp()[None, :, None])
        self.gain = frozen((1.0 / (beta.exp() + _EPSILON_SNAKE))[None, :, None])

    def forward(self, x: Tensor) -> Tensor:
        wave: Tensor = torch.sin(x * self.frequency).square()
        return x + self.gain * wave


class _ConvNeXt(nn.Module):
    """Depthwise convolution, LayerNorm, MLP, gain; added to its input."""

    def __init__(self, weights: Weights, name: str, channels: int) -> None:
        super().__init__()
        self.depthwise = _Conv(
            weights, f"{name}.dwconv.conv", channels, channels, 7, groups=channels
        )
        self.norm = frozen(weights.take(f"{name}.norm.weight", channels))
        self.norm_bias = frozen(weights.take(f"{name}.norm.bias", channels))
        self.widen = frozen(weights.take(f"{name}.pwconv1.weight", 4 * channels, channels))
        self.widen_bias = frozen(weights.take(f"{name}.pwconv1.bias", 4 * channels))
        self.narrow = frozen(weights.take(f"{name}.pwconv2.weight", channels, 4 * channels))
        self.narrow_bias = frozen(weights.take(f"{name}.pwconv2.bias", channels))
        self.gain = frozen(weights.take(f"{name}.gamma", channels))

    def forward(self, x: Tensor, past: _Past) -> Tensor:
        h = self.depthwise(x, past).transpose(1, 2)
        h = functional.layer_norm(h, (h.shape[-1],), self.norm, self.norm_bias, _EPSILON_LAYER_NORM)
        h = functional.gelu(functional.linear(h, self.widen, self.widen_bias))
        h = self.gain * functional.linear(h, self.narrow, self.narrow_bias)
        return x + h.transpose(1, 2)


class _ResidualUnit(nn.Module):
    def __init__(self, weights: Weights, name: str, channels: int, dilation: int) -> None:
        super().__init__()
        self.snake1 = _Snake(weights, f"{name}.act1", channels)
        self.conv1 = _Conv(weights, f"{name}.conv1.conv", channels, channels, 7, dilation=dilation)
        self.snake2 = _Snake(weights, f"{name}.act2", channels)
        self.conv2 = _Conv(weights, f"{name}.conv2.conv", channels, channels, 1)

    def forward(self, x: Tensor, past: _Past) -> Tensor:
        h: Tensor = self.conv1(self.snake1(x), past)
        h = self.conv2(self.snake2(h), past)
        return x + h


class _Block(nn.Module):
    """Snake, upsampling by `rate`, three residual units of dilation 1, 3 and 9."""

    def __init__(
        self, weights: Weights, name: str, channels_in: int, channels_out: int, rate: int
    ) -> None:
        super().__init__()
        self.snake = _Snake(weights, f"{name}.0", channels_in)
        self.upsample = _Upsample(
            weights, f"{name}.1.conv", channels_in, channels_out, 2 * rate, rate
        )
        self.units = nn.ModuleList(
            _ResidualUnit(weights, f"{name}.{i + 2}", channels_out, dilation)
            for i, dilation in enumerate((1, 3, 9))
        )

    def forward(self, x: Tensor, past: _Past) -> Tensor:
        x = self.upsample(self.snake(x), past)
        for unit in self.units:
            x = unit(x, past)
        return x


class _Quantizer(nn.Module):
    """Codes to vectors: the sum of one row a group.

    Each codebook is tabulated through its group's output projection at load.
    """

    def __init__(self, weights: Weights, config: CodecConfig) -> None:
        super().__init__()
        inner = config.codebook_dim // 2
        tables = []
        for group in range(config.quantizers):
            side, layer = ("rvq_first", 0) if group == 0 else ("rvq_rest", group - 1)
            book = f"decoder.quantizer.{side}.vq.layers.{layer}._codebook"
            usage = weights.take(f"{book}.cluster_usage", config.codebook_size)
            total = weights.take(f"{book}.embedding_sum", config.codebook_size, inner)
            tables.append(total / usage.clamp(min=_EPSILON_USAGE)[:, None])
        for side, part in (("rvq_first", slice(0, 1)), ("rvq_rest", slice(1, None))):
            project = weights.take(
                f"decoder.quantizer.{side}.output_proj.weight", config.codebook_dim, inner, 1
            )
            tables[part] = [table @ project[:, :, 0].T for table in tables[part]]
        self.tables = frozen(torch.stack(tables))

    def forward(self, codes: Tensor) -> Tensor:
        """`[B, Q, T]` to `[B, codebook_dim, T]`."""
        total = functional.embedding(codes[:, 0], self.tables[0])
        for group in range(1, codes.shape[1]):
            total = total + functional.embedding(codes[:, group], self.tables[group])
        return total.transpose(1, 2)


class Codec(nn.Module):
    """Weights of the decoder half of the speech tokenizer."""

    def __init__(self, weights: Weights, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        stack, latent = config.stack, config.latent_dim
        self.quantizer = _Quantizer(weights, config)
        self.pre_conv = _Conv(weights, "decoder.pre_conv.conv", config.codebook_dim, latent, 3)
        root = "decoder.pre_transformer"
        self.enter = frozen(weights.take(f"{root}.input_proj.weight", stack.hidden, latent))
        self.enter_bias = frozen(weights.take(f"{root}.input_proj.bias", stack.hidden))
        self.layers = cast(
            "Sequence[DecoderLayer]",
            nn.ModuleList(
                DecoderLayer(
                    weights, f"{root}.layers.{i}", stack, head_norms=False, layer_scales=True
                )
                for i in range(stack.layers)
            ),
        )
        self.norm = frozen(weights.take(f"{root}.norm.weight", stack.hidden))
        self.leave = frozen(weights.take(f"{root}.output_proj.weight", latent, stack.hidden))
        self.leave_bias = frozen(weights.take(f"{root}.output_proj.bias", latent))
        self.rotary = Rotary(stack, weights.device)
        upsample: list[nn.Module] = []
        for i, ratio in enumerate(config.upsampling_ratios):
            name = f"decoder.upsample.{i}"
            upsample.append(_Upsample(weights, f"{name}.0.conv", latent, latent, ratio, ratio))
            upsample.append(_ConvNeXt(weights, f"{name}.1", latent))
        width, name = config.decoder_dim, "decoder.decoder"
        stages: list[nn.Module] = [_Conv(weights, f"{name}.0.conv", latent, width, 7)]
        for i, rate in enumerate(config.upsample_rates):
            block = f"{name}.{i + 1}.block"
            stages.append(_Block(weights, block, width >> i, width >> (i + 1), rate))
        last = len(config.upsample_rates)
        self.stages = nn.ModuleList([*upsample, *stages])
        self.snake = _Snake(weights, f"{name}.{last + 1}", width >> last)
        self.to_samples = _Conv(weights, f"{name}.{last + 2}.conv", width >> last, 1, 7)
        self._dtype, self._device = weights.dtype, weights.device

    def state(self, slots: int) -> CodecState:
        """A state of `slots` streams, all at their start."""
        stack = self.config.stack
        shape = (stack.layers, slots, stack.kv_heads, self.config.window - 1, stack.head_dim)

        def zeros(*size: int) -> Tensor:
            return torch.zeros(size, dtype=self._dtype, device=self._device)

        return CodecState(
            frames=torch.zeros(slots, dtype=torch.int64, device=self._device),
            k=zeros(*shape),
            v=zeros(*shape),
            pasts=tuple(
                zeros(slots, *module.past_shape)
                for module in self.modules()
                if isinstance(module, _Conv | _Upsample) and module.past_shape[1]
            ),
        )

    def render(self, codes: Tensor, active: Tensor, state: CodecState, *, block: int = 1) -> Tensor:
        """Decode new codec frames of the first B slots, continuing each where `state` left it.

        Args:
            codes: `[B, Q, T]` int64 in [0, codebook_size); rows outside `active` are ignored.
            active: `[B]` bool. An inactive row's state is left bit-identical.
            state: Updated in place (static tensors).
            block: Frames computed together. With 1, any division of a stream into calls gives the
                same bits in every dtype; with more, the same up to rounding (1e-15 relative to the
                layers' values in float64), because kernels sum in an order that depends on length.

        Returns:
            `[B, samples_per_frame * T]` in [-1, 1], 24 kHz mono; inactive rows are meaningless.
        """
        rows = codes.shape[0]
        groups = -(-rows // _MOST_ROWS)
        if groups > 1:
            bounds = [rows * group // groups for group in range(groups + 1)]
            return torch.cat(
                [
                    self.render(codes[a:b], active[a:b], state.part(a, b), block=block)
                    for a, b in pairwise(bounds)
                ]
            )
        parts = [
            self._render_block(part, active, state) for part in torch.split(codes, block, dim=2)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _render_block(self, codes: Tensor, active: Tensor, state: CodecState) -> Tensor:
        past = _Past(state, active)
        x = self.pre_conv(self.quantizer(codes), past)
        x = self._transform(x.transpose(1, 2), active, state).transpose(1, 2)
        for stage in self.stages:
            x = stage(x, past)
        samples: Tensor = self.to_samples(self.snake(x), past)[:, 0]
        return samples.clamp(-1.0, 1.0)

    def _transform(self, x: Tensor, active: Tensor, state: CodecState) -> Tensor:
        rows, count, _ = x.shape
        window, frames = self.config.window, state.frames[:rows]
        steps = torch.arange(count, device=x.device)
        positions = frames[:, None] + steps
        cos, sin = self.rotary(positions, x.dtype)
        mask = self._window_mask(positions, frames, count)
        h = functional.linear(x, self.enter, self.enter_bias)
        keep = active[:, None, None, None]
        for i, layer in enumerate(self.layers):
            q, k, v = layer.project(h, cos, sin)
            old_k, old_v = state.k[i, :rows], state.v[i, :rows]
            all_k, all_v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
            h = layer.finish(h, attend(q, all_k, all_v, mask))
            old_k.copy_(torch.where(keep, all_k[:, :, -(window - 1) :], old_k))
            old_v.copy_(torch.where(keep, all_v[:, :, -(window - 1) :], old_v))
        frames.copy_(torch.where(active, frames + count, frames))
        h = rms_norm(h, self.norm, self.config.stack.eps)
        return functional.linear(h, self.leave, self.leave_bias)

    def _window_mask(self, positions: Tensor, frames: Tensor, count: int) -> Tensor:
        """True where a query may look: the last `window` positions that exist, itself included."""
        window = self.config.window
        offsets = torch.arange(-(window - 1), count, device=positions.device)
        key_positions = frames[:, None] + offsets
        distance = positions[:, :, None] - key_positions[:, None, :]
        seen = (distance >= 0) & (distance < window) & (key_positions >= 0)[:, None, :]
        return seen[:, None]
