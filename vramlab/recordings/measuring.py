"""Measure one entry on the attached GPU, real or virtual: stages, statistics, allocation trace."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from vramlab.measure import StageMeasurement
from vramlab.measure.stages import observed_by
from vramlab.recordings.entries import CONTEXT, EXPERIMENT, ZOO
from vramlab.recordings.machine import context_moments
from vramlab.recordings.trace import Trace, trace_of_history

Stacks = Literal["all", "python"]
"""Frames of the history: `all` tells the ops as well, and the backward pass's."""


@dataclass(frozen=True)
class Measured:
    """What came of one entry."""

    stages: tuple[StageMeasurement, ...] = ()
    """In the order in which they ran."""
    statistics: tuple[dict[str, int], ...] = ()
    """torch.cuda.memory_stats() at the end of each stage."""
    trace: Trace = field(default_factory=lambda: Trace(()))
    """Every event of the allocator."""
    outcome: dict[str, Any] | None = None
    """Of an experiment: `Outcome.to_dict()`."""
    moments: list[dict[str, Any]] | None = None
    """Of the context: see `context_moments`."""
    seconds: float = 0.0
    """How long it ran."""


def measure(entry: str, stacks: Stacks = "all") -> Measured:
    """Run an entry on the attached GPU; best in a process that has not used CUDA yet."""
    started = time.perf_counter()
    if entry == CONTEXT:
        moments = context_moments()
        return Measured(moments=moments, seconds=time.perf_counter() - started)
    observer = _Observer()
    outcome = None
    with _history(stacks) as history, observed_by(observer):
        if entry.startswith(EXPERIMENT):
            from vramlab import experiments

            name = entry.removeprefix(EXPERIMENT)
            parameters = experiments.get(name).conditions.parameters
            outcome = experiments.run(name, **parameters).to_dict()
        else:
            from vramlab import zoo

            zoo.run(zoo.find(entry.removeprefix(ZOO)))
    names = observer.names_of_marks()
    return Measured(
        stages=tuple(observer.measurements),
        statistics=tuple(observer.statistics),
        trace=trace_of_history(history, names),
        outcome=outcome,
        seconds=time.perf_counter() - started,
    )


@contextlib.contextmanager
def _history(stacks: Stacks) -> Iterator[list[dict[str, Any]]]:
    """Record torch's memory history; the list that is given has its entries afterwards."""
    entries: list[dict[str, Any]] = []
    torch.cuda.init()
    torch.cuda.memory._record_memory_history("all", context="alloc", stacks=stacks)
    try:
        yield entries
        gc.collect()  # what is freed only by the garbage collector is freed in the trace
        entries += torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    finally:
        torch.cuda.memory._record_memory_history(None)


class _Observer:
    """Marks the history's events by stage, and reads the statistics at each stage's end."""

    def __init__(self) -> None:
        self.measurements: list[StageMeasurement] = []
        self.statistics: list[dict[str, int]] = []
        self._mark("before")

    def stage_begins(self, name: str) -> None:
        self._mark(f"{len(self.measurements)}")

    def stage_ended(self, measurement: StageMeasurement) -> None:
        self._mark(f"after {len(self.measurements)}")
        self.measurements.append(measurement)
        stats = torch.cuda.memory_stats()
        self.statistics.append({k: v for k, v in stats.items() if type(v) is int})

    def names_of_marks(self) -> dict[str, str]:
        """What each mark stands for: stages by their unique names."""
        names = {"before": "before the first stage"}
        for number, name in enumerate(unique_names(self.measurements)):
            names |= {f"{number}": name, f"after {number}": f"after {name}"}
        return names

    def _mark(self, text: str) -> None:
        torch.cuda.memory._set_memory_metadata(text)


def unique_names(stages: list[StageMeasurement] | tuple[StageMeasurement, ...]) -> list[str]:
    """The stages' names, with a number where a name comes again."""
    seen: dict[str, int] = {}
    names = []
    for stage in stages:
        seen[stage.name] = seen.get(stage.name, 0) + 1
        again = seen[stage.name]
        names.append(stage.name if again == 1 else f"{stage.name} ({again})")
    return names
