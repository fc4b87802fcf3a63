"""Stands in for the workers where a test is about what becomes of their work.

python inline_workers.py ARGUMENTS runs `vramlab grade` with it, to be killed.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from hashlib import sha256
from typing import Any

import pytest

from vramlab import cli
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict
from vramlab_classroom.run import run
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.reading import Unreadable, clean
from vramlab_classroom.run.worker import MarkingConditions, MarkingWork

SLOW_SECONDS = 0.05


class InlineWorkers:
    """Does the work at once, in this process."""

    slots = 1

    def __init__(self, count: int | None = None, address: str | None = None) -> None:
        self._done: deque[tuple[Hashable, Any]] = deque()

    @property
    def pending(self) -> int:
        return len(self._done)

    def begin(
        self,
        name: Hashable,
        function: Callable[..., Any],
        *arguments: object,
        urgent: bool = False,
    ) -> None:
        try:
            result = function(*arguments)
        except Exception as error:
            result = error
        self._done.append((name, result))

    def next(self) -> tuple[Hashable, Any]:
        return self._done.popleft()

    def close(self) -> None:
        pass


MARKED: list[str] = []
"""Students that `mark_by_name` has marked."""


def mark_by_name(work: MarkingWork, conditions: MarkingConditions) -> dict[str, Any]:
    """Pass every task of a notebook that can be read, except where the student's name says more."""
    MARKED.append(work.student)
    if work.student.startswith("crash"):
        raise RuntimeError("out of order")
    case = CaseResult({"size": 1}, True, "1", "1", visible=True)
    verdicts = [
        Verdict(task.name, task.points, Grade.PASSED, "", (case,))
        for task in find_exercise(work.assignment).tasks
    ]
    if work.student.startswith("open"):
        first = verdicts[0]
        verdicts[0] = Verdict(first.task, first.points, Grade.UNGRADED, "Its process ended.")
    facts = (work.student, work.assignment, sha256(work.notebook).hexdigest())
    try:
        return Marked(*facts, verdicts=tuple(verdicts), notebook=clean(work.notebook)).as_data()
    except Unreadable as error:
        return Marked(*facts, problem=f"{error}").as_data()


def page_of_name(order: Mapping[str, Any], conditions: MarkingConditions) -> str:
    """Make a page of hardly anything."""
    return f"<html>{order['resources']['nbgrader']['student']}</html>"


def install(patch: pytest.MonkeyPatch) -> None:
    """Let `grade` use all this."""
    MARKED.clear()
    patch.setattr(run, "Workers", InlineWorkers)
    patch.setattr(run, "mark", mark_by_name)
    patch.setattr(run, "page", page_of_name)


def _slowly(work: MarkingWork, conditions: MarkingConditions) -> dict[str, Any]:
    time.sleep(SLOW_SECONDS)
    return mark_by_name(work, conditions)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as context:
        install(context)
        context.setattr(run, "mark", _slowly)
        sys.exit(cli.main(["grade", "--sandbox", "limits", *sys.argv[1:]]))
