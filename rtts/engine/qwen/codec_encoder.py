"""Reference audio to codec frames: the encoder half of the speech tokenizer.

Used when a voice is registered with its transcript, never while speaking: whole audio in, codes out,
on a CPU in float32. It is Mimi's encoder (Moshi, arXiv 2410.00037): causal convolutions down to 25 Hz,
a transformer, a convolution down to 12.5 Hz, residual quantizers of which the first sixteen are
used. It knows 24 kHz samples and codes.

Source: `Qwen3TTSTokenizerV2Model.encode` of qwen-tts 0.1.1 as it runs with transformers 4.57.3, which
attends to everything before (later versions apply the configuration's window of 250 positions, and
give other codes after 10 s).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from rtts.engine.qwen.config import CodecConfig, DecoderConfig
from rtts.engine.qwen.extra import Tensor, functional, nn, torch
from rtts.engine.qwen.layers import Rotary, attend, frozen, rotate
from rtts.engine.qwen.weights import Weights
from rtts.errors import ConfigError

_ROOT = "encoder"
_DOWN = 2  # stride from the transformer's 25 Hz to the codec's 12.5
_LEAST_USAGE = 1e-5  # of a codebook entry, as the reference clamps it
# What the encoder is built for; a checkpoint that says otherwise is refused.
_FIXED = {
    "audio_channels": 1,
    "use_causal_conv": True,
    "pad_mode": "constant",
    "use_conv_shortcut": False,
    "attention_bias": False,
    "hidden_act": "gelu",
    "num_semantic_quantizers": 1,
}


@dataclass(frozen=True, slots=True)
class CodecEncoderConfig:
    """`encoder_config` of a speech tokenizer. Defaults: those of its architecture."""

    num_filters: int = 64
    upsampling_ratios: tuple[int, ...] = (8, 6, 5, 4)
    kernel_size: int = 7
    last_kernel_size: int = 3
    residual_kernel_size: int = 3
    num_residual_layers: int = 1
    dilation_growth_rate: int = 2
    compress: int = 2
    hidden_size: int = 512
    intermediate_size: int = 2048
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    num_key_value_heads: int = 8
    head_dim: int = 64
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    codebook_size: int = 2048
    codebook_dim: int = 256
    vector_quantization_hidden_dimension: int = 256

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> CodecEncoderConfig:
        """From `encoder_config`; other keys are tolerated.

        Raises:
            ConfigError: It describes another kind of encoder.
        """
        for key, value in _FIXED.items():
            if values.get(key, value) != value:
                raise ConfigError(f"encoder_config: {key} must be {value!r}, not {values[key]!r}")
        given: dict[str, Any] = {
            item.name: tuple(value) if isinstance(value, list) else value
            for item in fields(cls)
            if (value := values.get(item.name)) is not None
        }
        return cls(**given)

    @property
    def stack(self) -> DecoderConfig:
        """Its transformer."""
        return DecoderConfig(
            hidden=self.hidden_size,
            intermediate=self.intermediate_size,
            layers=self.num_hidden_layers,
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            rope_theta=self.rope_theta,
            eps=self.norm_eps,
        )


class _Conv(nn.Module):
    """A causal convolution: what it lacks on the left is padding, and so is a last part of a stride."""

    def __init__(
        self,
        weights: Weights,
        name: str,
        channels_in: int,
        channels_out: int,
        kernel: int,
        stride: int = 1,
        dilation: int = 1,
        *,
        has_bias: bool = True,
        padding: str = "constant",
    ) -> None:
        super().__init__()
        self.weight = frozen(weights.take(f"{name}.weight", channels_out, channels_in, kernel))
        self.bias = frozen(weights.take(f"{name}.bias", channels_out)) if has_bias else None
        self.stride, self.dilation, self.mode = stride, dilation, padding
        self.before = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor) -> Tensor:
        padded = functional.pad(x, (self.before, -x.shape[-1] % self.stride), mode=self.mode)
        return functional.conv1d(
            padded, self.weight, self.bias, stride=self.stride, dilation=self.dilation
        )


class _Residual(nn.Module):
    """A dilated convolution to fewer channels and a pointwise one back, beside the input."""

    def __init__(
        self, weights: Weights, name: str, config: CodecEncoderConfig, channels: int, dilation: int
    ) -> None:
        super().__init__()
        inner, kernel = channels // config.compress, config.residual_kernel_size
        self.enter = _Conv(
            weights, f"{name}.block.1.conv", channels, inner, kernel, dilation=dilation
        )
        self.leave = _Conv(weights, f"{name}.block.3.conv", inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.leave(functional.elu(self.enter(functional.elu(x))))


class _Layer(nn.Module):
    """A transformer layer: LayerNorm, causal attention, GELU, a gain on each branch."""

    def __init__(self, weights: Weights, name: str, stack: DecoderConfig) -> None:
        super().__init__()
        self.stack = stack
        wide, narrow = stack.heads * stack.head_dim, stack.kv_heads * stack.head_dim
        attention = f"{name}.self_attn"
        self.q = frozen(weights.take(f"{attention}.q_proj.weight", wide, stack.hidden))
        self.k = frozen(weights.take(f"{attention}.k_proj.weight", narrow, stack.hidden))
        self.v = frozen(weights.take(f"{attention}.v_proj.weight", narrow, stack.hidden))
        self.out = frozen(weights.take(f"{attention}.o_proj.weight", stack.hidden, wide))
        self.up = frozen(weights.take(f"{name}.mlp.fc1.weight", stack.intermediate, stack.hidden))
        self.down = frozen(weights.take(f"{name}.mlp.fc2.weight", stack.hidden, stack.intermediate))
        self.norm_in = self._norm(weights, f"{name}.input_layernorm")
        self.norm_mlp = self._norm(weights, f"{name}.post_attention_layernorm")
        gains = ("self_attn_layer_scale.scale", "mlp_layer_scale.scale")
        self.gain_attention, self.gain_mlp = (
            frozen(weights.take(f"{name}.{gain}", stack.hidden)) for gain in gains
        )

    def _norm(self, weights: Weights, name: str) -> nn.LayerNorm:
        norm = nn.LayerNorm(self.stack.hidden, eps=self.stack.eps)
        norm.weight = frozen(weights.take(f"{name}.weight", self.stack.hidden))
        norm.bias = frozen(weights.take(f"{name}.bias", self.stack.hidden))
        return norm

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        normed = self.norm_in(x)
        q, k, v = (
            functional.linear(normed, weight)
            .unflatten(-1, (-1, self.stack.head_dim))
            .transpose(1, 2)
            for weight in (self.q, self.k, self.v)
        )
        attended = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, mask)
        branch = functional.linear(attended.transpose(1, 2).flatten(2), self.out)
        x = x + self.gain_attention * branch
        inner = functional.gelu(functional.linear(self.norm_mlp(x), self.up))
        return x + self.gain_mlp * functional.linear(inner, self.down)


class _Quantizer(nn.Module):
    """Residual codebooks: each says the nearest entry to what those before it left."""

    def __init__(self, weights: Weights, name: str, config: CodecEncoderConfig, count: int) -> None:
        super().__init__()
        width = config.vector_quantization_hidden_dimension
        self.enter = None
        if width != config.hidden_size:
            self.enter = frozen(
                weights.take(f"{name}.input_proj.weight", width, config.hidden_size, 1)
            )
        self.books = []
        for i in range(count):
            book = f"{name}.layers.{i}.codebook"
            usage = weights.take(f"{book}.cluster_usage", config.codebook_size)
            total = weights.take(f"{book}.embed_sum", config.codebook_size, config.codebook_dim)
            self.books.append(total / usage.clamp(min=_LEAST_USAGE)[:, None])

    def forward(self, x: Tensor) -> Tensor:
        """Codes `[T, count]` of `[1, hidden, T]`."""
        rest = (x if self.enter is None else functional.conv1d(x, self.enter))[0].T
        codes = []
        for book in self.books:
            codes.append(torch.cdist(rest[None], book[None])[0].argmin(-1))
            rest = rest - functional.embedding(codes[-1], book)
        return torch.stack(codes, dim=1)


class CodecEncoder(nn.Module):
    """Weights of the encoder.

    Raises:
        ConfigError: The checkpoint describes another kind of encoder, or lacks a tensor of it.
    """

    def __init__(self, weights: Weights, values: Mapping[str, Any], codec: CodecConfig) -> None:
        super().__init__()
        config = CodecEncoderConfig.read(values)
        self.samples_per_frame = codec.samples_per_frame
        self.convs = cast("Sequence[nn.Module]", nn.ModuleList(_convs(weights, config)))
        self.rotary = Rotary(config.stack, weights.device)
        layers = (
            _Layer(weights, f"{_ROOT}.encoder_transformer.layers.{i}", config.stack)
            for i in range(config.num_hidden_layers)
        )
        self.layers = cast("Sequence[_Layer]", nn.ModuleList(layers))
        self.down = _Conv(
            weights,
            f"{_ROOT}.downsample.conv",
            config.hidden_size,
            config.hidden_size,
            2 * _DOWN,
            _DOWN,
            has_bias=False,
            padding="replicate",
        )
        self.quantizers = [
            _Quantizer(
                weights, f"{_ROOT}.quantizer.{name}_residual_vector_quantizer", config, count
            )
            for name, count in (("semantic", 1), ("acoustic", codec.quantizers - 1))
        ]

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Codes `[T, Q]` of 24 kHz samples `[S]` in [-1, 1]: one frame for each 1920 begun."""
        x = samples[None, None]
        for i, conv in enumerate(self.convs):
            x = conv(functional.elu(x) if i and isinstance(conv, _Conv) else x)
        x = x.transpose(1, 2)
        count = x.shape[1]
        cos, sin = self.rotary(torch.arange(count, device=x.device), x.dtype)
        mask = torch.ones(count, count, dtype=torch.bool, device=x.device).tril()
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        latent = self.down(x.transpose(1, 2))
        codes = torch.cat([quantizer(latent) for quantizer in self.quantizers], dim=1)
        return codes[: -(-samples.shape[0] // self.samples_per_frame)]


def _convs(weights: Weights, config: CodecEncoderConfig) -> list[nn.Module]:
    """The convolutions down to 25 Hz; activations between them have numbers and no weights."""
    root, channels = f"{_ROOT}.encoder.layers", config.num_filters
    convs: list[nn.Module] = [_Conv(weights, f"{root}.0.conv", 1, channels, config.kernel_size)]
    number = 1
    for ratio in reversed(config.upsampling_ratios):
        for i in range(config.num_residual_layers):
            dilation = config.dilation_growth_rate**i
            convs.append(_Residual(weights, f"{root}.{number}", config, channels, dilation))
            number += 1
        down = f"{root}.{number + 1}.conv"
        convs.append(_Conv(weights, down, channels, 2 * channels, 2 * ratio, ratio))
        channels, number = 2 * channels, number + 2
    last = f"{root}.{number + 1}.conv"
    convs.append(_Conv(weights, last, channels, config.hidden_size, config.last_kernel_size))
    return convs
