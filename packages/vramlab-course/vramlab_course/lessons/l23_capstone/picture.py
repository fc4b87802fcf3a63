"""A training plan: what one GPU holds at its peak, estimated and simulated, beside its memory.

The CUDA context is in no bar: the line is the memory beside it, as in the planner's tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramlab.measure import Category
from vramlab.planner import CATEGORIES, Estimate, Plan, Report, estimate
from vramlab.planner.estimate import available_bytes
from vramlab.planner.events import GATHERED, REMAINDERS
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.stacks import Rows, draw_stacks
from vramlab_course.plots.style import (
    CACHED_LOOK,
    CATEGORY_LOOKS,
    GATHERED_LOOK,
    Look,
)

_REST = "all else"
_LOOKS = {
    **{name: CATEGORY_LOOKS[Category(name)] for name in CATEGORIES if name != GATHERED},
    GATHERED: GATHERED_LOOK,
    _REST: Look("white", "xx"),
    REMAINDERS: CACHED_LOOK,
}
_TOLD_APART = ("parameters", "optimizer states", "inputs", "workspaces")
"""What a simulation tells apart for sure; gradients and gathered parameters can look alike."""


def draw_plan(found: Report) -> Picture:
    """Draw the peak of the rank that holds most; a second bar shows the simulation if it fitted."""
    return _draw(_rows(found), _title(found), available_bytes(found.plan))


def draw_plans(plans: Mapping[str, Plan], *, title: str) -> Picture:
    """Draw the estimated peaks of plans for the same kind of GPU, a bar for each.

    Args:
        plans: from top to bottom, by name.
        title: the picture's title.

    Raises:
        ValueError: there are none, or for GPUs of different sizes.
    """
    sizes = {available_bytes(plan) for plan in plans.values()}
    if len(sizes) != 1:
        raise ValueError(f"{len(plans)} plans for GPUs of {len(sizes)} sizes in one picture")
    rows = {name: _estimated(estimate(plan)) for name, plan in plans.items()}
    return _draw(rows, title, sizes.pop())


def _draw(rows: Rows, title: str, capacity_bytes: int) -> Picture:
    return draw_stacks(
        rows,
        title=title,
        capacity_bytes=capacity_bytes,
        capacity_name="memory beside the CUDA context",
        looks=_LOOKS,
    )


def _title(found: Report) -> str:
    return f"One GPU at its peak, in {found.estimate.peak.name.replace(': ', ', ')}"


def _rows(found: Report) -> dict[str, dict[str, int]]:
    rows = {"estimated": _estimated(found.estimate)}
    simulation = found.simulation
    if simulation is not None and simulation.fits:
        known = {name: simulation.bytes_by_category.get(name, 0) for name in _TOLD_APART}
        rows["simulated"] = {
            **known,
            _REST: simulation.blocks_bytes - sum(known.values()),
            REMAINDERS: simulation.unsplit_remainder_bytes,
        }
    return rows


def _estimated(found: Estimate) -> dict[str, int]:
    return dict(found.bytes_by_category)
