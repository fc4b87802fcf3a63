"""The explorer of what parameters take, against arithmetic."""

from __future__ import annotations

import pytest

from vramlab_course.widgets import parameters_explorer
from vramlab_course.widgets.parameters_explorer import LAYERS


def cells(view: object) -> tuple[str, str, str]:
    (row,) = view.tables[0].rows  # type: ignore[attr-defined]
    return row[1].split("\n")[1], row[2].split("\n")[1], row[3]


def test_adam_in_float32_takes_sixteen_bytes_for_each_parameter() -> None:
    view = parameters_explorer.view("Linear", 1024, 1, "float32", "Adam")
    # 1024 * 1024 + 1024 = 1049600 parameters; 4 B each, and gradient and two states as much
    assert view.summary.startswith(
        "1,049,600 parameters; 16.016 MiB before any activation, 16.00 B"
    )
    assert cells(view) == ("4,198,400 B", "4,198,400 B", "equal")


@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "ReLU"])
def test_formulas_count_what_is_measured(layer: str) -> None:
    # 128 channels: each tensor is a multiple of 512 B, at most 1 MiB or a whole segment's worth
    predicted, measured, _ = cells(parameters_explorer.view(layer, 128, 1, "float32", "SGD"))
    assert predicted == measured
