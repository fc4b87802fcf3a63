"""What all exercises have in common."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.task import Exercise, Fix, Workshop
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
