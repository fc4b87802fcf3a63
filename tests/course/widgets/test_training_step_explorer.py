"""The training step's explorer runs on a GPU of its own."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab_course.widgets import training_step_explorer
from vramlab_course.widgets.training_step_explorer import OPTIMIZERS, record_training

SMALL = {"batch": 64, "width": 256, "depth": 2, "optimizer": "SGD", "steps": 1, "gpu": "T4"}


def test_parameters_and_states_are_what_the_formula_says() -> None:
    # Two steps: from PyTorch 2.15 on the workspace of a product makes the first peak before Adam's.
    table = training_step_explorer.view(**SMALL | {"optimizer": "Adam", "steps": 2}).tables[0]  # type: ignore[arg-type]
    sizes = {row[0]: row[1].split("\n")[1] for row in table.rows}
    # two layers of 256 * 256 weights and 256 biases, 4 B each: 2 * 263168 = 526336 B
    assert sizes["parameters"] == "526,336 B"
    # exp_avg and exp_avg_sq; Adam's step counters stay on the host
    assert sizes["optimizer states"] == "1,052,672 B"
    assert sizes["inputs"] == "65,536 B"  # 64 * 256 * 4 B


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_is_explained_to_the_byte(optimizer: str) -> None:
    with VirtualGPU("T4"):
        timeline, failure = record_training(64, 256, 2, optimizer, 2)
    assert failure == ""
    assert timeline.unexplained_bytes == 0
    assert [stage.name for stage in timeline.stages] == [
        "model",
        *["forward", "backward", "optimizer step", "zero_grad"] * 2,
    ]
