"""What is drawn of workshops whose ranks run in one process, one after the other: rank 0.

Results of such a run have its `ticks`: when rank 0 began, and when it was done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vramlab_course.tasks.building import Curves, operators
from vramlab_course.tasks.repair import Run

if TYPE_CHECKING:
    from vramlab_course.plots.workshop_run import RunBar


def bars_of_rank_0(run: Run) -> list[RunBar]:
    """Give what it has done, from tick 0 on."""
    first, last = run.results.ticks
    return [
        replace(bar, start=bar.start - first, end=bar.end - first)
        for bar in operators(run, gpu=0)
        if bar.start >= first and bar.end <= last
    ]


def held_by_rank_0(run: Run) -> Curves:
    """Give what it has held, likewise."""
    first, last = run.results.ticks
    return {"rank 0": list(enumerate(run.record.held_bytes[0][first : last + 1]))}
