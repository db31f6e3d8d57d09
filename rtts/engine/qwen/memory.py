"""How much of a GPU's memory a checkpoint takes, by slots and positions, before anything is loaded.

Arithmetic over the settings for all that has a shape; what has none (the CUDA context, compiled
kernels, captured graphs) is a constant measured on an H200 (`benchmarks/qwen_memory.py`). It knows no
torch, no device and no checkpoint file. GPUs only: on a CPU time is short before memory is.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts.engine.qwen.config import CodecConfig, DecoderConfig, ModelConfig

MIB = 2**20
MB = 10**6  # measured constants

CONTEXT_BYTES = 650 * MB
"""CUDA's bare context (644 to 651 measured), which a process has before it can ask what is free."""

_KERNELS_BYTES = 135 * MB
"""Compiled kernels, loaded; no allocator counts them."""

_WORKSPACE_BYTES = 75 * MB
"""Scratch that grows with neither slots nor positions: libraries' and our own (67 to 71)."""

_UNUSED_BYTES = 250 * MB
"""What the allocator holds in part-used blocks (33 to 37 at 1.7B, 245 at 0.6B)."""

_GRAPH_BYTES = 3 * MB
"""One captured graph of about 630 kernels (2.7)."""

_PREFILL_GRAPHS = 5

_SCRATCH_VALUES = 800_000
"""Intermediate values of a row: 1.54 MB (1.7B) and 1.52 MB (0.6B) in bfloat16."""

_ALIGN = 64  # values, of a layer's place in a slot's codec state (`fused.codec`)
_DILATIONS = (1, 3, 9)
_TAPS = 7


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a checkpoint takes on a GPU.

    Attributes:
        weights_bytes: Tensors of the checkpoint, and the tables and copies made of them at load.
        fixed_bytes: What neither slots nor positions change, the voice heads' cache included.
        stream_bytes: A slot's share that its positions do not change: codec state, intermediates.
        position_bytes: Keys and values of one talker position.
    """

    weights_bytes: int
    fixed_bytes: int
    stream_bytes: int
    position_bytes: int

    def slot_bytes(self, positions: int) -> int:
        """One slot of that many talker positions (and one, where idle rows write)."""
        return self.stream_bytes + (positions + 1) * self.position_bytes

    def graphs_bytes(self, slots: int) -> int:
        """Captured graphs: one a batch size (powers of two, and `slots`), five of prefill."""
        return ((slots - 1).bit_length() + 1 + _PREFILL_GRAPHS) * _GRAPH_BYTES

    def total_bytes(self, slots: int, positions: int) -> int:
        """All of it, without CUDA's own context (`CONTEXT_BYTES`)."""
        return (
            self.weights_bytes
            + self.fixed_bytes
            + self.graphs_bytes(slots)
            + slots * self.slot_bytes(positions)
        )

    def slots_for(self, free_bytes: int, positions: int, most: int = 512) -> int:
        """The most slots that fit.

        Args:
            free_bytes: What may be used, CUDA's context being paid for already.
            most: Upper limit.

        Returns:
            0 where not even one fits.
        """
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.total_bytes(middle, positions) <= free_bytes:
                low = middle
            else:
                high = middle - 1
        return low


def plan_memory(config: ModelConfig, *, value_bytes: int = 2, prefix_bytes: int = 0) -> MemoryPlan:
    """What a checkpoint takes on a GPU.

    Args:
        value_bytes: Bytes of a value: 2 for bfloat16 and float16, 4 for float32.
        prefix_bytes: Most that the cache of voice heads may hold.
    """
    stack = config.talker.stack
    values = _talker(config) + _predictor(config) + _codec(config.codec)
    row = stack.hidden * value_bytes + config.talker.vocab + 64  # side, codes seen, counters
    stream = _codec_state(config.codec) * value_bytes + _SCRATCH_VALUES * value_bytes + row
    return MemoryPlan(
        weights_bytes=values * value_bytes,
        fixed_bytes=_KERNELS_BYTES + _WORKSPACE_BYTES + _UNUSED_BYTES + prefix_bytes,
        stream_bytes=stream,
        position_bytes=2 * stack.layers * stack.kv_heads * stack.head_dim * value_bytes,
    )


def usable_bytes(free_bytes: int, total_bytes: int, share: float) -> int:
    """What may still be taken of a device whose memory is to stay below a share of it in use."""
    return max(0, free_bytes + int(share * total_bytes) - total_bytes)


def _stack(stack: DecoderConfig, extra: int) -> int:
    """Values of a stack of layers, `extra` a layer beside its matrices and two norms."""
    attention = 2 * (stack.heads + stack.kv_heads) * stack.head_dim * stack.hidden
    mlp = 3 * stack.intermediate * stack.hidden
    return stack.layers * (attention + mlp + 2 * stack.hidden + extra)


def _talker(config: ModelConfig) -> int:
    talker = config.talker
    stack, text = talker.stack, talker.text_hidden
    projection = text * text + text + stack.hidden * text + stack.hidden
    tables = (2 * talker.vocab + talker.text_vocab) * stack.hidden  # codes twice, projected text
    return _stack(stack, 2 * stack.head_dim) + stack.hidden + tables + projection


def _predictor(config: ModelConfig) -> int:
    stack, hidden = config.predictor.stack, config.talker.stack.hidden
    codes = (config.predictor.groups - 1) * config.predictor.vocab
    values = _stack(stack, 2 * stack.head_dim) + stack.hidden + codes * (hidden + stack.hidden)
    if stack.hidden != hidden:  # a projection, and every code's vector taken through it
        values += (hidden + 1 + config.talker.vocab + codes) * stack.hidden
    return values


def _codec(codec: CodecConfig) -> int:
    """Values of the decoder; convolutions are held as loaded and as the kernels read them."""
    stack, latent = codec.stack, codec.latent_dim
    values = codec.quantizers * codec.codebook_size * codec.codebook_dim
    values += _stack(stack, 2 * stack.hidden)
    values += 2 * latent * stack.hidden + 2 * stack.hidden + latent
    convolutions = 3 * latent * codec.codebook_dim
    biases = latent
    for ratio in codec.upsampling_ratios:
        convolutions += ratio * latent * latent + _TAPS * latent
        values += 8 * latent * latent
        biases += 10 * latent
    width = codec.decoder_dim
    convolutions += _TAPS * latent * width
    biases += width
    for rate in codec.upsample_rates:
        narrow = width // 2
        convolutions += 2 * rate * width * narrow + len(_DILATIONS) * _TAPS * narrow * narrow
        values += len(_DILATIONS) * narrow * narrow
        biases += 2 * width + narrow + len(_DILATIONS) * 6 * narrow
        width = narrow
    convolutions += _TAPS * width
    return values + 2 * convolutions + biases + 2 * width + 1


def _codec_state(codec: CodecConfig) -> int:
    """Values of a slot's row: keys and values of the window, and a ring for each layer that looks back."""
    stack, latent = codec.stack, codec.latent_dim
    window = stack.layers * stack.kv_heads * codec.window * stack.head_dim
    rings = [window, window, 3 * codec.codebook_dim]
    columns = 1
    for ratio in codec.upsampling_ratios:
        columns *= ratio
        rings.append((_TAPS - 1 + columns) * latent)
    rings.append((_TAPS - 1 + columns) * latent)
    width = codec.decoder_dim
    rings.append((1 + columns) * width)
    for i, rate in enumerate(codec.upsample_rates):
        columns, width = columns * rate, width // 2
        rings += [((_TAPS - 1) * dilation + columns) * width for dilation in _DILATIONS]
        is_last = i + 1 == len(codec.upsample_rates)
        rings.append((_TAPS - 1 if is_last else 1) * width + columns * width)
    return sum(-(-ring // _ALIGN) * _ALIGN for ring in rings)
