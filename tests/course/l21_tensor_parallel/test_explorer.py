"""The tensor parallel explorer: what is measured, and that nothing else is disturbed."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l21_tensor_parallel import formulas as formulas
from vramlab_course.lessons.l21_tensor_parallel.explorer import tensor_parallel_explorer
from vramlab_course.widgets.explorer import Explorer

SMALL = {"width": 1024, "batch": 2, "sequence": 256, "ranks": 4}
STREAM_BYTES = 2 * 2 * 256 * 1024


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return tensor_parallel_explorer(**SMALL)


def test_measured_bytes_are_there(explorer: Explorer) -> None:
    kept_bytes = formulas.kept_bytes(2, 256, 1024, 16, 4, "tensor")
    assert f"{kept_bytes:,} B" in explorer.output.value
    assert f"{formulas.parameters_bytes(1024, 4):,} B" in explorer.output.value
    # two all-reduces each way, of which each sends 2 x 3 / 4
    assert f"{2 * 3 * STREAM_BYTES // 2:,} B" in explorer.output.value
    assert "4 all-reduces" in explorer.output.value


def test_with_the_sequence_cut_as_much_is_sent(explorer: Explorer) -> None:
    explorer.controls["cut_sequence"].value = True
    assert "4 all-gathers, 4 reduce-scatters" in explorer.output.value
    assert f"{2 * 3 * STREAM_BYTES // 2:,} B" in explorer.output.value
    kept_bytes = formulas.kept_bytes(2, 256, 1024, 16, 4, "sequence")
    assert f"{kept_bytes:,} B" in explorer.output.value
    explorer.controls["cut_sequence"].value = False
