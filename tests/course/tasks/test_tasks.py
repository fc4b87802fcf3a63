"""What all exercises have in common."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, Predict, attached_for
from vramlab_course.tasks.repair import Repair

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


def test_every_mistake_answers_as_the_learner_is_asked(exercise: Exercise) -> None:
    for task in exercise.tasks:
        case = task.visible[0]
        if isinstance(task, Predict):
            assert {type(mistake.answer(**case)) for mistake in task.mistakes} == {int}, task.name
        if isinstance(task, Diagnose):
            with attached_for(task.gpu, case):
                seen = task.observe(**case)
            answers = {type(mistake.answer(**seen.evidence)) for mistake in task.mistakes}
            assert answers == {type(seen.answer)}, task.name
