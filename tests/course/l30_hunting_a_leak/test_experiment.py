"""What each leak keeps after a step, predicted and measured, and the curve that it makes."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab.units import MIB
from vramlab_course.lessons.l30_hunting_a_leak.experiment import held_each_step_bytes, leaks
from vramlab_course.lessons.l30_hunting_a_leak.explorer import leak_explorer, measure_steps
from vramlab_course.lessons.l30_hunting_a_leak.leaks import LEAKS


def test_every_leak_keeps_what_is_predicted() -> None:
    with VirtualGPU("T4", alloc_conf=""):
        outcome = leaks(rows=1024, steps=2)
    stages = {stage.name: stage for stage in outcome.result.stages}
    assert set(stages) == set(LEAKS)
    # A batch of 1024 x 512 x 4 B = 2 MiB. A check keeps it, what is squared, and twice four times
    # as much: GELU's input and its output; and its own number.
    assert held_each_step_bytes(1024, 512)["checks"] == 20 * MIB + 512
    for leak, each_bytes in held_each_step_bytes(1024, 512).items():
        assert stages[leak].growth_bytes == 2 * each_bytes, leak


@pytest.mark.parametrize("collect_every", [0, 4])
def test_garbage_collection_ends_a_cycle_and_nothing_else(collect_every: int) -> None:
    steps = 9
    errors = measure_steps("errors", steps, 1024, collect_every, "T4")
    hooks = measure_steps("hooks", steps, 1024, collect_every, "T4")
    masks = measure_steps("masks", steps, 1024, collect_every, "T4")
    falls = [step for step in range(2, steps + 1) if errors[step - 1] < errors[step - 2]]
    assert falls == ([4, 8] if collect_every else [])
    # A hook that the first step adds keeps something from the second step on.
    assert [after - before for before, after in zip(hooks, hooks[1:])] == [2 * MIB] * 8  # noqa: B905, RUF007
    assert masks[8] == masks[7] > masks[6]  # eight lengths


def test_the_explorer_says_when_the_gpu_is_full_or_that_it_never_is() -> None:
    assert "each step keeps 20 MiB more" in leak_explorer.view("checks", 6, 1024, 0, "T4").summary
    healthy = leak_explorer.view("none", 6, 1024, 0, "T4").summary
    assert healthy.startswith("It never holds more than")
    assert "however long" in leak_explorer.view("errors", 12, 1024, 3, "T4").summary
