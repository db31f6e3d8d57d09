"""The codec's kernels: convolutions over rings, with bias, gain, residual and snake fused.

A ring holds the last inputs of a layer, one row a column of time: column t of the stream lies at t
modulo its length, so the past is never moved. A row that does not run writes its columns where its
next frame will write them again; it is enough not to count it.
"""

# Constants of a kernel are in capitals, as Triton's own.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
# ruff: noqa: N803, C901

from __future__ import annotations

import triton
import triton.language as tl

from rtts.engine.qwen.fused.launch import wait_for_predecessor


@triton.jit
def _snake(x, frequency, gain, FAST: tl.constexpr):
    if (
        FAST
    ):  # off by 2^-20 near zero, by 1e-4 at a thousand radians: nothing beside bfloat16's 2^-9
        wave = tl.inline_asm_elementwise(
            "sin.approx.f32 $0, $1;",
            "=f,f",
            [x * frequency],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        wave = tl.sin(x * frequency)
    return x + gain * wave * wave


@triton.jit(do_not_specialize=["rows"])
def conv_kernel(
    source, w, bias, frames, residual, scale, raw, ring, frequency, gain, rows,
    source_stride, ring_stride,
    T: tl.constexpr, J: tl.constexpr, DILATION: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    N: tl.constexpr, UP: tl.constexpr, RING: tl.constexpr,
    SCALE: tl.constexpr, RESIDUAL: tl.constexpr, RAW: tl.constexpr,
    GELU: tl.constexpr, SNAKE_RAW: tl.constexpr, SNAKE_RING: tl.constexpr,
    FAST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """BN outputs of BM columns of time (of any rows).

    R is the source ring's length, or 0 for a plain `[rows, C]` source. UP outputs of time a column:
    output n is channel n modulo N / UP of moment n / (N / UP).
    """
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    k = tl.arange(0, BK)
    m_ok, n_ok = m < rows, n < N
    b, t = m // T, m % T
    wait_for_predecessor(PDL)
    frame = tl.load(frames + b, mask=m_ok, other=0).to(tl.int32)
    now = frame * T + t
    if R > 0:
        base = source + b.to(tl.int64) * source_stride
    else:
        base = source + m.to(tl.int64) * C
    parts: tl.constexpr = (C + BK - 1) // BK
    reach: tl.constexpr = (J - 1) * DILATION
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(J * parts):
        j = i // parts
        c = (i % parts) * BK + k
        if R > 0:
            column = (now + (R - reach) + j * DILATION) % R
            at = base[:, None] + column[:, None] * C + c[None, :]
        else:
            at = base[:, None] + c[None, :]
        at_w = w + n[None, :] * (J * C) + (j * C + c)[:, None]
        if C % BK == 0:
            a = tl.load(at, mask=m_ok[:, None], other=0.0)
            bb = tl.load(at_w, mask=n_ok[None, :], other=0.0)
        else:
            a = tl.load(at, mask=m_ok[:, None] & (c < C)[None, :], other=0.0)
            bb = tl.load(at_w, mask=n_ok[None, :] & (c < C)[:, None], other=0.0)
        acc = tl.dot(a, bb, acc, input_precision=PRECISION)
    width: tl.constexpr = N // UP
    channel = n % width
    acc += tl.load(bias + channel, mask=n_ok, other=0.0).to(tl.float32)[None, :]
    if GELU:
        acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    if SCALE:
        acc *= tl.load(scale + channel, mask=n_ok, other=0.0).to(tl.float32)[None, :]
    ok = m_ok[:, None] & n_ok[None, :]
    at_raw = m[:, None].to(tl.int64) * N + n[None, :]
    if RESIDUAL:
        acc += tl.load(residual + at_raw, mask=ok, other=0.0).to(tl.float32)
    snaked = acc
    if SNAKE_RAW or SNAKE_RING:
        f = tl.load(frequency + channel, mask=n_ok, other=0.0).to(tl.float32)
        g = tl.load(gain + channel, mask=n_ok, other=0.0).to(tl.float32)
        snaked = _snake(acc, f[None, :], g[None, :], FAST)
    if RAW:
        if SNAKE_RAW:
            tl.store(raw + at_raw, snaked.to(raw.dtype.element_ty), mask=ok)
        else:
            tl.store(raw + at_raw, acc.to(raw.dtype.element_ty), mask=ok)
    if RING > 0:
        at_ring = b[:, None].to(tl.int64) * ring_stride + channel[None, :]
        if UP == 1 or width % BN == 0:  # one moment a row
            moment = now * UP + tl.program_id(0) * BN // width
            at_ring += (moment % (RING if RING > 0 else 1))[:, None] * width
        else:
            moment = now[:, None] * UP + (n // width)[None, :]
            at_ring += (moment % (RING if RING > 0 else 1)) * width
        if SNAKE_RING:
            tl.store(ring + at_ring, snaked.to(ring.dtype.element_ty), mask=ok)
        else:
            tl.store(ring + at_ring, acc.to(ring.dtype.element_ty), mask=ok)


@triton.jit
def _unit_part(
    inner_0, inner_1, inner_2, part, w, bias, running, ring, frequency, gain, m, m_ok, at_ring,
    C: tl.constexpr, P: tl.constexpr, RAW: tl.constexpr, FAST: tl.constexpr, BM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A third of a unit's outputs: the second convolution, the residual, the next activation."""
    p = tl.arange(0, P)
    n = part * P + p
    weights = w + n[None, :] * C + p[:, None]
    at = m[:, None].to(tl.int64) * C + n[None, :]
    before = tl.load(running + at, mask=m_ok[:, None], other=0.0)
    acc = tl.zeros((BM, P), tl.float32)
    acc = tl.dot(inner_0, tl.load(weights), acc, input_precision=PRECISION)
    acc = tl.dot(inner_1, tl.load(weights + P), acc, input_precision=PRECISION)
    acc = tl.dot(inner_2, tl.load(weights + 2 * P), acc, input_precision=PRECISION)
    acc += tl.load(bias + n).to(tl.float32)[None, :]
    acc += before.to(tl.float32)
    f, g = tl.load(frequency + n).to(tl.float32), tl.load(gain + n).to(tl.float32)
    snaked = _snake(acc, f[None, :], g[None, :], FAST)
    if RAW:
        tl.store(running + at, acc.to(running.dtype.element_ty), mask=m_ok[:, None])
    tl.store(
        ring + at_ring[:, None] + n[None, :], snaked.to(ring.dtype.element_ty), mask=m_ok[:, None]
    )


@triton.jit
def _activated(
    acc, bias, frequency, gain, part, P: tl.constexpr, FAST: tl.constexpr, DTYPE: tl.constexpr
):
    """What the second convolution of a unit reads: a third of its channels."""
    n = part * P + tl.arange(0, P)
    acc += tl.load(bias + n).to(tl.float32)[None, :]
    f, g = tl.load(frequency + n).to(tl.float32), tl.load(gain + n).to(tl.float32)
    return _snake(acc, f[None, :], g[None, :], FAST).to(DTYPE)


@triton.jit(do_not_specialize=["rows"])
def unit_kernel(
    source, w, bias, frequency, gain, w_2, bias_2, frequency_2, gain_2, running, ring, frames, rows,
    source_stride, ring_stride,
    T: tl.constexpr, J: tl.constexpr, DILATION: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    RING: tl.constexpr, RAW: tl.constexpr, FAST: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A residual unit: what lies between its two convolutions stays in registers.

    All channels of BM columns, in three parts (channels are three times a power of two). The sums
    and their order are those of two `conv_kernel`s.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.arange(0, BK)
    third: tl.constexpr = C // 3
    p = tl.arange(0, third)
    m_ok = m < rows
    b, t = m // T, m % T
    wait_for_predecessor(PDL)
    now = tl.load(frames + b, mask=m_ok, other=0).to(tl.int32) * T + t
    base = source + b.to(tl.int64) * source_stride
    blocks: tl.constexpr = C // BK
    reach: tl.constexpr = (J - 1) * DILATION
    acc_0 = tl.zeros((BM, third), tl.float32)
    acc_1 = tl.zeros((BM, third), tl.float32)
    acc_2 = tl.zeros((BM, third), tl.float32)
    for i in range(J * blocks):
        j = i // blocks
        c = (i % blocks) * BK + k
        column = (now + (R - reach) + j * DILATION) % R
        a = tl.load(base[:, None] + column[:, None] * C + c[None, :], mask=m_ok[:, None], other=0.0)
        at_w = w + p[None, :] * (J * C) + (j * C + c)[:, None]
        acc_0 = tl.dot(a, tl.load(at_w), acc_0, input_precision=PRECISION)
        acc_1 = tl.dot(a, tl.load(at_w + third * J * C), acc_1, input_precision=PRECISION)
        acc_2 = tl.dot(a, tl.load(at_w + 2 * third * J * C), acc_2, input_precision=PRECISION)
    dtype: tl.constexpr = ring.dtype.element_ty
    inner_0 = _activated(acc_0, bias, frequency, gain, 0, third, FAST, dtype)
    inner_1 = _activated(acc_1, bias, frequency, gain, 1, third, FAST, dtype)
    inner_2 = _activated(acc_2, bias, frequency, gain, 2, third, FAST, dtype)
    at_ring = b.to(tl.int64) * ring_stride + (now % RING) * C
    for part in tl.static_range(3):
        _unit_part(
            inner_0, inner_1, inner_2, part, w_2, bias_2, running, ring, frequency_2, gain_2,
            m, m_ok, at_ring, C, third, RAW, FAST, BM, PRECISION,
        )  # fmt: skip


@triton.jit
def quantizer_kernel(
    codes, tables, frames, ring, ring_stride,
    GROUPS: tl.constexpr, BOOK: tl.constexpr, C: tl.constexpr, BC: tl.constexpr,
    RING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One frame's codes to one column."""
    b = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BC)
    wait_for_predecessor(PDL)
    total = tl.zeros((BC,), tl.float32)
    for g in range(GROUPS):
        code = tl.minimum(tl.load(codes + b * GROUPS + g), BOOK - 1)
        row = tables + (g * BOOK + code) * C + c
        total += tl.load(row, mask=c < C, other=0.0).to(tl.float32)
    column = (tl.load(frames + b) % RING).to(tl.int32)
    at = ring + b * ring_stride + column * C + c
    tl.store(at, total.to(ring.dtype.element_ty), mask=c < C)


@triton.jit
def depthwise_kernel(
    ring, ring_stride, w, bias, norm, norm_bias, frames, out, eps,
    T: tl.constexpr, J: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, R: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Depthwise convolution and LayerNorm of one column. Weights `[J, C]`."""
    m = tl.program_id(0)
    c = tl.arange(0, BC)
    ok = c < C
    b, t = m // T, m % T
    wait_for_predecessor(PDL)
    now = tl.load(frames + b).to(tl.int32) * T + t
    base = ring + b.to(tl.int64) * ring_stride
    acc = tl.load(bias + c, mask=ok, other=0.0).to(tl.float32)
    for j in tl.static_range(J):
        column = (now - (J - 1) + j + J * R) % R
        x = tl.load(base + column * C + c, mask=ok, other=0.0).to(tl.float32)
        acc += x * tl.load(w + j * C + c, mask=ok, other=0.0).to(tl.float32)
    mean = tl.sum(acc, 0) / C
    centred = tl.where(ok, acc - mean, 0.0)
    factor = tl.rsqrt(tl.sum(centred * centred, 0) / C + eps)
    y = centred * factor * tl.load(norm + c, mask=ok, other=0.0).to(tl.float32)
    y += tl.load(norm_bias + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(out + m.to(tl.int64) * C + c, y.to(out.dtype.element_ty), mask=ok)


@triton.jit
def samples_kernel(
    ring, ring_stride, w, bias, frames, flags, pcm,
    T: tl.constexpr, J: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, R: tl.constexpr,
    BT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The last convolution: channels to one int16 sample, silent where the row does not go on."""
    b = tl.program_id(0)
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    c = tl.arange(0, BC)
    t_ok, c_ok = t < T, c < C
    wait_for_predecessor(PDL)
    now = tl.load(frames + b).to(tl.int32) * T + t
    base = ring + b.to(tl.int64) * ring_stride
    acc = tl.zeros((BT, BC), tl.float32)
    for j in tl.static_range(J):
        column = (now - (J - 1) + j + J * R) % R
        at = base + column[:, None] * C + c[None, :]
        x = tl.load(at, mask=t_ok[:, None] & c_ok[None, :], other=0.0).to(tl.float32)
        acc += x * tl.load(w + j * C + c, mask=c_ok, other=0.0).to(tl.float32)[None, :]
    y = tl.sum(acc, 1) + tl.load(bias).to(tl.float32)
    y = tl.where(y == y, tl.minimum(tl.maximum(y, -1.0), 1.0), 0.0)
    y = tl.floor(y * 32767.0 + 0.5)
    goes_on = tl.load(flags + b) >= 4
    y = tl.where(goes_on, y, 0.0)
    tl.store(pcm + b.to(tl.int64) * T + t, y.to(tl.int16), mask=t_ok)
