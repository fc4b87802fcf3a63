"""The hidden cases of a task: drawn until no mistake that has a name passes all of them.

A mistake that is right in every case would earn the points, and its feedback would be lost. And a
mistake costs every learner the same: of several draws from a seed, the first one counts in which
each named mistake earns what it earns most often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from itertools import chain
from random import Random
from typing import Any

from vramlab_classroom.judge.mistakes import Mistake, Mistakes, rounded_up
from vramlab_classroom.judge.partial_credit import partial_points
from vramlab_classroom.judge.task import Config, Diagnose, Predict, Task
from vramlab_classroom.judge.verdict import CaseResult

MOST_DRAWS = 50
"""Of hidden cases; a mistake that passes so many is right wherever the task looks."""

SEEDS = 30
"""As many are tried; and as many say what a mistake earns most often."""

_usual: dict[int, tuple[Task, list[float]]] = {}
"""By the `id` of a task: that task, and what its mistakes earn most often."""

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


def reference(task: Task) -> Callable[..., object] | None:
    """Return the reference answer to a prediction, if it takes a case and nothing besides."""
    if not isinstance(task, Predict) or not isinstance(task.mistakes, Mistakes):
        return None
    try:
        signature(task.mistakes.reference).bind(**task.visible[0])
    except TypeError:
        return None
    return task.mistakes.reference


def fair_seed(task: Task, seed: str) -> str:
    """Return a seed made from another, whose cases let each mistake earn what it usually earns.

    If none of `SEEDS` does for all mistakes, the one that does for most.
    """
    if reference(task) is None:
        return seed
    if id(task) not in _usual:
        drawn = zip(*(earned(task, f"usual/{number}") for number in range(SEEDS)), strict=True)
        _usual[id(task)] = task, [Counter(points).most_common(1)[0][0] for points in drawn]
    _, usual = _usual[id(task)]
    best, most = seed, -1
    for number in range(SEEDS):
        candidate = f"{seed}/{number}" if number else seed
        points = earned(task, candidate)
        agree = sum(one == other for one, other in zip(points, usual, strict=True))
        if agree > most:
            best, most = candidate, agree
        if most == len(usual):
            break
    return best


def earned(task: Task, seed: str) -> list[float]:
    """Return what each named mistake earns with the cases of a seed, and sizes that are rounded."""
    answer = reference(task)
    assert answer is not None
    assert isinstance(task, Predict)
    drawn = draw(task, Random(seed), lambda case: {"arguments": case, "truth": answer(**case)})
    cases = [*task.visible, *(case for case in drawn if case not in task.visible)]
    truths = [answer(**case) for case in cases]

    def results(mistake: Mistake) -> Iterator[CaseResult]:
        for case, truth in zip(cases, truths, strict=True):
            said = mistake.answer(**case)
            yield CaseResult(case, said == truth, f"{said}", "", visible=case in task.visible)

    rounded = Mistake("", lambda **case: rounded_up(int(str(answer(**case)))))
    mistakes = [*task.mistakes, rounded]
    return [partial_points(task, [*results(each)], in_words=False) for each in mistakes]
