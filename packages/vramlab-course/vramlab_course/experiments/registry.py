"""The experiments by name: what each asks, its source, and the conditions of its figures."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from vramlab.gpu import VirtualGPU
from vramlab.measure.environment import require_gpu
from vramlab_course.experiments.outcome import Outcome

_ROOMS = "vramlab_course.lessons"
"""Has a package for each lesson, whose modules that end in `experiment` register theirs."""

_SHARED = ("vramlab_course.experiments.bert", "vramlab_course.experiments.training_step")
"""Modules that register experiments and belong to several lessons."""


@dataclass(frozen=True)
class Conditions:
    """Under which conditions the published figures were made, as far as they can be known."""

    gpu: str = "A100-40GB"
    """The GPU to attach, by its name in the catalogue."""
    count: int = 1
    """How many of them."""
    torch_version: str = "2.13"
    """The PyTorch whose rules held, whichever is installed. Where a document does not say, any will
    do but 2.9 to 2.11: their cuBLASLt keeps 1 MiB that no published figure has."""
    why: str = "the figures are the same on every GPU before Hopper"
    """How we know."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What the experiment is run with."""
    prepare: Callable[[VirtualGPU], None] | None = None
    """What else has to be so on the machine, such as memory in use by others."""


@dataclass(frozen=True)
class Experiment:
    """An experiment of the documents."""

    name: str
    """Such as 'three-linear'."""
    lesson: str
    """The lesson that shows it first, such as '05'."""
    question: str
    """What it answers."""
    source: str
    """Document and section."""
    figures: tuple[str, ...]
    """Ids of the published figures that it reproduces."""
    conditions: Conditions
    """Under which they were published."""
    function: Callable[..., Outcome]
    """Runs it on the attached GPU."""


_EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    name: str,
    *,
    lesson: str,
    question: str,
    source: str,
    figures: tuple[str, ...] = (),
    conditions: Conditions | None = None,
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Register the decorated function as an experiment; the arguments are `Experiment`'s fields."""

    def register(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
        if name in _EXPERIMENTS:
            raise ValueError(f"there are two experiments named {name!r}")
        _EXPERIMENTS[name] = Experiment(
            name, lesson, question, source, figures, conditions or Conditions(), function
        )
        return function

    return register


@cache
def _register_all() -> None:
    """Import the modules that register experiments."""
    rooms = pkgutil.walk_packages(importlib.import_module(_ROOMS).__path__, f"{_ROOMS}.")
    own = (module.name for module in rooms if module.name.endswith("experiment"))
    for module in (*_SHARED, *own):
        importlib.import_module(module)


def names() -> tuple[str, ...]:
    """Return the names of all experiments, in the order of the lessons."""
    _register_all()
    return tuple(sorted(_EXPERIMENTS, key=lambda name: _EXPERIMENTS[name].lesson))


def get(name: str) -> Experiment:
    """Give the experiment of that name; KeyError with the known ones if there is none."""
    _register_all()
    try:
        return _EXPERIMENTS[name]
    except KeyError:
        raise KeyError(f"no experiment {name!r}; there are: {', '.join(names())}") from None


def run(name: str, **parameters: Any) -> Outcome:
    """Run an experiment on the attached GPU, real or virtual.

    Args:
        name: of the experiment; see `names()`.
        parameters: of the experiment's function, such as `applications=10`.

    Raises:
        KeyError: no experiment has that name.
        RuntimeError: no GPU is attached.
    """
    chosen = get(name)
    require_gpu()
    return chosen.function(**parameters)


def run_as_published(name: str) -> Outcome:
    """Run an experiment on a virtual GPU, under the conditions its figures were published under."""
    chosen = get(name)
    conditions = chosen.conditions
    with VirtualGPU(
        conditions.gpu, conditions.count, torch_version=conditions.torch_version, alloc_conf=""
    ) as gpu:
        if conditions.prepare is not None:
            conditions.prepare(gpu)
        return chosen.function(**conditions.parameters)
