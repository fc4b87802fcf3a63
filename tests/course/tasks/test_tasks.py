"""What all exercises have in common."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from random import Random
from typing import Any

import pytest

from vramlab_classroom.judge import hidden_cases, jobs, judge
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.mistakes import Mistake, Mistakes
from vramlab_classroom.judge.task import Config, Diagnose, Exercise, Fix, Predict, Task, Workshop
from vramlab_classroom.judge.tries import Try
from vramlab_course.tasks.building import Building
from vramlab_course.tasks.repair import Repair

pytestmark = pytest.mark.long

READ_ALL = """
import sys
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
tasks = [task for name in exercise_names() for task in find_exercise(name).tasks]
assert len(tasks) > 90
print(*{"torch", "transformers", "vramlab.gpu", "vramlab_course.experiments"} & set(sys.modules))
"""


def test_exercises_are_read_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", READ_ALL], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.fixture(params=exercise_names())
def exercise(request: pytest.FixtureRequest) -> Exercise:
    return find_exercise(request.param)


def test_every_repair_is_tried_by_the_harness(exercise: Exercise) -> None:
    for task in exercise.tasks:
        assert not isinstance(task, Fix) or isinstance(task.trial, Repair), task.name
        assert isinstance(task, Workshop) == isinstance(getattr(task, "trial", None), Building)


def reference(task: Task) -> Callable[..., object] | None:
    """The reference answer to a prediction, if it takes a case and nothing besides."""
    if not isinstance(task, Predict) or not isinstance(task.mistakes, Mistakes):
        return None
    try:
        signature(task.mistakes.reference).bind(**task.visible[0])
    except TypeError:
        return None
    return task.mistakes.reference


def tried(mistake: Mistake, measured: Sequence[Mapping[str, Any]]) -> list[Try]:
    """The answers that a mistake leads to, one for each case."""
    answers = [mistake.answer(**each["arguments"]) for each in measured]
    return [
        Try(each["arguments"], {"type": type(answer).__name__, "value": answer}, each["truth"])
        for each, answer in zip(measured, answers, strict=True)
    ]


def test_mistakes_answer_as_asked_and_none_passes_the_visible_cases(exercise: Exercise) -> None:
    """And each is named, by its own words or by those of one that answers the same."""
    for task in exercise.tasks:
        if isinstance(task, Predict | Diagnose):
            measured = [jobs.measure(task, case) for case in task.visible]
            for case in measured:
                answers = [mistake.answer(**case["arguments"]) for mistake in task.mistakes]
                assert {type(case["truth"])}.issuperset(map(type, answers)), task.name
            assert hidden_cases.passing(task.mistakes, measured) == [], task.name
            for mistake in task.mistakes:
                told = judge._explain(task, tried(mistake, measured), ())
                assert told in {each.message for each in task.mistakes}, task.name
            if (answer := reference(task)) is not None:
                assert all(answer(**each["arguments"]) == each["truth"] for each in measured)


SEEDS = 200


def test_no_mistake_passes_hidden_cases(exercise: Exercise) -> None:
    """By the reference answer, where there is one for what the case says."""
    for task in exercise.tasks:
        if (answer := reference(task)) is not None:

            def measure(case: Config, answer: Any = answer) -> dict[str, Any]:
                return {"arguments": case, "truth": answer(**case)}

            for seed in range(SEEDS):
                cases = hidden_cases.draw(task, Random(seed), measure)
                found = hidden_cases.passing(task.mistakes, [measure(case) for case in cases])
                assert found == [], (task.name, seed)
