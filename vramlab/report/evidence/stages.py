"""Stages of a program that its report shows: training steps, evaluation, saving, loading.

    with vramlab.stage("evaluation"):
        evaluate(model)

Outside vramlab, for example on a real GPU, `stage()` is a no-op, so you can leave it in. This
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True)
class StageUse:
    """What a stage did to one GPU, the time when it held most."""

    name: str
    """What the program does in it."""
    count: int
    """How often it ran."""
    before_bytes: int
    """Allocated when it began."""
    peak_bytes: int
    """Allocated at most while it ran."""
    after_bytes: int
    """Allocated when it ended."""

    @property
    def extra_bytes(self) -> int:
        """What it held for a while, beside what was there before or stayed."""
        return self.peak_bytes - max(self.before_bytes, self.after_bytes)


class StagePeaks:
    """Stages of one GPU, by name. A stage within another one counts for that one, too."""

    def __init__(self) -> None:
        self._open: list[StageUse] = []
        self._ended: dict[str, StageUse] = {}

    def begin(self, name: str, allocated_bytes: int) -> None:
        """Note that a stage begins."""
        self._open.append(StageUse(name, 1, allocated_bytes, allocated_bytes, allocated_bytes))
        self._peak_bytes = allocated_bytes

    def note(self, allocated_bytes: int) -> None:
        """Note what is allocated now."""
        if self._open and allocated_bytes > self._peak_bytes:
            self._peak_bytes = allocated_bytes
            self._open[-1] = replace(self._open[-1], peak_bytes=allocated_bytes)

    def end(self, allocated_bytes: int) -> None:
        """Note that the innermost stage ends."""
        ended = replace(self._open.pop(), after_bytes=allocated_bytes)
        self._keep(ended)
        if self._open:
            outer = self._open[-1]
            self._peak_bytes = max(outer.peak_bytes, ended.peak_bytes)
            self._open[-1] = replace(outer, peak_bytes=self._peak_bytes)

    def uses(self) -> tuple[StageUse, ...]:
        """Return each stage, in the order of first ends; one that goes on counts as it is now."""
        ended = dict(self._ended)
        for stage in self._open:
            ended.setdefault(stage.name, stage)
        return tuple(ended.values())

    def _keep(self, stage: StageUse) -> None:
        before = self._ended.get(stage.name)
        if before is None:
            self._ended[stage.name] = stage
            return
        highest = max(before, stage, key=lambda use: use.peak_bytes)
        self._ended[stage.name] = replace(highest, count=before.count + 1)


class StageWatch(Protocol):
    """Who watches a program's GPUs."""

    def stage_begins(self, name: str) -> None:
        """Hear that a stage begins."""

    def stage_ends(self) -> None:
        """Hear that the innermost stage ends."""


watching: list[StageWatch] = []
"""Who does, now."""


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name what the body of the with statement does, for the report.

    Args:
        name: such as `evaluation`. For `training step`, `evaluation`, `saving` and `loading` the
            report has advice.
    """
    told = tuple(watching)
    for watch in told:
        watch.stage_begins(name)
    try:
        yield
    finally:
        for watch in told:
            watch.stage_ends()
