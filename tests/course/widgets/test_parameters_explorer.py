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


def test_sgd_in_float16_takes_four() -> None:
    view = parameters_explorer.view("Linear", 1024, 1, "float16", "SGD")
    assert view.summary.endswith("4.00 B for each.")  # weight 2 and gradient 2
    assert cells(view) == ("2,099,200 B", "2,099,200 B", "equal")


@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "ReLU"])
def test_formulas_count_what_is_measured(layer: str) -> None:
    # 128 channels: each tensor is a multiple of 512 B, at most 1 MiB or a whole segment's worth
    predicted, measured, _ = cells(parameters_explorer.view(layer, 128, 1, "float32", "SGD"))
    assert predicted == measured


def test_a_layer_without_parameters_takes_nothing() -> None:
    view = parameters_explorer.view("ReLU", 1024, 3, "float32", "Adam")
    assert view.summary == "0 parameters; 0 B before any activation."
