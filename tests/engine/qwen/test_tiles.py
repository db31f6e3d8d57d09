"""Tiles of the released shapes fit into shared memory, in either width of values."""

from __future__ import annotations

import pytest

from rtts.engine.qwen.fused.tiles import Tile, conv_tile, fitted, linear_tile

SHARED_BYTES = 227 * 1024  # what a program may have on compute capability 9.0
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LINEAR = (
    (4096, 2048, False), (2048, 2048, False), (6144, 2048, True), (2048, 6144, False),
    (4096, 1024, False), (1024, 2048, False), (3072, 1024, True), (1024, 3072, False),
    (3072, 2048, False), (2048, 1024, False), (1024, 512, True), (512, 1024, False),
)  # fmt: skip
CONVOLUTIONS = (
    (4096, 1024, 1), (1024, 4096, 1), (1536, 1024, 7), (6144, 1536, 2), (768, 768, 7), (768, 768, 1),
    (1920, 768, 2), (384, 384, 7), (192, 192, 7), (288, 192, 2), (96, 96, 7), (40, 24, 3),
)  # fmt: skip


def shared(tile: Tile, value_bytes: int, gated: bool) -> int:
    """Operands of all stages but the one that is computed on, as Triton 3.6 holds them."""
    columns = tile.bm + (2 if gated else 1) * tile.bn
    return columns * tile.bk * value_bytes * (tile.stages - 1)


@pytest.mark.parametrize("rows", ROWS)
def test_tiles_fit(rows: int) -> None:
    """16-bit values keep the measured tile; float32 has as many stages as there is room for."""
    tiles = [(linear_tile(rows, n, k, gated=gated), gated) for n, k, gated in LINEAR]
    tiles += [(conv_tile(rows * 8, n, c, taps), False) for n, c, taps in CONVOLUTIONS]
    for tile, gated in tiles:
        assert fitted(tile, 2, gated=gated) == tile
        wide = fitted(tile, 4, gated=gated)
        assert shared(wide, 4, gated) <= SHARED_BYTES
        assert 2 <= wide.stages <= tile.stages


def test_some_tile_had_to_be_fitted() -> None:
    """Otherwise the test above says nothing: float32 has fewer stages for one of them."""
    tile = linear_tile(8, 3072, 1024, gated=True)
    assert fitted(tile, 4, gated=True).stages < tile.stages
