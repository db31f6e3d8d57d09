"""Tile sizes by shape: measured on an H200 (`benchmarks/qwen_tiles.py`). Any choice is correct.

Measured too: every tile gives a row the same bits, on either of the two instruction paths; what the
bits depend on is `linear_split`, which does not look at the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2

SPREAD_ROWS = 64
"""Up to that many rows the parts of a split sum are made by programs of their own."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a matrix product is cut.

    Attributes:
        bm: Rows of the batch; `bn` outputs; `bk` of the sum at a time.
        prefetch: Whether a program fetches its weights before its predecessor has ended.
    """

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    prefetch: bool = False


_OPERAND_BYTES = 200 * 1024
"""Shared memory that operands on their way may take, of the 227 KB a program may have."""


def fitted(tile: Tile, value_bytes: int, *, gated: bool = False) -> Tile:
    """The tile with fewer stages where its operands would not fit: float32 takes twice the room."""
    stage = (tile.bm + (2 if gated else 1) * tile.bn) * tile.bk * value_bytes
    return replace(tile, stages=max(2, min(tile.stages, 1 + _OPERAND_BYTES // stage)))


CHOOSE_WARPS = 8
"""Warps of the kernels that choose codes."""

OVERRIDES: dict[tuple[object, ...], Tile] = {}
"""Put here by benchmarks."""

SPLITS: dict[tuple[int, int], int] = {}
"""Likewise, of `linear_split`."""


def linear_split(n: int, k: int, *, gated: bool) -> int:
    """Into how many parts the sum over `k` is cut: where few outputs leave the device idle."""
    if gated or k % 1024 or n < 1024:
        return 1
    found = SPLITS.get((n, k))
    if found is not None:
        return found
    return 4 if n <= 2048 and k > n or n <= 1024 and k >= 2048 else 1


def linear_tile(rows: int, n: int, k: int, *, gated: bool) -> Tile:
    """Tile of `linear`."""
    bm = min(128, max(16, 1 << (rows - 1).bit_length()))
    found = OVERRIDES.get(("linear", n, k, gated, bm))
    if found is not None:
        return found
    if bm == 16:
        if gated:
            tile = Tile(bm, 16, 128, 2, 3) if n > 4096 else Tile(bm, 64, 128, 4, 5)
        else:
            tile = Tile(bm, 32 if n * k >= 2**23 and n >= 4096 else 64, 128, 4, 5)
        is_small = n * k <= (2**20 if gated else 2**22)
        return replace(tile, prefetch=True) if is_small else tile
    if bm <= 64:
        return Tile(bm, 64, 64 if gated else 128, 4, 5 if bm == 32 or gated else 4)
    if gated:
        return Tile(128, 128 if n > 4096 else 64, 64, 8, 4)
    if n <= 1024:
        return Tile(32, 64, 128, 4, 5)
    return Tile(128, 64, 64, 8, 4) if n >= 4096 else Tile(64, 64, 128, 8, 4)


_CONVOLUTIONS: dict[tuple[int, int, int], tuple[tuple[int, tuple[int, ...]], ...]] = {
    (2048, 1024, 1): ((1, (16, 32, 64, 4, 6)), (2, (16, 16, 128, 4, 4)), (4, (16, 32, 64, 4, 4)), (8, (16, 16, 128, 4, 6)), (16, (16, 16, 128, 4, 4)), (32, (64, 16, 128, 4, 4)), (64, (64, 16, 64, 4, 4)), (128, (64, 32, 64, 4, 4)), (256, (64, 64, 64, 4, 4)), (512, (64, 128, 64, 4, 4))),
    (4096, 1024, 1): ((2, (16, 32, 128, 4, 4)), (4, (16, 32, 64, 4, 4)), (8, (16, 32, 64, 4, 4)), (16, (16, 32, 128, 4, 6)), (32, (64, 32, 128, 4, 4)), (64, (64, 32, 128, 4, 4)), (128, (64, 64, 128, 4, 4)), (256, (128, 32, 64, 4, 4)), (512, (64, 128, 64, 4, 4)), (1024, (64, 128, 64, 4, 4))),
    (1024, 4096, 1): ((2, (16, 16, 128, 4, 4)), (4, (16, 16, 128, 4, 6)), (8, (16, 16, 128, 4, 6)), (16, (16, 16, 64, 4, 4)), (32, (16, 16, 128, 4, 4)), (64, (64, 16, 128, 4, 4)), (128, (64, 16, 128, 4, 4)), (256, (64, 32, 64, 4, 4)), (512, (64, 64, 64, 4, 4)), (1024, (64, 128, 64, 4, 4))),
    (1536, 1024, 7): ((4, (16, 32, 128, 4, 6)), (16, (16, 32, 128, 4, 4)), (64, (64, 16, 128, 4, 4)), (256, (64, 64, 64, 4, 4)), (1024, (128, 64, 64, 4, 4))),
    (6144, 1536, 2): ((4, (16, 64, 64, 4, 6)), (16, (16, 64, 128, 4, 4)), (64, (64, 32, 64, 4, 4)), (256, (64, 64, 64, 4, 4)), (1024, (128, 64, 64, 4, 4))),
    (768, 768, 7): ((32, (16, 32, 128, 4, 4)), (128, (32, 32, 128, 4, 4)), (512, (64, 64, 64, 4, 4)), (2048, (64, 64, 64, 4, 4)), (8192, (128, 128, 64, 8, 4))),
    (768, 768, 1): ((32, (16, 32, 64, 4, 4)), (128, (64, 16, 128, 4, 4)), (512, (64, 32, 64, 4, 4)), (2048, (64, 64, 64, 4, 4)), (8192, (64, 64, 64, 8, 3))),
    (1920, 768, 2): ((32, (16, 32, 64, 4, 4)), (128, (64, 32, 64, 4, 4)), (512, (64, 32, 64, 4, 4)), (2048, (64, 128, 64, 4, 4)), (8192, (64, 128, 64, 8, 4))),
    (384, 384, 7): ((160, (64, 32, 64, 4, 4)), (640, (64, 32, 64, 4, 4)), (2560, (64, 128, 64, 8, 4)), (10240, (64, 128, 64, 8, 4)), (40960, (64, 128, 64, 8, 4))),
    (384, 384, 1): ((160, (32, 32, 64, 4, 4)), (640, (64, 32, 64, 4, 4)), (2560, (64, 64, 64, 8, 3)), (10240, (64, 64, 64, 8, 3)), (40960, (64, 64, 64, 8, 3))),
    (768, 384, 2): ((160, (32, 32, 64, 4, 4)), (640, (64, 32, 64, 4, 4)), (2560, (64, 128, 64, 8, 3)), (10240, (64, 64, 64, 8, 3)), (40960, (64, 64, 64, 8, 3))),
    (192, 192, 7): ((640, (64, 32, 64, 4, 4)), (2560, (64, 64, 64, 8, 4)), (10240, (128, 64, 64, 8, 4)), (40960, (128, 64, 64, 8, 3)), (163840, (128, 64, 64, 4, 3))),
    (192, 192, 1): ((640, (64, 32, 64, 4, 4)), (2560, (64, 64, 64, 8, 3)), (10240, (128, 64, 64, 8, 3)), (40960, (64, 64, 64, 8, 3)), (163840, (64, 64, 64, 8, 3))),
    (288, 192, 2): ((640, (32, 64, 64, 4, 4)), (2560, (64, 32, 32, 4, 4)), (10240, (64, 64, 64, 8, 3)), (40960, (64, 64, 64, 8, 3)), (163840, (64, 64, 64, 8, 3))),
    (96, 96, 7): ((1920, (64, 32, 32, 4, 4)), (7680, (64, 64, 32, 8, 3)), (30720, (128, 64, 32, 8, 3)), (122880, (128, 32, 32, 4, 4)), (491520, (128, 32, 32, 4, 4))),
    (96, 96, 1): ((1920, (64, 32, 32, 4, 4)), (7680, (64, 32, 32, 4, 3)), (30720, (64, 32, 32, 4, 3)), (122880, (64, 32, 32, 4, 4)), (491520, (64, 32, 32, 4, 4))),
}  # fmt: skip
"""Measured winners of the released codec: (outputs, channels, taps) to (rows, tile) by rows."""


def conv_tile(rows: int, n: int, c: int, taps: int) -> Tile:
    """Tile of `conv`: `c` input channels, `n` outputs."""
    found = OVERRIDES.get(("conv", n, c, taps, rows))
    if found is not None:
        return found
    measured = _CONVOLUTIONS.get((n, c, taps))
    if measured is not None:
        _, (bm, bn, bk, warps, stages) = min(measured, key=lambda item: abs(log2(item[0] / rows)))
        return Tile(bm, bn, bk, warps, stages)
    bk = 64 if c % 64 == 0 else 32 if c % 32 == 0 else 16
    if rows <= 64:
        return Tile(16 if rows <= 16 else 32, 16 if n <= 1024 else 32, bk, 4, 4)
    return Tile(64, 32, bk, 4, 4)


def unit_tile(rows: int, c: int) -> Tile | None:
    """Tile of `unit_kernel` (its `c` outputs at once), or None: two kernels are faster, or it cannot."""
    third = c // 3
    if c % 3 or third < 16 or third & (third - 1):
        return None
    found = OVERRIDES.get(("unit", c))
    if found is not None:
        return found
    if c == 96 and rows >= 16 * 1920:
        return Tile(64, c, 32, 4, 4 if rows <= 64 * 1920 else 3)
    return Tile(64, c, 64, 4, 3) if c == 192 and rows >= 64 * 640 else None
