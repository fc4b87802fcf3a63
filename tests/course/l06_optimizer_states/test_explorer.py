"""The optimizers' explorer, against what the optimizers are known to keep and to take."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab.units import MIB
from vramlab_course.lessons.l06_optimizer_states.explorer import (
    IMPLEMENTATIONS,
    measure_steps,
)

WEIGHT_BYTES = 4 * MIB  # 1024 * 1024 * 4 B
LAYERS = 4


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("optimizer", "states"), [("SGD", 0), ("SGD with momentum", 1), ("Adam", 2), ("AdamW", 2)]
)
def test_states_come_with_the_first_step_and_stay(
    optimizer: str, states: int, implementation: str
) -> None:
    with VirtualGPU("T4"):
        memory, timeline = measure_steps(optimizer, implementation, 1024, LAYERS)
    # fused Adam counts its steps on the GPU: a block of 512 B for each weight
    counters_bytes = 512 * LAYERS if implementation == "fused" and states == 2 else 0
    kept_bytes = states * LAYERS * WEIGHT_BYTES + counters_bytes
    assert memory.first_step.growth_bytes == kept_bytes
    assert memory.second_step.growth_bytes == 0
    assert timeline.unexplained_bytes == 0


@pytest.mark.parametrize(
    ("optimizer", "implementation", "weights"),
    [
        ("AdamW", "loop", 3),  # the quotient of the layer before, a root and its quotient
        ("AdamW", "foreach", LAYERS),  # the roots of all
        ("AdamW", "fused", 0),
        ("SGD with momentum", "loop", 0),
        ("SGD with momentum", "foreach", 0),
    ],
)
def test_what_a_step_takes_while_it_runs(optimizer: str, implementation: str, weights: int) -> None:
    with VirtualGPU("T4"):
        memory, _ = measure_steps(optimizer, implementation, 1024, LAYERS)
    assert memory.step_extra_bytes == weights * WEIGHT_BYTES
