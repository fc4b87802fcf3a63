"""The hidden cases of a task: drawn until no mistake that has a name passes all of them.

A mistake that is right in every case would earn the points, and nobody would be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from vramlab_classroom.judge.mistakes import Mistake
from vramlab_classroom.judge.task import Config, Diagnose, Predict, Task

MOST_DRAWS = 50
"""Of hidden cases; a mistake that passes so many is right wherever the task looks."""

Measured = Mapping[str, Any]
"""The `arguments` for the learner's function in a case, and the `truth`."""


def draw(task: Task, random: Random, measure: Callable[[Config], Measured]) -> list[Config]:
    """Draw the hidden cases of a task, and further ones for mistakes that all of those let pass.

    Args:
        task: whose cases are drawn.
        random: decides them.
        measure: gives the truth of a case, which grading needs anyway.
    """
    cases = _draw_once(task, random)
    if not cases or not isinstance(task, Predict | Diagnose):
        return cases
    waiting = passing(task.mistakes, [measure(case) for case in cases])
    for _ in range(MOST_DRAWS):
        if not waiting:
            break
        for case in _draw_once(task, random):
            left = passing(waiting, [measure(case)])
            if len(left) < len(waiting):
                cases.append(case)
                waiting = left
    return cases


def _draw_once(task: Task, random: Random) -> list[Config]:
    return [case for case in task.hidden(random) if case not in task.visible]


def passing(
    mistakes: tuple[Mistake, ...] | list[Mistake], measured: list[Measured]
) -> list[Mistake]:
    """Give the mistakes that answer every one of some measured cases right."""
    return [
        mistake
        for mistake in mistakes
        if all(mistake.answer(**case["arguments"]) == case["truth"] for case in measured)
    ]
