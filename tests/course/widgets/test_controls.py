"""The controls that parameters are declared with: what they look like, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from vramlab_course.widgets import controls
from vramlab_course.widgets.controls import Control
from vramlab_course.widgets.gpus import gpu_choice

LAYERS = controls.slider("Layers", 1, 4)
BATCH = controls.powers("Batch", 2, 16)
WIDTH = controls.choice("Width", (100, 250))
MODE = controls.choice("Mode", {"eager": 0, "compiled": 1})
TICK = controls.checkbox("Share sequences, too")
BUTTON = controls.run_button("Measure", "Run it")
LINE = controls.text("Options", "none")
LINES = controls.paragraph("Program", rows=3)
METHODS = controls.checkboxes({"cast": "Mixed precision", "pieces": "Accumulate"})
GPU = gpu_choice("T4", "A100-40GB")


def made(control: Control, value: Any) -> Any:
    (widget,) = control.widgets("it", {"it": value}).values()
    return widget


@pytest.mark.parametrize(
    ("control", "value"),
    [(LAYERS, 2), (BATCH, 8), (LINE, ""), (LINES, "a 1 MiB")],
    ids=lambda case: getattr(case, "description", None),
)
def test_what_could_report_values_on_the_way_reports_the_last_and_is_named(
    control: Control, value: Any
) -> None:
    widget = made(control, value)
    assert widget.continuous_update is False
    assert widget.description == control.description
    assert widget.style.description_width == "initial"


def test_a_slider_over_powers_holds_the_powers_of_two() -> None:
    assert list(made(BATCH, 4).options) == [2, 4, 8, 16]


@pytest.mark.parametrize(
    ("control", "value", "means"),
    [
        (LAYERS, 4, 4),
        (BATCH, 8.0, 8),
        (WIDTH, 250.0, 250),
        (MODE, "compiled", "compiled"),
        (TICK, True, True),
        (BUTTON, False, False),
        (GPU, "nvidia tesla t4", "T4"),
    ],
)
def test_what_means_a_value_is_that_value(control: Control, value: object, means: object) -> None:
    found = made(control, value).value
    assert found == means
    assert type(found) is type(means)


@pytest.mark.parametrize(
    ("control", "value", "wanted"),
    [
        (LAYERS, 5, "it is 5, and has to be a whole number from 1 to 4"),
        (LAYERS, 0, "a whole number from 1 to 4"),
        (LAYERS, 2.5, "it is 2.5, and has to be a whole number from 1 to 4"),
        (LAYERS, "2", "it is '2', and has to be a whole number from 1 to 4"),
        (LAYERS, None, "a whole number from 1 to 4"),
        (BATCH, 1, "it is 1, and has to be a power of two from 2 to 16"),
        (BATCH, 12, "a power of two from 2 to 16"),
        (BATCH, [4], "a power of two from 2 to 16"),
        (WIDTH, 101, "it is 101, and has to be one of 100, 250"),
        (MODE, "Eager", "it is 'Eager', and has to be one of 'eager', 'compiled'"),
        (MODE, None, "one of 'eager', 'compiled'"),
        (TICK, "no", "it is 'no', and has to be True or False"),
        (BUTTON, None, "True or False"),
        (LINE, 0.1, "it is 0.1, and has to be text"),
        (LINES, None, "it is None, and has to be text"),
        (METHODS, ("cast", "offload"), "some of 'cast', 'pieces'"),
        (METHODS, "offload", "it is 'offload', and has to be some of 'cast', 'pieces'"),
        (METHODS, 1, "some of 'cast', 'pieces'"),
        (METHODS, [["cast"]], "some of 'cast', 'pieces'"),
        (GPU, "H100", "it is 'H100', and has to be one of 'T4', 'A100-40GB'"),
    ],
)
def test_other_values_are_refused_with_those_that_can_be(
    control: Control, value: object, wanted: str
) -> None:
    with pytest.raises(ValueError, match=r"^it is .*, and has to be ") as refused:
        control.widgets("it", {"it": value})
    assert str(refused.value).endswith(wanted)


@pytest.mark.parametrize("chosen", [("cast",), ["cast"], "cast"])
def test_each_box_of_several_is_a_control_of_its_own(chosen: Any) -> None:
    boxes = METHODS.widgets("chosen", {"chosen": chosen})
    assert {name: box.description for name, box in boxes.items()} == {
        "cast": "Mixed precision",
        "pieces": "Accumulate",
    }
    boxes["pieces"].value = True
    ticked = {name: box.value for name, box in boxes.items()}
    assert METHODS.value("chosen", ticked) == ("cast", "pieces")
