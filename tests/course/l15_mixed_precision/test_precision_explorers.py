"""The explorers of number formats and of precision modes."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l15_mixed_precision.float_explorer import float_explorer
from vramlab_course.lessons.l15_mixed_precision.mixed_precision_explorer import (
    measure_mode,
)

WORKSPACES_BYTES = 2 * 8_519_680  # two threads, 8.125 MiB each


def test_a_number_can_be_typed() -> None:
    explorer = float_explorer("1.5")
    assert "1.5 has a neighbour in every format." in explorer.output.value
    explorer.controls["number"].value = "65520"
    assert "65520 becomes infinite in float16, float8_e5m2." in explorer.output.value
    explorer.controls["number"].value = "1e-8"
    assert "becomes 0 in float16, float8_e4m3fn, float8_e5m2." in explorer.output.value


@pytest.mark.parametrize(
    ("mode", "bytes_per_parameter"),
    # weights 4 and AdamW's 8; 2 and 4; 2, a copy of 4, and 8
    [("float32", 12), ("autocast", 12), ("16 bit", 6), ("16 bit, float32 copies", 14)],
)
def test_what_a_step_leaves(mode: str, bytes_per_parameter: int) -> None:
    rows, width, layers = 64, 1024, 2
    memory = measure_mode(mode, rows, width, layers, "A100-40GB")
    assert memory.parameters == layers * (width * width + width)
    rows_bytes = rows * width * (2 if mode.startswith("16 bit") else 4)
    assert memory.after_step.allocated_after_bytes == (
        bytes_per_parameter * memory.parameters + rows_bytes + WORKSPACES_BYTES
    )
    assert memory.timeline.unexplained_bytes == 0


def test_autocast_adds_more_for_few_rows_and_less_for_many() -> None:
    def added_bytes(mode: str, rows: int) -> int:
        return measure_mode(mode, rows, 1024, 4, "A100-40GB").forward.growth_bytes

    assert added_bytes("autocast", 256) > added_bytes("float32", 256)
    assert added_bytes("autocast", 8192) < added_bytes("float32", 8192)
