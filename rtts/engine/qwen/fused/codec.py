"""The codec's decoder in fused kernels: the state of a slot is one flat row, rings inside it.

From the weights of `rtts.engine.qwen.codec.Codec`, which is its oracle. Activations are channels-last;
a convolution is a matrix product over its taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from rtts.engine.qwen.codec import Codec
from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.fused.attention import attend
from rtts.engine.qwen.fused.convolve import (
    conv_kernel,
    depthwise_kernel,
    quantizer_kernel,
    samples_kernel,
    unit_kernel,
)
from rtts.engine.qwen.fused.launch import launch, power_of_two
from rtts.engine.qwen.fused.linear import fold, linear, precision
from rtts.engine.qwen.fused.rotary import rotary_tables
from rtts.engine.qwen.fused.tiles import conv_tile, fitted, unit_tile

_ALIGN = 64
LONGEST_REFERENCE = 8192
"""Frames of the longest reference a clone may start from (eleven minutes)."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Where a layer's inputs lie in a slot's row: `length` columns of `channels` from `offset`."""

    offset: int
    length: int
    channels: int


@dataclass(frozen=True, slots=True)
class FusedCodecState:
    """What the fused codec remembers of each slot. All zero is the start of a stream.

    Owner: engine thread.

    Attributes:
        frames: `[slots]` int64, codec frames rendered.
        flat: `[slots, values]`.
    """

    frames: Tensor
    flat: Tensor

    def copy_in(self, slot: int, other: FusedCodecState, other_slot: int = 0) -> None:
        """Make a slot continue where a slot of `other` left off."""
        self.frames[slot] = other.frames[other_slot]
        self.flat[slot].copy_(other.flat[other_slot])

    @property
    def nbytes(self) -> int:
        """Device memory of all slots."""
        return self.flat.numel() * self.flat.element_size()


@dataclass(frozen=True, slots=True)
class _Conv:
    """One convolution: `[N, J, C]` weights, what it reads and what its output is for.

    Attributes:
        columns: Input columns a frame.
        source: Ring it reads; None: the columns just made.
        residual: Whether the block's running sum is added.
        into_sum: Whether its output becomes the running sum, else (if `keeps`) the inner activation.
        snake: Of its kept output (`snake_first`) or of what goes into `ring`.
    """

    weight: Tensor
    bias: Tensor
    columns: int
    dilation: int = 1
    up: int = 1
    source: Ring | None = None
    reads_sum: bool = False
    scale: Tensor | None = None
    residual: bool = False
    gelu: bool = False
    keep: str = ""  # "sum", "inner" or nothing
    ring: Ring | None = None
    snake: tuple[Tensor, Tensor] | None = None
    snake_first: bool = False


@dataclass(frozen=True, slots=True)
class _Depthwise:
    weight: Tensor
    bias: Tensor
    norm: Tensor
    norm_bias: Tensor
    columns: int
    source: Ring


@dataclass(frozen=True, slots=True)
class _Unit:
    """A residual unit, its two convolutions: in one kernel where that is faster."""

    first: _Conv
    second: _Conv


class _Layout:
    """Hands out places in a slot's row."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, values: int) -> int:
        offset = self.size
        self.size += -(-values // _ALIGN) * _ALIGN
        return offset

    def ring(self, reach: int, columns: int, channels: int) -> Ring:
        length = reach + columns
        return Ring(self.take(length * channels), length, channels)


def _taps(weight: Tensor) -> Tensor:
    """`[N, C, J]` to `[N, J, C]`."""
    return weight.detach().permute(0, 2, 1).contiguous()


def _upsampling_taps(weight: Tensor, stride: int) -> Tensor:
    """A transposed convolution's `[C_in, C_out, J * stride]` to `[stride * C_out, J, C_in]`.

    Tap 0 is the oldest column, which meets the later part of the kernel.
    """
    c_in, c_out, kernel = weight.shape
    taps = kernel // stride
    parts = weight.detach().view(c_in, c_out, taps, stride).flip(2)
    return parts.permute(3, 1, 2, 0).reshape(stride * c_out, taps, c_in).contiguous()


def _snake(module: Any) -> tuple[Tensor, Tensor]:
    return (
        module.frequency.detach().flatten().contiguous(),
        module.gain.detach().flatten().contiguous(),
    )


class FusedCodec:
    """The decoder. Scratch serves all batches; one call at a time.

    Args:
        rows: The largest batch.
        frames: Most frames of a stream, its reference not counted.
    """

    def __init__(self, codec: Codec, rows: int, frames: int) -> None:
        self._codec, self.config = codec, codec.config
        stack, window = codec.config.stack, codec.config.window
        self._dtype, self._device = codec.enter.dtype, codec.enter.device
        self._layout = _Layout()
        kv = stack.layers * stack.kv_heads * window * stack.head_dim
        self._k_at, self._v_at = self._layout.take(kv), self._layout.take(kv)
        self._kv_shape = (stack.layers, stack.kv_heads, window, stack.head_dim)
        self._steps: list[_Conv | _Depthwise | _Unit] = []
        self._build()
        for layer in codec.layers:
            fold(layer.qkv, layer.norm_in)
            fold(layer.gate_up, layer.norm_mlp)
        fold(codec.leave, codec.norm)
        self._tables = rotary_tables(codec.rotary.inverse_frequency, frames + LONGEST_REFERENCE + 1)

        def scratch(width: int, dtype: torch.dtype = self._dtype) -> Tensor:
            return torch.zeros(rows * width, dtype=dtype, device=self._device)

        convolutions = [
            step.first if isinstance(step, _Unit) else step
            for step in self._steps
            if not isinstance(step, _Depthwise)
        ]
        widest = max(step.columns * step.weight.shape[0] for step in convolutions)
        self._sum, self._inner, self._wide = scratch(widest), scratch(widest), scratch(widest)
        self._latent = scratch(codec.config.latent_dim).view(rows, -1)
        self._hidden = scratch(stack.hidden).view(rows, -1)
        self._qkv = scratch(codec.layers[0].qkv.shape[0]).view(rows, -1)
        self._attended = scratch(stack.heads * stack.head_dim).view(rows, -1)
        self._squares = scratch((2 * stack.layers + 1), torch.int64).view(-1, rows)
        self._mid = scratch(stack.intermediate).view(rows, -1)
        self.pcm = scratch(codec.config.samples_per_frame, torch.int16).view(rows, -1)

    def state(self, slots: int) -> FusedCodecState:
        """A state of `slots` streams, all at their start."""
        return FusedCodecState(
            torch.zeros(slots, dtype=torch.int64, device=self._device),
            torch.zeros(slots, self._layout.size, dtype=self._dtype, device=self._device),
        )

    def _build(self) -> None:
        codec, layout = self._codec, self._layout
        book = codec.quantizer.tables
        self._codes_ring = layout.ring(2, 1, int(book.shape[2]))
        stages = list(cast("Any", codec.stages))
        count = len(codec.config.upsampling_ratios)
        columns = 1
        tail, blocks = stages[2 * count], stages[2 * count + 1 :]
        for i in range(count):
            columns = self._build_convnext(
                stages[2 * i], stages[2 * i + 1], columns, tail if i == count - 1 else None
            )
        self._build_blocks(tail, blocks, columns)

    def _build_convnext(self, up: Any, block: Any, columns: int, tail: Any) -> int:
        layout, channels = self._layout, int(up.weight.shape[0])
        own = layout.ring(6, columns * up.stride, channels)
        weight = _upsampling_taps(up.weight, up.stride)
        self._steps.append(
            _Conv(weight, up.bias, columns, up=up.stride, reads_sum=True, keep="sum", ring=own)
        )
        columns *= up.stride
        into = None
        if tail is not None:
            into = layout.ring(tail.past_shape[1], columns, channels)
        taps = block.depthwise.weight.detach()[:, 0].T.contiguous()
        self._steps += [
            _Depthwise(taps, block.depthwise.bias, block.norm, block.norm_bias, columns, own),
            _Conv(block.widen[:, None], block.widen_bias, columns, gelu=True, keep="inner"),
            _Conv(
                block.narrow[:, None], block.narrow_bias, columns, scale=block.gain,
                residual=True, keep="sum", ring=into,
            ),
        ]  # fmt: skip
        self._into = into
        return columns

    def _build_blocks(self, tail: Any, blocks: list[Any], columns: int) -> None:
        layout = self._layout
        channels = int(tail.weight.shape[0])
        ring = layout.ring(1, columns, channels)
        self._steps.append(
            _Conv(
                _taps(tail.weight), tail.bias, columns, source=self._into, ring=ring,
                snake=_snake(blocks[0].snake),
            )
        )  # fmt: skip
        for i, block in enumerate(blocks):
            up = block.upsample
            width = int(up.weight.shape[1])
            units = list(block.units)
            rings = [
                layout.ring(unit.conv1.past_shape[1], columns * up.stride, width) for unit in units
            ]
            self._steps.append(
                _Conv(
                    _upsampling_taps(up.weight, up.stride), up.bias, columns, up=up.stride,
                    source=ring, keep="sum", ring=rings[0], snake=_snake(units[0].snake1),
                )
            )  # fmt: skip
            columns *= up.stride
            if i + 1 < len(blocks):
                after, snake = layout.ring(1, columns, width), _snake(blocks[i + 1].snake)
            else:
                reach = self._codec.to_samples.past_shape[1]
                after, snake = layout.ring(reach, columns, width), _snake(self._codec.snake)
            for n, unit in enumerate(units):
                is_last = n + 1 == len(units)
                self._steps.append(
                    _Unit(
                        _Conv(
                            _taps(unit.conv1.weight), unit.conv1.bias, columns,
                            dilation=unit.conv1.dilation, source=rings[n], keep="inner",
                            snake=_snake(unit.snake2), snake_first=True,
                        ),
                        _Conv(
                            _taps(unit.conv2.weight), unit.conv2.bias, columns, residual=True,
                            keep="" if is_last else "sum", ring=after if is_last else rings[n + 1],
                            snake=snake if is_last else _snake(units[n + 1].snake1),
                        ),
                    )
                )  # fmt: skip
            ring = after
        self._last_ring, self._columns = ring, columns
        self._last_weight = _taps(self._codec.to_samples.weight)[0].contiguous()
        self._pre = _taps(self._codec.pre_conv.weight)

    def render(self, codes: Tensor, flags: Tensor, state: FusedCodecState, rows: int) -> None:
        """One frame of the first `rows` slots into `pcm`. Does not count it: that is the caller's.

        Args:
            codes: `[slots, Q]` int64.
            flags: `[slots]` int32, four or more where the row has audio.
        """
        codec, ring = self._codec, self._codes_ring
        stride = state.flat.stride(0)
        tables = codec.quantizer.tables
        launch(
            quantizer_kernel,
            (rows,),
            codes, tables, state.frames, state.flat[:, ring.offset :], stride,
            GROUPS=tables.shape[0], BOOK=tables.shape[1], C=ring.channels,
            BC=power_of_two(ring.channels), RING=ring.length, num_warps=4,
        )  # fmt: skip
        latent = self._latent[:rows]
        self._conv(
            _Conv(self._pre, codec.pre_conv.bias, 1, source=ring, keep="sum"),
            state, rows, latent, latent,
        )  # fmt: skip
        self._transform(state, rows)
        for step in self._steps:
            if isinstance(step, _Depthwise):
                self._depthwise(step, state, rows)
            elif isinstance(step, _Unit):
                self._unit(step, state, rows)
            else:
                self._conv(step, state, rows, None, None)
        ring = self._last_ring
        launch(
            samples_kernel,
            (rows, -(-self._columns // 64)),
            state.flat[:, ring.offset :], stride, self._last_weight, codec.to_samples.bias,
            state.frames, flags, self.pcm,
            T=self._columns, J=self._last_weight.shape[0], C=ring.channels,
            BC=power_of_two(ring.channels), R=ring.length, BT=64, num_warps=4,
        )  # fmt: skip

    def _transform(self, state: FusedCodecState, rows: int) -> None:
        codec, stack = self._codec, self.config.stack
        h, qkv, attended = self._hidden[:rows], self._qkv[:rows], self._attended[:rows]
        mid = self._mid[:rows]
        squares = self._squares
        squares.zero_()
        linear(self._latent[:rows], codec.enter, h, bias=codec.enter_bias, emit=squares[0])
        size = 1
        for part in self._kv_shape:
            size *= part
        keys = state.flat[:, self._k_at : self._k_at + size].unflatten(1, self._kv_shape)
        values = state.flat[:, self._v_at : self._v_at + size].unflatten(1, self._kv_shape)
        for i, layer in enumerate(codec.layers):
            linear(h, layer.qkv, qkv, squares=squares[0], eps=stack.eps)
            attend(
                qkv, attended, keys[:, i], values[:, i], stack, self._tables,
                rows=rows, lengths=state.frames, ring=True,
            )  # fmt: skip
            linear(
                attended, layer.out, h, scale=layer.scale_attention, residual=h, emit=squares[1]
            )  # fmt: skip
            linear(h, layer.gate_up, mid, squares=squares[1], eps=stack.eps, gated=True)
            linear(mid, layer.down, h, scale=layer.scale_mlp, residual=h, emit=squares[2])
            squares = squares[2:]
        left = self._sum[: rows * codec.leave.shape[0]].view(rows, -1)
        linear(h, codec.leave, left, squares=squares[0], eps=stack.eps, bias=codec.leave_bias)

    def _depthwise(self, step: _Depthwise, state: FusedCodecState, rows: int) -> None:
        ring = step.source
        launch(
            depthwise_kernel,
            (rows * step.columns,),
            state.flat[:, ring.offset :], state.flat.stride(0), step.weight, step.bias,
            step.norm, step.norm_bias, state.frames, self._inner, 1e-6,
            T=step.columns, J=step.weight.shape[0], C=ring.channels,
            BC=power_of_two(ring.channels), R=ring.length, num_warps=4,
        )  # fmt: skip
        self._inner, self._wide = self._wide, self._inner

    def _unit(self, step: _Unit, state: FusedCodecState, rows: int) -> None:
        first, second = step.first, step.second
        _, taps, c = first.weight.shape
        m = rows * first.columns
        tile = unit_tile(m, c) if state.flat.element_size() == 2 else None  # float32: no room
        if tile is None:
            self._conv(first, state, rows, None, None)
            self._conv(second, state, rows, None, None)
            return
        source, ring, flat = first.source, second.ring, state.flat
        assert source is not None and ring is not None
        assert first.snake is not None and second.snake is not None
        launch(
            unit_kernel,
            (-(-m // tile.bm),),
            flat[:, source.offset :], first.weight, first.bias, *first.snake,
            second.weight, second.bias, *second.snake,
            self._sum, flat[:, ring.offset :], state.frames, m, flat.stride(0), flat.stride(0),
            T=first.columns, J=taps, DILATION=first.dilation, C=c, R=source.length,
            RING=ring.length, RAW=bool(second.keep), FAST=flat.dtype != torch.float32,
            BM=tile.bm, BK=tile.bk, PRECISION=precision(flat),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def _conv(
        self,
        step: _Conv,
        state: FusedCodecState,
        rows: int,
        source: Tensor | None,
        out: Tensor | None,
    ) -> None:
        n, taps, c = step.weight.shape
        source_ring, ring = step.source, step.ring
        flat = state.flat
        if source_ring is not None:
            source = flat[:, source_ring.offset :]
        elif source is None:
            source = self._sum if step.reads_sum else self._wide
        if out is None:
            out = self._inner if step.keep == "inner" else self._next_sum(step)
        m = rows * step.columns
        tile = fitted(conv_tile(m, n, c, taps), flat.element_size())
        none = step.bias
        launch(
            conv_kernel,
            (-(-n // tile.bn), -(-m // tile.bm)),
            source, step.weight, step.bias, state.frames, self._sum,
            none if step.scale is None else step.scale,
            out, flat if ring is None else flat[:, ring.offset :],
            none if step.snake is None else step.snake[0],
            none if step.snake is None else step.snake[1],
            m, flat.stride(0), flat.stride(0),
            T=step.columns, J=taps, DILATION=step.dilation, C=c,
            R=0 if source_ring is None else source_ring.length, N=n, UP=step.up,
            RING=0 if ring is None else ring.length, SCALE=step.scale is not None,
            RESIDUAL=step.residual, RAW=bool(step.keep), GELU=step.gelu,
            FAST=flat.dtype != torch.float32,
            SNAKE_RAW=step.snake is not None and step.snake_first,
            SNAKE_RING=step.snake is not None and not step.snake_first,
            BM=tile.bm, BN=tile.bn, BK=tile.bk, PRECISION=precision(flat),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
        if step.keep == "inner":
            self._inner, self._wide = self._wide, self._inner
        elif step.reads_sum and step.keep == "sum":
            self._sum, self._inner = self._inner, self._sum

    def _next_sum(self, step: _Conv) -> Tensor:
        """Where the running sum goes: in place, except where it is also what is read."""
        return self._inner if step.reads_sum else self._sum
