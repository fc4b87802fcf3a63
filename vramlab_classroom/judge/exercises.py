"""Finds exercises: the modules in `vramlab_course.tasks`, one per exercise notebook."""

from __future__ import annotations

import importlib
import pkgutil

from vramlab.errors import VramlabError
from vramlab_classroom.judge.task import Exercise
from vramlab_course import tasks

PREFIX = "ex"
"""A module's name cannot begin with a digit: `02_pages_and_blocks` lies in `ex02_...`."""


class UnknownExerciseError(VramlabError, ValueError):
    """No exercise has that name; the message lists those there are."""


def exercise_names() -> list[str]:
    """List the exercises, in order."""
    modules = (module.name for module in pkgutil.iter_modules(tasks.__path__))
    return sorted(name.removeprefix(PREFIX) for name in modules if name.startswith(PREFIX))


def find_exercise(name: str) -> Exercise:
    """Find an exercise by its name (`02_pages_and_blocks`) or its number (`02`, `2`)."""
    for known in exercise_names():
        number = known.partition("_")[0]
        if name == known or (name.isdigit() and int(name) == int(number)):
            module = importlib.import_module(f"{tasks.__name__}.{PREFIX}{known}")
            exercise: Exercise = module.EXERCISE
            return exercise
    known_names = ", ".join(exercise_names())
    raise UnknownExerciseError(f"there is no exercise {name!r}; there are {known_names}")
