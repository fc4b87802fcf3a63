"""Experiments to record: those of every package that names some by an entry point.

The group is `vramlab.experiments`. What an entry point names is `RecordableExperiments`: the
course's is the module `vramlab_course.experiments`. Without the course there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

GROUP = "vramlab.experiments"


class RecordableOutcome(Protocol):
    """What came of an experiment."""

    def to_dict(self) -> dict[str, Any]:
        """Give it as what JSON can carry."""


class RecordableConditions(Protocol):
    """Under which conditions an experiment is recorded."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters that it is run with."""


class RecordableExperiment(Protocol):
    """One of them."""

    @property
    def conditions(self) -> RecordableConditions:
        """Under which it is recorded."""


class RecordableExperiments(Protocol):
    """Experiments that have names."""

    def names(self) -> tuple[str, ...]:
        """List them, in the order in which they are recorded."""

    def get(self, name: str) -> RecordableExperiment:
        """Find one by its name."""

    def run(self, name: str, **parameters: Any) -> RecordableOutcome:
        """Run one on the attached GPU."""


@cache
def all_experiments() -> tuple[RecordableExperiments, ...]:
    """Import the experiments of all packages."""
    return tuple(entry.load() for entry in entry_points(group=GROUP))


def names() -> tuple[str, ...]:
    """List the names of all experiments, in the order in which they are recorded."""
    return tuple(name for package in all_experiments() for name in package.names())


def run_for_recording(name: str) -> RecordableOutcome:
    """Run an experiment on the attached GPU, with the parameters that it is recorded with.

    Raises:
        KeyError: no package has an experiment of that name.
    """
    for package in all_experiments():
        if name in package.names():
            return package.run(name, **package.get(name).conditions.parameters)
    raise KeyError(f"no experiment {name!r}; there are: {', '.join(names()) or 'none'}")
