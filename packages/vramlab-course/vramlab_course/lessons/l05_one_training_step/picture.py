"""Which tensors are alive at a few moments of a training step, as stacked bars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from vramlab.measure import Category
from vramlab.measure.categories import attribute
from vramlab.measure.timeline import Timeline
from vramlab_course.plots import draw_stacks
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

OUTPUT = "output y"
"""Drawn apart: no operation saves it, so it is a temporary by category, but a variable keeps it."""
_OUTPUT_LOOK = Look("#FFFFFF", hatch="//")


def draw_moments(timeline: Timeline, moments: Mapping[str, int], *, title: str) -> Picture:
    """Draw one bar for each moment, in bytes by category, with the model's output as a part.

    Args:
        timeline: of a training step whose forward stages are named `forward ...`.
        moments: positions in it, by the name of the moment.
        title: the picture's title.
    """
    looks = {str(category): look for category, look in CATEGORY_LOOKS.items()}
    last = str(Category.TEMPORARIES)
    temporaries = looks.pop(last)
    return draw_stacks(
        {name: moment_bytes(timeline, at) for name, at in moments.items()},
        title=title,
        looks={**looks, OUTPUT: _OUTPUT_LOOK, last: temporaries},
    )


def moment_bytes(timeline: Timeline, position: int) -> dict[str, int]:
    """Sum the bytes alive at a position by category; outputs of forward passes are apart."""
    sums: dict[str, int] = defaultdict(int)
    for block, found in zip(timeline.blocks, attribute(timeline), strict=True):
        if block.lives_at(position):
            name = str(found.category)
            if found.category is Category.TEMPORARIES and _in_forward(timeline, block.born):
                name = OUTPUT
            sums[name] += block.size_bytes
    return dict(sums)


def _in_forward(timeline: Timeline, event: int) -> bool:
    stage = timeline.at(event + 1).stage
    return bool(stage) and str(stage).startswith("forward")
