"""Measure one entry on the attached GPU, real or virtual: stages, statistics, allocation trace."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from vramlab.gpu.torch_internals import memory_snapshot, record_memory_history, set_memory_metadata
from vramlab.measure import StageMeasurement
from vramlab.measure.stages import observed_by
from vramlab.recordings.entries import ALLOCATOR, CONTEXT, EXPERIMENT, RULE, ZOO
from vramlab.recordings.experiments import run_for_recording
from vramlab.recordings.machine import context_moments
from vramlab.recordings.trace import Trace, TraceError, trace_of_history

Stacks = Literal["all", "python", "none"]
"""Frames of the history: `all` tells the ops as well, and the backward pass's."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one entry."""

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
    trace_error: str | None = None
    """Why there is no trace, if torch's history could not be had or understood."""
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
    torch.cuda.init()
    told = {"context": None} if stacks == "none" else {"context": "alloc", "stacks": stacks}
    record_memory_history("all", **told)
    try:
        with observed_by(observer):
            if entry.startswith(EXPERIMENT):
                outcome = run_for_recording(entry.removeprefix(EXPERIMENT)).to_dict()
            elif entry.startswith(ALLOCATOR):
                from vramlab.recordings import allocator_programs

                allocator_programs.run(entry.removeprefix(ALLOCATOR))
            elif entry.startswith(RULE):
                from vramlab.zoo import rule_calls

                rule_calls.run(entry.removeprefix(RULE))
            else:
                from vramlab import zoo

                zoo.run(zoo.find(entry.removeprefix(ZOO)))
        gc.collect()  # what only the garbage collector frees is freed in the trace
        trace, trace_error = _read_history(observer.names_of_marks())
    finally:
        record_memory_history(None)
    return Measured(
        stages=tuple(observer.measurements),
        statistics=tuple(observer.statistics),
        trace=trace,
        outcome=outcome,
        trace_error=trace_error,
        seconds=time.perf_counter() - started,
    )


def _read_history(stage_names: Mapping[str, str]) -> tuple[Trace, str | None]:
    """Return the trace, or none and why: the stages' numbers are worth keeping without it."""
    try:
        history = memory_snapshot()["device_traces"][torch.cuda.current_device()]
        return trace_of_history(history, stage_names), None
    except (RuntimeError, LookupError, TraceError) as error:
        return Trace(()), f"{type(error).__name__}: {error}"


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
        """Name what each mark stands for: stages by their unique names."""
        names = {"before": "before the first stage"}
        for number, name in enumerate(unique_names(self.measurements)):
            names |= {f"{number}": name, f"after {number}": f"after {name}"}
        return names

    def _mark(self, text: str) -> None:
        set_memory_metadata(text)


def unique_names(stages: list[StageMeasurement] | tuple[StageMeasurement, ...]) -> list[str]:
    """Return the stages' names, with a number where a name comes again."""
    seen: dict[str, int] = {}
    names = []
    for stage in stages:
        seen[stage.name] = seen.get(stage.name, 0) + 1
        again = seen[stage.name]
        names.append(stage.name if again == 1 else f"{stage.name} ({again})")
    return names
