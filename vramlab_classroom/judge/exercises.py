"""Finds exercises: one module each, in the packages that say that they have some.

A package says so by an entry point of the group `vramlab_classroom.exercises`; the course's is
`vramlab_course.tasks`. The module `ex02_pages_and_blocks` there holds the exercise of the notebook
`02_pages_and_blocks` as `EXERCISE`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from vramlab.errors import VramlabError
from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.sandbox.packages import EXERCISES

PREFIX = "ex"
"""A module's name cannot begin with a digit: `02_pages_and_blocks` lies in `ex02_...`."""


class UnknownExerciseError(VramlabError, ValueError):
    """No exercise has that name; the message lists those there are."""


@cache
def _modules() -> dict[str, str]:
    """The module of each exercise, by the name of its notebook."""
    modules = {}
    for entry in entry_points(group=EXERCISES):
        package = entry.load()
        for module in pkgutil.iter_modules(package.__path__):
            if module.name.startswith(PREFIX):
                modules[module.name.removeprefix(PREFIX)] = f"{package.__name__}.{module.name}"
    return dict(sorted(modules.items()))


def exercise_names() -> list[str]:
    """List the exercises, in order."""
    return list(_modules())


def find_exercise(name: str) -> Exercise:
    """Find an exercise by its name (`02_pages_and_blocks`) or its number (`02`, `2`).

    Raises:
        UnknownExerciseError: there is none.
    """
    for known, module in _modules().items():
        number = known.partition("_")[0]
        if name == known or (name.isdigit() and number.isdigit() and int(name) == int(number)):
            exercise: Exercise = importlib.import_module(module).EXERCISE
            return exercise
    known_names = ", ".join(_modules()) or "none: install vramlab with its course"
    raise UnknownExerciseError(f"there is no exercise {name!r}; there are {known_names}")
