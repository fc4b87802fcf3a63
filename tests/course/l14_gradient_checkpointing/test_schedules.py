"""Schedules and their simulator: what they hold, how often they run a step, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from math import comb, isqrt

import pytest

from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import (
    Action,
    Do,
    InvalidSchedule,
    Schedule,
    ScheduleSimulation,
    recompute_all,
    revolve,
    revolve_advances,
    segments,
    simulate,
    store_all,
)


def most_stored(simulation: ScheduleSimulation) -> int:
    """Slots that are needed; state 0 takes one where it is stored."""
    return max(len(moment.stored) for moment in simulation.moments)


def most_recorded(simulation: ScheduleSimulation) -> int:
    """Steps that have recorded at once."""
    return max(len(moment.recorded) for moment in simulation.moments)


@cache
def fewest_advances(steps: int, slots: int) -> int:
    """By trying every place for the next stored state (dynamic programming)."""
    if steps == 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(
        middle + fewest_advances(steps - middle, slots - 1) + fewest_advances(middle, slots)
        for middle in range(1, steps)
    )


@pytest.mark.parametrize("slots", range(1, 9))
def test_revolve_is_optimal_and_its_count_the_binomial_formula(slots: int) -> None:
    for steps in range(1, 41):
        simulation = simulate(revolve(steps, slots))
        advances = simulation.forwards - steps  # every step is recorded once besides
        assert advances == fewest_advances(steps, slots) == revolve_advances(steps, slots)
        assert most_stored(simulation) <= slots
        assert most_recorded(simulation) == 1


def test_revolve_of_a_long_chain() -> None:
    # C(8 + 4, 4) = 495 steps are the most that 8 slots reverse with 4 repetitions:
    # 4 x 495 - C(8 + 4, 9) = 1980 - 220
    assert comb(12, 4) == 495
    assert revolve_advances(495, 8) == 4 * 495 - comb(12, 9) == 1760
    assert simulate(revolve(495, 8)).forwards == 1760 + 495


def test_store_all_runs_every_step_once_and_holds_every_state() -> None:
    simulation = simulate(store_all(10))
    assert simulation.forwards == 10
    assert simulation.recomputed == 0
    assert simulation.most_states == 10 + 1  # with the input
    assert most_stored(simulation) == 0


def test_recompute_all_holds_three_states_and_runs_the_square() -> None:
    for steps in (3, 10, 30):
        simulation = simulate(recompute_all(steps))
        assert simulation.most_states == 3  # the input, a state, and the one made of it
        # step 0 runs n times, step 1 n - 1 times, ... step n - 1 once
        assert simulation.forwards == steps * (steps + 1) // 2


@pytest.mark.parametrize("root", [2, 4, 7, 10])
def test_sqrt_segments_hold_twice_the_root_and_run_less_than_twice(root: int) -> None:
    steps = root * root
    simulation = simulate(segments(steps, isqrt(steps)))
    assert simulation.most_states == 2 * root
    assert simulation.recomputed == steps - root  # the last segment is not run again
    assert most_recorded(simulation) == root


def test_the_last_segment_has_the_rest() -> None:
    # 14 // 4 = 3: segments of 3, 3, 3 and 5 steps
    simulation = simulate(segments(14, 4))
    assert most_recorded(simulation) == 5
    assert simulation.recomputed == 9
    assert most_stored(simulation) == 3


def test_one_segment_is_store_all() -> None:
    assert segments(6, 1).actions == store_all(6).actions


def test_a_moment_tells_what_is_held() -> None:
    simulation = simulate(segments(4, 2))
    # store 0, advance 0, advance 1, record 2, record 3: states 0, 2, 3, and the current one, 4
    moment = simulation.moments[5]
    assert moment.states == {0, 2, 3, 4}
    assert (moment.forwards, moment.gradient, moment.current) == (4, None, 4)
    # backward 3 begins with the loss, and ends with the gradient of state 3
    assert simulation.moments[6].gradient == 3
    assert simulation.moments[6].states == {0, 2}


def made(*actions: tuple[Do, int], steps: int = 2) -> Schedule:
    return Schedule("made by hand", steps, tuple(Action(do, index) for do, index in actions))


RECORDED = ((Do.RECORD, 0), (Do.RECORD, 1))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (made((Do.ADVANCE, 1)), "action 0 of 'made by hand', advance 1: it needs state 1 as the"),
        (made((Do.STORE, 1)), "it needs state 1 as the current one; the current one is 0"),
        (made((Do.RESTORE, 0)), r"state 0 is not stored; stored are \[\]"),
        (made((Do.FREE, 0)), "state 0 is not stored"),
        (made((Do.ADVANCE, 0), (Do.BACKWARD, 0)), "step 0 has not been recorded"),
        (made((Do.RECORD, 0), (Do.BACKWARD, 0)), "it needs state 2 as the current one"),
        (
            made(*RECORDED, (Do.BACKWARD, 0)),
            "it needs the gradient of state 1; there is that of 2",
        ),
        (made(*RECORDED, (Do.BACKWARD, 1), (Do.ADVANCE, 1)), "there is no current state"),
        (made(*RECORDED, (Do.RECORD, 2)), "the chain has only 2 steps"),
        (made(*RECORDED, (Do.BACKWARD, 1)), "ends with the gradient of state 1"),
        (
            made((Do.STORE, 0), *RECORDED, (Do.BACKWARD, 1), (Do.BACKWARD, 0)),
            r"ends with states still stored: \[0\]",
        ),
    ],
)
def test_what_does_not_hold_together_is_refused_by_action(schedule: Schedule, words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        simulate(schedule)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="a chain of 4 steps has 1 to 4 segments, not 5"):
        segments(4, 5)
    with pytest.raises(ValueError, match="slots is 1 or more, not 0"):
        revolve(4, 0)
    with pytest.raises(ValueError, match="steps is 1 or more, not 0"):
        store_all(0)


def test_planning_imports_no_torch() -> None:
    module = "vramlab_course.lessons.l14_gradient_checkpointing.checkpointing"
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
