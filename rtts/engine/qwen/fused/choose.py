"""From scores to codes in one kernel a code group, and the small kernels at a frame's two ends.

The rules are `sampling.Sampler`'s and the draws are `sampling.uniforms`', number for number; what
differs is the order of float32 sums. The k-th best score is found by bisection on the bits of the
scores, two bits a round, until k are left (or ties at the k-th, which are kept as they are there).
"""

# Constants of a kernel are in capitals, as Triton's own.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl

from rtts.engine.qwen.fused.launch import wait_for_predecessor
from rtts.engine.qwen.fused.linear import squares_of

_GOLDEN = tl.constexpr(-7046029254386353131)
_MIX_1 = tl.constexpr(-4658895280553007687)
_MIX_2 = tl.constexpr(-7723592293110705685)


@triton.jit
def _mix(x):
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _MIX_1
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _MIX_2
    return x ^ ((x >> 31) & ((1 << 33) - 1))


@triton.jit
def _uniform(seed, frame, group, GROUPS: tl.constexpr):
    """Draw number `group` of that frame, in [0, 1)."""
    counter = frame * GROUPS + group + 1
    bits = _mix(_mix(seed * _GOLDEN) + counter * _GOLDEN)
    return ((bits >> 41) & ((1 << 23) - 1)).to(tl.float32) * 1.1920928955078125e-07


@triton.jit
def _ordered(x):
    """Float32 to int64 in 0 .. 2^32 - 1, in the same order."""
    bits = x.to(tl.int32, bitcast=True)
    flipped = tl.where(bits < 0, ~bits, bits ^ -2147483648)
    return flipped.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def _choose(
    scores, v, u, is_greedy, temperature, top_p, V: tl.constexpr, K: tl.constexpr, P: tl.constexpr
):
    """One index: the best, or the first whose cumulated probability passes the draw."""
    best = tl.argmax(scores, 0)
    scaled = scores / temperature
    if K > 0 and K < V:
        keys = tl.where(v < V, _ordered(scaled), -1)
        bound = tl.zeros((), tl.int64)
        shift = 30
        held = V  # scores not below the bound; K of them: the others are settled too
        while (shift >= 0) & (held != K):
            step = tl.full((), 1, tl.int64) << shift
            packed = (
                (keys >= bound + step).to(tl.int64)
                + ((keys >= bound + 2 * step).to(tl.int64) << 20)
                + ((keys >= bound + 3 * step).to(tl.int64) << 40)
            )
            counts = tl.sum(packed, 0)
            one, two, three = counts & 0xFFFFF, (counts >> 20) & 0xFFFFF, counts >> 40
            if three >= K:
                bound += 3 * step
                held = three.to(tl.int32)
            elif two >= K:
                bound += 2 * step
                held = two.to(tl.int32)
            elif one >= K:
                bound += step
                held = one.to(tl.int32)
            shift -= 2
        scaled = tl.where(keys >= bound, scaled, -float("inf"))
    p = tl.exp(scaled - tl.max(scaled, 0))
    p = tl.where(v < V, p, 0.0)
    if P:
        mass = p / tl.sum(p, 0)
        order = _ordered(mass)
        floor = tl.zeros((), tl.int64)
        for i in tl.static_range(32):
            below = tl.sum(tl.where(order < floor + (1 << (31 - i)), mass, 0.0), 0)
            floor += tl.where(below <= 1.0 - top_p, 1 << (31 - i), 0)
        p = tl.where((order >= floor) | (v == best), p, 0.0)
    cumulated = tl.cumsum(p, 0)
    total = tl.max(cumulated, 0)
    drawn = tl.sum((cumulated <= u * total).to(tl.int32), 0)
    return tl.where(is_greedy, best, tl.minimum(drawn, V - 1)).to(tl.int64)


@triton.jit
def enter_kernel(
    inputs, side, table, x, emit, active, H: tl.constexpr, BH: tl.constexpr, PDL: tl.constexpr
):
    """The talker's input of one row: its codec side plus the tabulated text row."""
    b = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BH)
    ok = h < H
    wait_for_predecessor(PDL)
    id_ = tl.load(inputs + 2 * b)
    tl.store(active + b, tl.load(inputs + 2 * b + 1))
    text = tl.load(table + id_ * H + h, mask=ok, other=0.0).to(tl.float32)
    own = tl.load(side + b * H + h, mask=ok, other=0.0).to(tl.float32)
    kept = (text + own).to(x.dtype.element_ty)
    tl.store(x + b * H + h, kept, mask=ok)
    tl.store(emit + b, tl.sum(squares_of(kept.to(tl.float32)), 0))


@triton.jit
def first_kernel(
    scores, seen, frames, drawn, seeds, greedy, active, codes, flags,
    embedding, entry, total, x, emit, penalty, temperature, top_p,
    V: tl.constexpr, BV: tl.constexpr, K: tl.constexpr, P: tl.constexpr, GROUPS: tl.constexpr,
    EOS: tl.constexpr, SUPPRESSED: tl.constexpr, EARLY: tl.constexpr,
    H: tl.constexpr, BH: tl.constexpr, HP: tl.constexpr, BHP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Code group 0 of one row, and the predictor's input that follows from it."""
    b = tl.program_id(0).to(tl.int64)
    v = tl.arange(0, BV)
    ok = v < V
    wait_for_predecessor(PDL)
    s = tl.load(scores + b * V + v, mask=ok, other=0.0)
    is_finite = tl.sum((~(tl.abs(s) < float("inf"))).to(tl.int32), 0) == 0
    s = tl.where(is_finite, s, 0.0)
    was = tl.load(seen + b * V + v, mask=ok, other=0) != 0
    s = tl.where(was, tl.where(s < 0, s * penalty, s / penalty), s)
    is_early = tl.load(frames + b) < EARLY
    is_shut = ((v >= V - SUPPRESSED) & (v != EOS)) | ((v == EOS) & is_early) | (v >= V)
    s = tl.where(is_shut, -float("inf"), s)
    u = _uniform(tl.load(seeds + b), tl.load(drawn + b), 0, GROUPS)
    is_greedy = tl.load(greedy + b) != 0
    code = _choose(s, v, u, is_greedy, temperature, top_p, V, K, P)
    is_active = tl.load(active + b) != 0
    tl.store(codes + b * GROUPS, code)
    goes_on = is_active & is_finite & (code != EOS)
    flag = (code == EOS).to(tl.int32) + 2 * is_finite.to(tl.int32) + 4 * goes_on.to(tl.int32)
    tl.store(flags + b, flag)
    tl.store(seen + b * V + code, 1, mask=is_active)
    h = tl.arange(0, BH)
    row = tl.load(embedding + code * H + h, mask=h < H, other=0.0).to(tl.float32)
    tl.store(total + b * H + h, row, mask=h < H)
    p = tl.arange(0, BHP)
    entered = tl.load(entry + code * HP + p, mask=p < HP, other=0.0)
    tl.store(x + b * HP + p, entered, mask=p < HP)
    tl.store(emit + b, tl.sum(squares_of(entered.to(tl.float32)), 0))


@triton.jit(do_not_specialize=["group"])
def later_kernel(
    scores, drawn, seeds, greedy, active, codes, embedding, entry, total, x, emit, side, group,
    temperature, top_p,
    V: tl.constexpr, BV: tl.constexpr, K: tl.constexpr, P: tl.constexpr, GROUPS: tl.constexpr,
    H: tl.constexpr, BH: tl.constexpr, HP: tl.constexpr, BHP: tl.constexpr, LAST: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """A later code group of one row, and the next input; after the last, the next codec side."""
    b = tl.program_id(0).to(tl.int64)
    v = tl.arange(0, BV)
    wait_for_predecessor(PDL)
    s = tl.load(scores + b * V + v, mask=v < V, other=-float("inf"))
    s = tl.where(s == s, s, 0.0)
    u = _uniform(tl.load(seeds + b), tl.load(drawn + b), group, GROUPS)
    code = _choose(s, v, u, tl.load(greedy + b) != 0, temperature, top_p, V, K, P)
    tl.store(codes + b * GROUPS + group, code)
    h = tl.arange(0, BH)
    sum_ = tl.load(total + b * H + h, mask=h < H, other=0.0)
    sum_ += tl.load(embedding + code * H + h, mask=h < H, other=0.0).to(tl.float32)
    if LAST:
        is_active = tl.load(active + b) != 0
        tl.store(side + b * H + h, sum_.to(side.dtype.element_ty), mask=(h < H) & is_active)
    else:
        tl.store(total + b * H + h, sum_, mask=h < H)
        p = tl.arange(0, BHP)
        entered = tl.load(entry + code * HP + p, mask=p < HP, other=0.0)
        tl.store(x + b * HP + p, entered, mask=p < HP)
        tl.store(emit + b, tl.sum(squares_of(entered.to(tl.float32)), 0))


@triton.jit
def finish_kernel(
    pcm, codes, flags, active, lengths, frames, drawn, rendered, packed,
    SAMPLES: tl.constexpr, BS: tl.constexpr, GROUPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Counters of one row go on; its codes, flags and level are packed for the host."""
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BS)
    g = tl.arange(0, GROUPS)
    wait_for_predecessor(PDL)
    wave = tl.load(pcm + b * SAMPLES + i, mask=i < SAMPLES, other=0).to(tl.float32)
    wave *= 1.0 / 32767.0
    level = tl.sqrt(tl.sum(wave * wave, 0) / SAMPLES)
    flag = tl.load(flags + b)
    tl.store(packed + b * (GROUPS + 2) + g, tl.load(codes + b * GROUPS + g).to(tl.int32))
    tl.store(packed + b * (GROUPS + 2) + GROUPS, flag)
    tl.store(packed + b * (GROUPS + 2) + GROUPS + 1, level.to(tl.int32, bitcast=True))
    step = tl.load(active + b)
    tl.store(lengths + b, tl.load(lengths + b) + step)
    tl.store(frames + b, tl.load(frames + b) + step)
    tl.store(drawn + b, tl.load(drawn + b) + step)
    tl.store(rendered + b, tl.load(rendered + b) + flag // 4)
