"""How much of a GPU a matrix product (GEMM) can use: an estimate from its shape.

A GPU computes a product tile by tile: the output (rows, columns) is cut into tiles, each is one
thread block's work, and each multiprocessor does one after the other. Two things are lost:

    tile quantization   tiles at the edges stick out, and are computed in full
    wave quantization   in the last round, the last wave, some multiprocessors have no tile left

Source: NVIDIA, Matrix Multiplication Background User's Guide (DU-09799-001), sections 2.3, 3.1 and
3.2. Known limitations: cuBLAS has tiles of many sizes and chooses among them, runs several on one
multiprocessor where they are small, and splits the inner dimension where there are few. So real
times have fewer and softer steps than this estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.cuda_rules.rounding import ceil_div, round_up
from vramlab.cuda_rules.sizes import ITEM_BYTES

TILE = (128, 256)
"""Rows and columns of the guide's most efficient tile."""

ALIGNED_BYTES = 16
"""Tensor cores are used best where sizes are multiples of so many bytes; section 2.2."""

A100_ALIGNED_BYTES = 128
"""What the guide recommends on an A100."""


def recommended_multiple(dtype: str, aligned_bytes: int = ALIGNED_BYTES) -> int:
    """Return the recommended multiple for sizes, in elements: 8 for float16, 64 on an A100.

    Args:
        dtype: a name in `ITEM_BYTES`. TF32 has 4 bytes in memory, like float32.
        aligned_bytes: `ALIGNED_BYTES`, or `A100_ALIGNED_BYTES`.
    """
    return aligned_bytes // ITEM_BYTES[dtype]


def padded(size: int, multiple: int) -> int:
    """Return the next multiple, to which for example a vocabulary of 50,257 tokens is padded."""
    return round_up(size, multiple)


@dataclass(frozen=True)
class Tiling:
    """A product with an output of (rows, columns), cut into tiles."""

    rows: int
    columns: int
    multiprocessors: int
    """Of the GPU."""
    tile: tuple[int, int] = TILE
    """Rows and columns of a tile."""

    @property
    def tiles(self) -> int:
        """Return the number of thread blocks with work, including those at the edges."""
        tile_rows, tile_columns = self.tile
        return ceil_div(self.rows, tile_rows) * ceil_div(self.columns, tile_columns)

    @property
    def waves(self) -> int:
        """Return the rounds of one tile on every multiprocessor; the last may be incomplete."""
        return ceil_div(self.tiles, self.multiprocessors)

    @property
    def used(self) -> float:
        """Return the fraction of the computed elements that are part of the output: 1 at best."""
        tile_rows, tile_columns = self.tile
        computed = self.waves * self.multiprocessors * tile_rows * tile_columns
        return self.rows * self.columns / computed
