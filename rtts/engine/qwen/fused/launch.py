"""How kernels are launched: with programmatic dependent launch where the device has it.

A kernel started that way may begin while its predecessor ends: it prefetches its weights, which
depend on nothing, and then waits. In a chain of some six hundred short kernels a frame this hides
most of each one's start. Every kernel of the chain waits before it reads or writes anything else.
"""

# Constants of a kernel are in capitals, as Triton's own.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
# ruff: noqa: N803, TID251, PLW0603

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton
import triton.language as tl

try:  # moved between versions of Triton
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # pragma: no cover - versions without it run without it
    gdc_launch_dependents = gdc_wait = None

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Triton's own switch for running kernels on a CPU; read where Triton reads it."""

_settings = {"pdl": 0 if INTERPRETED or gdc_wait is None else 1}
_noted: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] | None = None


def set_dependent_launch(mode: int) -> None:
    """Set it for launches from now on, to measure or to exclude it as a cause.

    Args:
        mode: 0 off, 1 a kernel lets the next begin once its own predecessor has ended, 2 at once.
    """
    _settings["pdl"] = 0 if INTERPRETED or gdc_wait is None else mode


def launch(kernel: Any, grid: Sequence[int], *args: Any, **meta: Any) -> None:
    """Launch `kernel` on the current stream, or note it (see `compile_all`)."""
    meta["PDL"] = _settings["pdl"]
    if _settings["pdl"]:
        meta["launch_pdl"] = True
    if _noted is not None:
        _noted.append((kernel, args, meta))
        return
    kernel[tuple(grid)](*args, **meta)


def compile_all(chains: Sequence[Callable[[], None]], threads: int) -> int:
    """Compile every kernel the chains launch, without running any, several at a time.

    Returns:
        How many there are.
    """
    global _noted
    _noted = []
    try:
        for chain in chains:
            chain()
        noted = _noted
    finally:
        _noted = None
    different = {_variant(*each): each for each in noted}

    def compile_one(each: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> None:
        kernel, args, meta = each
        kernel.warmup(*args, grid=(1,), **meta)

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(compile_one, different.values()):
            pass
    return len(different)


def _variant(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> tuple[Any, ...]:
    """What a kernel is specialised for: finer than it is costs a second look-up, no more."""
    kinds = [
        (arg.dtype, arg.data_ptr() % 16) if hasattr(arg, "dtype") else (arg == 1, arg % 16 == 0)
        for arg in args
    ]
    return (kernel.fn.__name__, *kinds, *sorted(meta.items()))


def power_of_two(size: int) -> int:
    """The smallest power of two that is not smaller."""
    return int(triton.next_power_of_2(size))


@triton.jit
def wait_for_predecessor(PDL: tl.constexpr):
    """Everything before this kernel is done and visible; the next one may be started."""
    if PDL == 2:
        gdc_launch_dependents()
        gdc_wait()
    if PDL == 1:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def prefetch(addresses):
    """Bring the cache lines at these pointers into the second-level cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [addresses.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
