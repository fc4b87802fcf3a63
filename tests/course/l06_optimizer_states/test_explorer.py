"""The optimizers' explorer, against what the optimizers are known to keep and to take."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab.units import MIB
from vramlab_course.lessons.l06_optimizer_states.explorer import (
    IMPLEMENTATIONS,
    OPTIMIZERS,
    measure_steps,
    optimizer_explorer,
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


def test_every_optimizer_and_implementation_can_be_chosen() -> None:
    explorer = optimizer_explorer(width=64, layers=1)
    assert explorer.controls["optimizer"].options == tuple(OPTIMIZERS)
    assert explorer.controls["implementation"].options == tuple(IMPLEMENTATIONS)
    # 64 * 64 * 4 B = 16 KiB; AdamW keeps two as large
    assert "AdamW keeps 32 KiB for 16 KiB of parameters" in explorer.output.value
    explorer.controls["optimizer"].value = "SGD"
    assert "SGD keeps 0 B for 16 KiB of parameters" in explorer.output.value
    explorer.controls["layers"].value = 2
    assert "2 layers of 64, SGD, foreach" in explorer.output.value


def test_too_large_a_model_says_so_in_place() -> None:
    # 16 weights of 8192 * 8192 * 4 B = 256 MiB: 4 GiB, with gradients and states 16 GiB; T4 has 15
    explorer = optimizer_explorer(width=8192, layers=16, gpu="T4")
    assert "OutOfMemoryError" in explorer.output.value
    assert "Change a setting above to go on" in explorer.output.value
