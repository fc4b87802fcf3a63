"""What the cells of an exercise call in a learner's own kernel: `check` and `evidence`.

These give feedback. They do not decide: when a class is graded, the judge reads the notebook's
cells itself, and nothing that happened in this kernel counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.getipython import get_ipython

from vramlab.errors import VramlabError
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.judge import shared_judge
from vramlab_classroom.judge.verdict import Grade, WrongAnswer


def check(exercise: str, task: str) -> None:
    """Judge the answer to a task on its visible cases, and print the verdict.

    The answer is the source of the last executed cell that defines it.

    Args:
        exercise: name of the exercise, such as "02_pages_and_blocks".
        task: name of the task: of the function or the value that is asked for.

    Raises:
        WrongAnswer: the task is not solved; the message says what is wrong.
    """
    shell = get_ipython()
    if shell is None or shell.history_manager is None:
        raise VramlabError("check() reads the cells of a notebook; in a shell: vramlab check 02")
    verdict = shared_judge().judge(
        find_exercise(exercise), task, shell.history_manager.input_hist_raw
    )
    if verdict.grade is not Grade.PASSED:
        raise WrongAnswer(verdict)
    print(verdict)


def evidence(exercise: str, task: str) -> Mapping[str, Any]:
    """Return the evidence of a Diagnose task's first visible case.

    Returns:
        What the learner's function is called with, by argument name.
    """
    found = find_exercise(exercise)
    arguments: Mapping[str, Any] = shared_judge().arguments(found, task)
    return arguments
