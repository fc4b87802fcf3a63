"""The explorer of lean optimizers, against what they are known to keep."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab_course.lessons.l16_lean_optimizers.experiment import LEAN_OPTIMIZERS
from vramlab_course.lessons.l16_lean_optimizers.explorer import (
    WHEN,
    measure_optimizer,
)

MATRIX_BYTES = 1024 * 1024 * 4


@pytest.mark.parametrize("name", LEAN_OPTIMIZERS)
def test_what_is_kept_is_as_predicted(name: str) -> None:
    with VirtualGPU("T4"):
        memory = measure_optimizer(name, (1024, 1024), 3)
    lean = LEAN_OPTIMIZERS[name]
    assert memory.weights_bytes == memory.gradients_bytes == 3 * MATRIX_BYTES
    assert memory.states_bytes == 3 * lean.state_bytes((1024, 1024)) + lean.once_bytes


def test_in_the_backward_pass_there_is_one_gradient_at_a_time() -> None:
    with VirtualGPU("T4"):
        memory = measure_optimizer("AdamW", (1024, 1024), 3, WHEN[1])
    assert memory.gradients_bytes == MATRIX_BYTES
    assert memory.states_bytes == 2 * 3 * MATRIX_BYTES
    # And one root of a second moment: foreach takes those of all its parameters at once.
    assert memory.step_extra_bytes == MATRIX_BYTES
