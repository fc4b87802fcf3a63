"""Workshops whose ranks run in one process, one after the other: what they share as trials.

Rank 0 is drawn. Results of such a run have its `ticks`: when rank 0 began, and when it was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vramlab_course.tasks.building import BARE_T4, Building, Curves, operators
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


def of_ranks(count: int, room_bytes: int, sent: Callable[[Run], int], **others: Any) -> Building:
    """Make the trial of a workshop about what ranks send each other, each on a GPU of its own.

    Args:
        count: of ranks.
        room_bytes: what an answer may hold beyond our own program.
        sent: counts what rank 0 has sent; our own program's count is the target in steps.
        others: of `Building`.
    """
    return Building(
        gpu=BARE_T4.but(count=count),
        limit=lambda own: own.peak_bytes + room_bytes,
        steps=sent,
        most_steps=sent,
        bars=bars_of_rank_0,
        curves=held_by_rank_0,
        **others,
    )
