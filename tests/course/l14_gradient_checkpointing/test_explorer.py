"""The schedule player: counters come from what was executed, and the controls follow each other."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_formulas import (
    linear_sizes,
    moments_bytes,
)
from vramlab_course.lessons.l14_gradient_checkpointing.explorer import (
    BATCH,
    STRATEGIES,
    WIDTH,
    checkpointing_explorer,
    play_schedule,
)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_counters_are_those_of_the_simulated_schedule(strategy: str) -> None:
    play = play_schedule(strategy, 9, 3)
    predicted = moments_bytes(play.simulation.schedule, linear_sizes(BATCH, WIDTH))
    for number, moment in enumerate(play.simulation.moments):
        assert play.forwards_until(number) == moment.forwards
        assert play.held_bytes(number) == (predicted[number - 1][0] if number else 0)
        assert play.peak_bytes(number) == max((most for _, most in predicted[:number]), default=0)
    assert play.forwards == play.simulation.forwards


def test_the_slider_of_actions_follows_the_schedule() -> None:
    explorer = checkpointing_explorer("store all", steps=4)
    moment = explorer.controls["moment"]
    assert moment.max == 8  # four recorded, four gone back
    moment.value = 8
    assert "After backward 0" in explorer.output.value
    explorer.controls["strategy"].value = "recompute all"
    # store, free, 3 restores, 4 records, 4 times back, and 3 + 2 + 1 advances
    assert moment.max == 1 + 1 + 3 + 4 + 4 + 6
    explorer.controls["steps"].value = 1
    assert moment.max == moment.value == 4
    assert 'role="alert"' not in explorer.output.value


def test_the_play_button_moves_the_slider() -> None:
    explorer = checkpointing_explorer(steps=4)
    play = explorer.box.children[1].children[-1]
    play.value = 3
    assert explorer.controls["moment"].value == 3
    assert "action 3" in explorer.output.value
