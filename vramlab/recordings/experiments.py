"""Experiments to record: those of every package that names some by an entry point.

The group is `vramlab.experiments`. What an entry point names is `Experiments`: the
course's is the module `vramlab_course.experiments`. Without the course there are none.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

GROUP = "vramlab.experiments"


class Experiments(Protocol):
    """Experiments that have names."""

    def names(self) -> tuple[str, ...]:
        """List them, in the order in which they are recorded."""

    def get(self, name: str) -> Any:
        """Find one: its `conditions.parameters` are what it is recorded with."""

    def run(self, name: str, **parameters: Any) -> Any:
        """Run one on the attached GPU; its outcome's `to_dict()` is what JSON can carry."""


@cache
def all_experiments() -> tuple[Experiments, ...]:
    """Import the experiments of all packages."""
    return tuple(entry.load() for entry in entry_points(group=GROUP))


def names() -> tuple[str, ...]:
    """List the names of all experiments, in the order in which they are recorded."""
    return tuple(name for package in all_experiments() for name in package.names())


def run_for_recording(name: str) -> Any:
    """Run an experiment on the attached GPU, with the parameters that it is recorded with.

    Raises:
        KeyError: no package has an experiment of that name.
    """
    for package in all_experiments():
        if name in package.names():
            return package.run(name, **package.get(name).conditions.parameters)
    raise KeyError(f"no experiment {name!r}; there are: {', '.join(names()) or 'none'}")
