"""The hidden cases of a task: drawn until no mistake that has a name passes all of them.

A mistake that is right in every case would earn the points, and its feedback would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
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

    A case that is visible, too, is among them only if no other tells a mistake.

    Args:
        task: whose cases are drawn.
        random: decides them.
        measure: gives the truth of a case, which grading needs anyway.
    """
    drawn = list(task.hidden(random))
    cases = [case for case in drawn if case not in task.visible]
    if not cases or not isinstance(task, Predict | Diagnose):
        return cases
    waiting = passing(task.mistakes, [measure(case) for case in cases])
    known = [case for case in drawn if case in task.visible]
    for case in chain(known, _more(task, random)):
        if not waiting:
            break
        left = passing(waiting, [measure(case)])
        if len(left) < len(waiting):
            cases.append(case)
            waiting = left
    return cases


def _more(task: Task, random: Random) -> Iterator[Config]:
    for _ in range(MOST_DRAWS):
        yield from (case for case in task.hidden(random) if case not in task.visible)


def passing(
    mistakes: tuple[Mistake, ...] | list[Mistake], measured: list[Measured]
) -> list[Mistake]:
    """Return the mistakes that answer every one of some measured cases right."""
    return [
        mistake
        for mistake in mistakes
        if all(mistake.answer(**case["arguments"]) == case["truth"] for case in measured)
    ]
