"""Finds exercises: one module each, in the packages that say that they have some.

A package says so by an entry point of the group `vramlab_classroom.exercises`; the course's are
`vramlab_course.lessons` and `vramlab_course.workshops`. The module `tasks` of the package
`l02_pages_and_blocks` there holds the exercise of the notebook `02_pages_and_blocks` as `EXERCISE`.
A workshop is one module, called as its notebook is, such as `workshop_f_chunked_cross_entropy`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from importlib.metadata import entry_points

from vramlab.errors import VramlabError
from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.sandbox.packages import EXERCISES

PREFIX = "l"
"""A name cannot begin with a digit in Python: `02_pages_and_blocks` lies in `l02_...`."""

TASKS = "tasks"
"""The module of a lesson's room that holds its exercise."""

WORKSHOP = "workshop_"
"""Begins the names of workshops, and of their modules; their letter follows."""


class UnknownExerciseError(VramlabError, ValueError):
    """No exercise has that name; the message lists those there are."""


@cache
def _modules() -> dict[str, str]:
    """Return the module of each exercise, by the name of its notebook."""
    modules = {}
    for entry in entry_points(group=EXERCISES):
        package = entry.load()
        for module in pkgutil.iter_modules(package.__path__):
            name = f"{package.__name__}.{module.name}"
            if module.name.startswith(WORKSHOP):
                modules[module.name] = name
            elif re.match(rf"{PREFIX}\d+_", module.name):
                modules[module.name.removeprefix(PREFIX)] = f"{name}.{TASKS}"
    return dict(sorted(modules.items()))


def exercise_names() -> list[str]:
    """List the exercises, in order; workshops come last."""
    return list(_modules())


def find_exercise(name: str) -> Exercise:
    """Find an exercise by its name (`02_pages_and_blocks`), its number (`02`, `2`) or letter (`F`).

    Raises:
        UnknownExerciseError: there is none.
    """
    for known, module in _modules().items():
        if name == known or is_short_for(name, known):
            exercise: Exercise = importlib.import_module(module).EXERCISE
            return exercise
    known_names = list(_modules())
    if not known_names:
        raise UnknownExerciseError("there are no exercises: install vramlab with its course")
    letters = [_short(known) for known in known_names if known.startswith(WORKSHOP)]
    numbers = [_short(known) for known in known_names if not known.startswith(WORKSHOP)]
    raise UnknownExerciseError(
        f"there is no exercise {name!r}: use a number from {numbers[0]} to {numbers[-1]}"
        + (f", or a letter from {letters[0]} to {letters[-1]} for a workshop" if letters else "")
    )


def _short(name: str) -> str:
    return name.removeprefix(WORKSHOP).partition("_")[0]


def is_short_for(word: str, name: str) -> bool:
    """Return whether a word is an exercise's number (`02`, `2`) or a workshop's letter."""
    if name.startswith(WORKSHOP):
        return word.lower() == _short(name)
    number = _short(name)
    return all(each.isascii() and each.isdigit() for each in (word, number)) and (
        int(word) == int(number)
    )
