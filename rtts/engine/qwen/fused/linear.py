"""Matrix products of a few rows: the weights are streamed once, everything around them is fused.

`out = act(norm(x) @ w.T + bias) * scale + residual`. The product is computed transposed (weights as
the left operand), so that one row or two hundred take the same instruction path and a row's sum has
one order: bits do not depend on the batch.

A root-mean-square norm costs no pass: its gain is folded into the weights at load, its factor needs
one number a row, the sum of squares, which whoever writes a row adds up on the way out. In fixed
point: integer sums have no order, so they may be made by as many programs as there are.
"""

# Constants of a kernel are in capitals, as Triton's own.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
# ruff: noqa: N803, C901, SIM102

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl

from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.fused import tiles
from rtts.engine.qwen.fused.launch import launch, power_of_two, prefetch, wait_for_predecessor
from rtts.engine.qwen.fused.tiles import fitted, linear_split, linear_tile

SQUARE_UNIT = 2.0**28
"""Squares are summed in units of 2^-28: sums up to 3.4e10, steps far below a norm's epsilon."""

_UNIT = tl.constexpr(SQUARE_UNIT)


@triton.jit
def squares_of(x):
    """Squares in fixed point, int64."""
    return (x * x * _UNIT).to(tl.int64)


@triton.jit(do_not_specialize=["M"])
def linear_kernel(
    x, w, out, squares, bias, scale, residual, emit, partial, lock, M, eps,
    N: tl.constexpr, K: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr,
    BIAS: tl.constexpr, SCALE: tl.constexpr, RESIDUAL: tl.constexpr, EMIT: tl.constexpr,
    SPLIT: tl.constexpr, SPREAD: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, PREFETCH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One tile of BN outputs of BM rows.

    The sum over K is SPLIT sums, added in their order: by as many programs where SPREAD (the last to
    arrive adds), else by this one. The bits are the same.
    """
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    k = tl.arange(0, BK)
    n_ok, m_ok = n < N, m < M
    weights = w + n[:, None] * K + k[None, :]
    if PDL:
        if PREFETCH > 0:
            line = tl.minimum(tl.arange(0, PREFETCH) * 64, K - 1)
            lines = w + tl.minimum(n, N - 1)[:, None] * K + line[None, :]
            prefetch(lines)
            if GATED:
                prefetch(lines + N * K)
    wait_for_predecessor(PDL)
    rows = x + m[None, :].to(tl.int64) * K + k[:, None]
    total = tl.zeros((BN, BM), tl.float32)
    other = tl.zeros((BN, BM), tl.float32)
    length: tl.constexpr = K // SPLIT
    for part in tl.static_range(1 if SPREAD else SPLIT):
        first = tl.program_id(2) * length if SPREAD else part * length
        acc = tl.zeros((BN, BM), tl.float32)
        for at in range(first, first + length, BK):
            if K % (SPLIT * BK) == 0 and N % BN == 0:
                a = tl.load(weights + at)
                b = tl.load(rows + at, mask=m_ok[None, :], other=0.0)
            else:
                k_ok = at + k < K
                a = tl.load(weights + at, mask=n_ok[:, None] & k_ok[None, :], other=0.0)
                b = tl.load(rows + at, mask=m_ok[None, :] & k_ok[:, None], other=0.0)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
            if GATED:
                if K % (SPLIT * BK) == 0 and N % BN == 0:
                    a2 = tl.load(weights + N * K + at)
                else:
                    k_ok = at + k < K
                    a2 = tl.load(
                        weights + N * K + at, mask=n_ok[:, None] & k_ok[None, :], other=0.0
                    )
                other = tl.dot(a2, b, other, input_precision=PRECISION)
        total = acc if part == 0 else total + acc
    acc = total
    if SPREAD:
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        inside = tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
        shares = partial + tile * (SPLIT * BN * BM) + inside
        tl.store(shares + tl.program_id(2) * (BN * BM), acc)
        tl.debug_barrier()  # all threads' stores come before the ticket
        ticket = tl.atomic_add(lock + tile, 1, sem="acq_rel", scope="gpu")
        is_last = ticket == SPLIT - 1
        m_ok = m_ok & is_last  # from here on only the last to arrive reads or writes
        acc = tl.load(shares, mask=m_ok[None, :], other=0.0, cache_modifier=".cg")
        for part in tl.static_range(1, SPLIT):
            acc += tl.load(
                shares + part * (BN * BM), mask=m_ok[None, :], other=0.0, cache_modifier=".cg"
            )
        tl.store(lock + tile, 0, mask=is_last)
    if NORM:
        square = tl.load(squares + m, mask=m_ok, other=0).to(tl.float32)
        factor = tl.rsqrt(square / (K * _UNIT) + eps)
        acc *= factor[None, :]
        if GATED:
            other *= factor[None, :]
    if BIAS:
        acc += tl.load(bias + n, mask=n_ok, other=0.0).to(tl.float32)[:, None]
    if GATED:
        acc = acc * tl.sigmoid(acc) * other
    if SCALE:
        acc *= tl.load(scale + n, mask=n_ok, other=0.0).to(tl.float32)[:, None]
    ok = n_ok[:, None] & m_ok[None, :]
    at_out = m[None, :].to(tl.int64) * N + n[:, None]
    if RESIDUAL:
        acc += tl.load(residual + at_out, mask=ok, other=0.0).to(tl.float32)
    kept = acc.to(out.dtype.element_ty)
    tl.store(out + at_out, kept, mask=ok)
    if EMIT:
        own = tl.where(ok, squares_of(kept.to(tl.float32)), 0)
        tl.atomic_add(emit + m, tl.sum(own, 0), mask=m_ok, sem="relaxed")


def linear(
    x: Tensor,
    w: Tensor,
    out: Tensor,
    *,
    squares: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    residual: Tensor | None = None,
    emit: Tensor | None = None,
) -> None:
    """Write the product into `out`.

    Args:
        x: `[M, K]`, contiguous.
        w: `[N, K]`; gated: `[2 N, K]`, the gate's rows first.
        out: `[M, N]`, of any float dtype; may be `residual`, not `x`.
        squares: `[M]` int64, sums of squares of the rows of `x`, which is then normed (the gain
            being in `w`).
        emit: `[M]` int64, zero: receives those of `out`.
        scale: `[N]`, gain of the product before the residual is added.
    """
    rows, k = x.shape
    n = w.shape[0] // 2 if gated else w.shape[0]
    tile = fitted(linear_tile(rows, n, k, gated=gated), x.element_size(), gated=gated)
    split = linear_split(n, k, gated=gated)
    is_spread = split > 1 and rows <= tiles.SPREAD_ROWS
    programs = triton.cdiv(n, tile.bn) * triton.cdiv(rows, tile.bm)
    partial, lock = _workspace(x.device)
    if is_spread and (
        programs > lock.numel() or programs * split * tile.bn * tile.bm > partial.numel()
    ):
        is_spread = False
    launch(
        linear_kernel,
        (triton.cdiv(n, tile.bn), triton.cdiv(rows, tile.bm), split if is_spread else 1),
        x, w, out,
        w if squares is None else squares,
        w if bias is None else bias,
        w if scale is None else scale,
        w if residual is None else residual,
        w if emit is None else emit,
        partial, lock, rows, eps,
        N=n, K=k, NORM=squares is not None, GATED=gated, BIAS=bias is not None,
        SCALE=scale is not None, RESIDUAL=residual is not None,
        EMIT=emit is not None, SPLIT=split, SPREAD=is_spread,
        BM=tile.bm, BN=tile.bn, BK=min(tile.bk, max(16, power_of_two(k))),
        PRECISION=precision(x), PREFETCH=power_of_two(triton.cdiv(k, 64)) if tile.prefetch else 0,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


_PARTIAL = 4 * 2**20  # float32 values: eight shares of 2048 outputs of 256 rows
_LOCKS = 4096


@cache
def _workspace(device: torch.device) -> tuple[Tensor, Tensor]:
    """Shares of split sums, and tickets (zero between kernels). Kernels run one after another."""
    return (
        torch.zeros(_PARTIAL, dtype=torch.float32, device=device),
        torch.zeros(_LOCKS, dtype=torch.int32, device=device),
    )


def fold(weight: Tensor, gain: Tensor) -> None:
    """Put a norm's gain into the matrix behind it, and leave one in its place."""
    weight.mul_(gain)
    gain.fill_(1.0)


def precision(x: Tensor) -> str:
    """How float32 operands are multiplied: exactly (bfloat16 is not affected)."""
    return "ieee" if x.dtype == torch.float32 else "tf32"


@triton.jit
def norm_kernel(x, gain, out, emit, eps, K: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr):
    """Root-mean-square norm of one row, and the squares of what comes out."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BK)
    wait_for_predecessor(PDL)
    wide = tl.load(x + row * K + k, mask=k < K, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(wide * wide) / K + eps)
    scaled = wide * factor * tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32)
    kept = scaled.to(out.dtype.element_ty)
    tl.store(out + row * K + k, kept, mask=k < K)
    tl.store(emit + row, tl.sum(squares_of(kept.to(tl.float32)), 0))


def norm(x: Tensor, gain: Tensor, out: Tensor, emit: Tensor, eps: float) -> None:
    """Root-mean-square norm of the rows of `x` `[M, K]` into `out`, its squares into `emit`."""
    rows, k = x.shape
    launch(norm_kernel, (rows,), x, gain, out, emit, eps, K=k, BK=power_of_two(k), num_warps=4)
