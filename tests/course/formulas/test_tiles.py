"""Tiles and waves, by the examples of NVIDIA's guide and by hand."""

from __future__ import annotations

import pytest

from vramlab_course.formulas.tiles import (
    A100_ALIGNED_BYTES,
    TILE,
    Tiling,
    padded,
    recommended_multiple,
)


@pytest.mark.parametrize(
    ("dtype", "everywhere", "on_a100"),
    # document 003: 4 (TF32), 8 (FP16), 16 (INT8); on A100 32, 64, 128
    [("float32", 4, 32), ("float16", 8, 64), ("bfloat16", 8, 64), ("int8", 16, 128)],
)
def test_multiples_are_16_bytes_and_128_on_an_a100(
    dtype: str, everywhere: int, on_a100: int
) -> None:
    assert recommended_multiple(dtype) == everywhere
    assert recommended_multiple(dtype, A100_ALIGNED_BYTES) == on_a100


def test_padding_a_vocabulary() -> None:
    assert padded(50257, 64) == 50304  # 786 x 64
    assert padded(50257, 8) == 50264
    assert padded(50304, 64) == 50304


def test_a_tile_that_sticks_out_is_computed_in_full() -> None:
    # 3.1 of the guide: 1 row more than two tiles makes a third row of tiles
    assert Tiling(256, 256, 108).tiles == 2
    assert Tiling(257, 256, 108).tiles == 3
    assert Tiling(257, 257, 108).tiles == 6


def test_a_tile_more_than_the_multiprocessors_makes_another_wave() -> None:
    # 108 tiles: 12 x 128 rows, 9 x 256 columns
    full = Tiling(12 * TILE[0], 9 * TILE[1], 108)
    assert (full.tiles, full.waves, full.used) == (108, 1, 1.0)
    more = Tiling(12 * TILE[0] + 1, 9 * TILE[1], 108)
    # 13 x 9 = 117 tiles: a second wave of 9; 1537 x 2304 of 216 x 128 x 256 elements
    assert (more.tiles, more.waves) == (117, 2)
    assert more.used == 1537 * 2304 / (216 * 128 * 256)
