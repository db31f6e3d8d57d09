"""One position of attention for each row: head norms, rotation, cache write, attention, in one kernel.

Serves the talker (a cache of positions), the code predictor (sixteen positions, two in its first
pass) and the codec (a ring of the last `window` positions). The new position is attended to from
registers; the loop runs over what the row holds, not over a span, so nothing depends on the batch.
"""

# Constants of a kernel are in capitals, as Triton's own.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl

from rtts.engine.qwen.config import DecoderConfig
from rtts.engine.qwen.extra import Tensor
from rtts.engine.qwen.fused.launch import launch, power_of_two, wait_for_predecessor
from rtts.engine.qwen.fused.linear import precision


@triton.jit
def _repeat(x, rows: tl.constexpr, times: tl.constexpr):
    """The rows of `x`, again and again, until there are `times` of them."""
    width: tl.constexpr = x.shape[1]
    whole = tl.broadcast_to(x[None, :, :], (times // rows, rows, width))
    return tl.reshape(whole, (times, width))


@triton.jit(do_not_specialize=["first", "B"])
def attend_kernel(
    qkv, out, keys, values, q_norm, k_norm, cos, sin, lengths, active, slots, first, B, eps, scale,
    stride_row, stride_head,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, SIZE: tl.constexpr,
    LENGTHS: tl.constexpr, ACTIVE: tl.constexpr, SLOTS: tl.constexpr, PLACE: tl.constexpr,
    RING: tl.constexpr, NORM: tl.constexpr, STEPS: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr, BQ: tl.constexpr, BG: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row, one key-value head; STEPS positions, whose rows lie B rows apart.

    Several rows of one slot (SLOTS) take two launches: PLACE only writes keys and values, the second
    attends to what all rows have written (and writes the same again).
    """
    b, head = tl.program_id(0), tl.program_id(1)
    half: tl.constexpr = D // 2
    width: tl.constexpr = (GROUP + 2) * KV_HEADS * D
    heads: tl.constexpr = GROUP * KV_HEADS
    d = tl.arange(0, BD)
    g = tl.arange(0, BQ)
    d_ok, g_ok = d < D, g < GROUP
    partner = (d + half) % D  # the other half's value that is turned into this one
    sign = tl.where(d < half, -1.0, 1.0)
    both = g_ok[:, None] & d_ok[None, :]
    wait_for_predecessor(PDL)
    slot = tl.load(slots + b) if SLOTS else b
    cache = slot.to(tl.int64) * stride_row + head * stride_head
    for step in tl.static_range(STEPS):
        row = step * B + b
        if LENGTHS:
            position = tl.load(lengths + b).to(tl.int32)
        else:
            position = first + step
        at_q = qkv + row.to(tl.int64) * width + (head * GROUP + g)[:, None] * D
        at_k = qkv + row.to(tl.int64) * width + (heads + head) * D
        q = tl.load(at_q + d[None, :], mask=both, other=0.0).to(tl.float32)
        q_other = tl.load(at_q + partner[None, :], mask=both, other=0.0).to(tl.float32)
        k = tl.load(at_k + d, mask=d_ok, other=0.0).to(tl.float32)
        k_other = tl.load(at_k + partner, mask=d_ok, other=0.0).to(tl.float32)
        v = tl.load(at_k + KV_HEADS * D + d, mask=d_ok, other=0.0)
        c = tl.load(cos + position * half + d % half, mask=d_ok, other=0.0)
        s = tl.load(sin + position * half + d % half, mask=d_ok, other=0.0) * sign
        if NORM:
            q_factor = tl.rsqrt(tl.sum(q * q, 1) / D + eps)[:, None]
            k_factor = tl.rsqrt(tl.sum(k * k, 0) / D + eps)
            q *= q_factor * tl.load(q_norm + d, mask=d_ok, other=0.0).to(tl.float32)[None, :]
            gain = tl.load(q_norm + partner, mask=d_ok, other=0.0).to(tl.float32)
            q_other *= q_factor * gain[None, :]
            k *= k_factor * tl.load(k_norm + d, mask=d_ok, other=0.0).to(tl.float32)
            k_other *= k_factor * tl.load(k_norm + partner, mask=d_ok, other=0.0).to(tl.float32)
        turned = (q * c[None, :] + q_other * s[None, :]) * scale
        query = turned.to(keys.dtype.element_ty)
        key = (k * c + k_other * s).to(keys.dtype.element_ty)
        limit = position
        target = position
        if RING:
            limit = tl.minimum(position, SIZE)
            target = position % SIZE
        elif ACTIVE:
            is_on = tl.load(active + b) != 0
            target = tl.where(is_on, position, SIZE - 1)
            limit = tl.where(is_on, position, 0)
        if PLACE:
            limit = 0
        tl.store(keys + cache + target * D + d, key, mask=d_ok)
        tl.store(values + cache + target * D + d, v, mask=d_ok)
        top = tl.sum(query.to(tl.float32) * key.to(tl.float32)[None, :], 1)
        query = _repeat(query, BQ, BG)  # a matrix product wants sixteen rows
        top = tl.reshape(tl.broadcast_to(top[None, :], (BG // BQ, BQ)), (BG,))
        total = tl.full((BG,), 1.0, tl.float32)
        out_ = tl.zeros((BG, BD), tl.float32) + v.to(tl.float32)[None, :]
        if STEPS > 1:
            tl.debug_barrier()  # the second step reads what the first has written
        for start in range(0, limit, BP):
            i = start + tl.arange(0, BP)
            ok = i < limit
            if RING:
                ok = ok & (i != target)
            past_k = tl.load(
                keys + cache + i[None, :] * D + d[:, None],
                mask=ok[None, :] & d_ok[:, None], other=0.0,
            )  # fmt: skip
            past_v = tl.load(
                values + cache + i[:, None] * D + d[None, :],
                mask=ok[:, None] & d_ok[None, :], other=0.0,
            )  # fmt: skip
            scores = tl.dot(query, past_k, input_precision=PRECISION)
            scores = tl.where(ok[None, :], scores, -float("inf"))
            best = tl.maximum(top, tl.max(scores, 1))
            shrink = tl.exp(top - best)
            p = tl.exp(scores - best[:, None])
            total = total * shrink + tl.sum(p, 1)
            out_ = out_ * shrink[:, None]
            out_ = tl.dot(p.to(past_v.dtype), past_v, out_, input_precision=PRECISION)
            top = best
        r = tl.arange(0, BG)
        at_out = out + (row.to(tl.int64) * heads + (head * GROUP + r)[:, None]) * D + d[None, :]
        mask = (r < GROUP)[:, None] & d_ok[None, :]
        tl.store(at_out, (out_ / total[:, None]).to(out.dtype.element_ty), mask=mask)


def attend(
    qkv: Tensor,
    out: Tensor,
    keys: Tensor,
    values: Tensor,
    stack: DecoderConfig,
    tables: tuple[Tensor, Tensor],
    *,
    rows: int,
    norms: tuple[Tensor, Tensor] | None = None,
    lengths: Tensor | None = None,
    active: Tensor | None = None,
    first: int = 0,
    steps: int = 1,
    ring: bool = False,
    slots: Tensor | None = None,
    place: bool = False,
    tile: tuple[int, int, int] | None = None,
) -> None:
    """Attention of one new position for each of the first `rows` rows.

    Args:
        qkv: `[steps * rows, (heads + 2 kv_heads) * head_dim]`.
        out: `[steps * rows, heads * head_dim]`.
        keys: One layer, `[slots, kv_heads, size, head_dim]` with any slot and head stride.
        tables: Cosine and sine, `[positions, head_dim / 2]` float32.
        lengths: `[slots]` int64, the position of each row; else it is `first`.
        active: `[slots]`, nonzero where a row counts; others write to the last position.
        ring: Whether position p lies at p modulo size, the size being the window.
        slots: `[rows]` int64, the slot of each row, where it is not the row's number.
        place: Only write keys and values.
        tile: Positions at a time, warps, stages; by default a good choice.
    """
    d = stack.head_dim
    size = keys.shape[2]
    none = tables[0]
    # one choice for all batches: the order of sums depends on it
    block, warps, stages = tile or ((16, 1, 1) if size <= 16 else (32, 1, 3))
    launch(
        attend_kernel,
        (rows, stack.kv_heads),
        qkv, out, keys, values,
        none if norms is None else norms[0], none if norms is None else norms[1],
        *tables,
        none if lengths is None else lengths, none if active is None else active,
        none if slots is None else slots,
        first, rows, stack.eps, stack.head_dim**-0.5, keys.stride(0), keys.stride(1),
        GROUP=stack.heads // stack.kv_heads, KV_HEADS=stack.kv_heads, D=d, SIZE=size,
        LENGTHS=lengths is not None, ACTIVE=active is not None, SLOTS=slots is not None,
        PLACE=place, RING=ring,
        NORM=norms is not None, STEPS=steps,
        BP=block, BD=max(16, power_of_two(d)), BQ=power_of_two(stack.heads // stack.kv_heads), BG=16,
        PRECISION=precision(keys),
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
