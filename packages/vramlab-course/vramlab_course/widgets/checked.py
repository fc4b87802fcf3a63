"""The `check` of the exercises' notebooks: what is solved is written into the learner's record."""

from __future__ import annotations

from vramlab_classroom import judge
from vramlab_course.widgets import person
from vramlab_course.widgets.prediction_record import own_record


def check(exercise: str, task: str) -> None:
    """Judge the answer to a task on its visible cases, print the verdict, and note what is solved.

    Only what a person runs is noted; see `vramlab_course.widgets.course_progress`.

    Args:
        exercise: name of the exercise, such as "02_pages_and_blocks".
        task: name of the task: of the function or the value that is asked for.

    Raises:
        WrongAnswer: the task is not solved; the message says what is wrong.
    """
    judge.check(exercise, task)
    if person.is_here():
        told = own_record().add_solved(exercise, task)
        if told:
            print(told)
