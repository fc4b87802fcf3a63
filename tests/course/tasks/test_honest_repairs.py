"""Right repairs in many styles pass, as answers do: the language lets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from repair_programs import our_own_runs_once

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.task import Fix

__all__ = ["our_own_runs_once"]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("our_own_runs_once")]

FILES = sorted(Path(__file__).parents[1].glob("*/honest_repairs/**/*.py"))


def exercise_of(path: Path) -> str:
    """The exercise in whose room the file lies; workshops have a folder each in one room."""
    room = path.parent.parent.name
    return path.parent.name if room == "honest_repairs" else room.removeprefix("l")


def task_of(path: Path) -> Fix:
    """The `Fix` task whose name the file binds."""
    source = path.read_text()
    tasks = find_exercise(exercise_of(path)).tasks
    found = [
        task
        for task in tasks
        if isinstance(task, Fix) and any(f"\n{begin}" in source for begin in _bindings(task.name))
    ]
    (task,) = found
    return task


def _bindings(name: str) -> tuple[str, ...]:
    """How a line begins that binds a name."""
    return f"def {name}(", f"class {name}:", f"{name} ="


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{exercise_of(path)[:2]}-{path.stem}")
def test_it_passes(path: Path) -> None:
    task = task_of(path)
    replies = [jobs._trial(task, path.read_text(), case) for case in task.visible]
    assert [reply for reply in replies if "achieved" not in reply] == []


def test_there_are_two_of_each_program() -> None:
    """And one of each choice, of which there are few that are right."""
    for name in exercise_names():
        for task in find_exercise(name).tasks:
            if isinstance(task, Fix):
                least = 1 if task.is_value or task.is_plain else 2
                assert sum(task_of(path) is task for path in FILES) >= least, task.name
