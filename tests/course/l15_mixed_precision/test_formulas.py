"""What autocast keeps, by arithmetic."""

from __future__ import annotations

import pytest

from vramlab.units import MIB
from vramlab_course.lessons.l15_mixed_precision.formulas import (
    autocast_forward_bytes,
    cast_bytes,
    crossover_rows,
)

WIDTHS = (1024,) * 5


def test_casts_inside_and_after() -> None:
    # Four weights of 2 MiB and four biases of 2048 B; after the region three weights.
    assert cast_bytes(WIDTHS) == 8 * MIB + 4 * 2048
    assert cast_bytes(WIDTHS, inside=False) == 6 * MIB
    assert cast_bytes(WIDTHS, bias=False) == 8 * MIB


def test_a_forward_pass() -> None:
    # 1024 rows: the input's cast and four outputs, 2 MiB each.
    assert autocast_forward_bytes(1024, WIDTHS) == 10 * MIB + 8 * MIB + 4 * 2048
    assert autocast_forward_bytes(1024, WIDTHS, inside=False) == 10 * MIB + 6 * MIB


@pytest.mark.parametrize(
    ("widths", "rows"),
    [
        ((1024,) * 5, 1367),  # 4 x 1024 x 1025 / (3 x 1024) = 1366.7
        ((512, 2048, 512), 1026),  # (2 x 512 x 2048 + 2560) / 2048 = 1025.25
        ((1024, 2048), 2051),  # 2048 x 1025 / 1024 = 2050, which is a draw
    ],
)
def test_the_crossover(widths: tuple[int, ...], rows: int) -> None:
    assert crossover_rows(widths) == rows


def test_a_narrow_output_never_pays() -> None:
    with pytest.raises(ValueError, match="autocast never takes less here"):
        crossover_rows((1024, 1024))
