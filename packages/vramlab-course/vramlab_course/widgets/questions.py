"""What lessons ask their learners to predict: a question, its hints and its known mistakes.

    PREDICTIONS = {
        "forward": Question(
            "How much memory does the first forward pass add?",
            unit="MiB",
            hint="Which outputs does autograd save for backward, and which one has a name?",
            mistakes={
                "You left out y: its name keeps it alive.": lambda measured: measured - 80 * MIB,
                "You counted the batch too. It was allocated before.": 200 * MIB,
            },
        ),
    }

Each lesson's are in the module `predictions` of its folder in `vramlab_course.lessons`, out of the
notebook's sight; the notebook calls `predict("05.forward")`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType
from typing import Any

from vramlab_course.widgets.guesses import UNITS, Mistakes

MEASURED = "measured"
"""The parameter of a mistake's function that gets the answer: bytes, or a count."""
ALLOCATED = "allocated"
"""The parameter that gets the bytes that were allocated when the question was asked."""


@dataclass(frozen=True)
class Question:
    """A question that a lesson asks.

    Attributes:
        text: what will be measured.
        unit: of the answer: B, KiB, MiB, GiB (powers of two), KB, MB or GB; or one of `COUNTS`.
        hint: a question that leads to the answer, or several, shown one by one.
        mistakes: the feedback for each known mistake, and what the mistake leads to: bytes (a
            number, where something is counted), or a function that returns them. Its parameters
            are `measured`, `allocated`, and values that the notebook passes to `predict`. Wrong
            units and values of torch.cuda's other counters are recognized without being listed.

    Raises:
        ValueError: the unit is unknown.
        TypeError: a mistake leads neither to a number nor to a function.
    """

    text: str
    unit: str = "MiB"
    hint: str | tuple[str, ...] = ()
    mistakes: Mapping[str, float | Callable[..., float]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unknown unit {self.unit!r}; known: {', '.join(UNITS)}")
        for words, leads_to in self.mistakes.items():
            if not callable(leads_to) and not isinstance(leads_to, (int, float)):
                raise TypeError(
                    f"the mistake {words!r} leads to {leads_to!r}: give bytes, or a function that "
                    "returns them"
                )

    @property
    def hints(self) -> tuple[str, ...]:
        """All hints, in their order."""
        return (self.hint,) if isinstance(self.hint, str) else self.hint

    @property
    def needs(self) -> frozenset[str]:
        """The names of the values that the notebook passes."""
        functions = filter(callable, self.mistakes.values())
        names = {name for each in functions for name in inspect.signature(each).parameters}
        return frozenset(names - {MEASURED, ALLOCATED})

    def mistakes_with(self, values: Mapping[str, Any]) -> Mistakes:
        """Return the mistakes as numbers, or as functions of the measured value alone.

        Args:
            values: what the functions' parameters other than `measured` stand for.
        """
        return {
            words: _of_measured(leads_to, values) if callable(leads_to) else leads_to
            for words, leads_to in self.mistakes.items()
        }


def find(key: str) -> Question:
    """Return the question with a key such as '05.forward'.

    Raises:
        ValueError: no lesson asks it; the message names the nearest keys.
    """
    number, _, name = key.partition(".")
    asked = of_lesson(number) if number in _modules() else {}
    if name in asked:
        return asked[name]
    known = [f"{number}.{each}" for each in asked] or keys()
    nearest = get_close_matches(key, known, n=3) or known
    raise ValueError(f"no prediction {key!r}; the nearest are {', '.join(map(repr, nearest[:3]))}")


def keys() -> list[str]:
    """Return the keys of all questions, lesson by lesson."""
    return [f"{number}.{name}" for number in sorted(_modules()) for name in of_lesson(number)]


def of_lesson(number: str) -> Mapping[str, Question]:
    """Return the questions of a lesson such as '05', by their names."""
    questions: Mapping[str, Question] = importlib.import_module(_modules()[number]).PREDICTIONS
    return questions


@cache
def _modules() -> dict[str, str]:
    """Map each lesson's number to the module of its predictions, without importing any."""
    lessons = importlib.import_module("vramlab_course.lessons")  # by name: lessons import widgets
    rooms = (room.name for room in pkgutil.iter_modules(lessons.__path__) if room.ispkg)
    return {room[1:3]: f"{lessons.__name__}.{room}.predictions" for room in rooms}


def _of_measured(
    function: Callable[..., float], values: Mapping[str, Any]
) -> Callable[[float], float]:
    names = inspect.signature(function).parameters

    def leads_to(measured: float) -> float:
        given = {**values, MEASURED: measured}
        return function(**{name: given[name] for name in names})

    return leads_to
