"""Where the bytes are at one moment, as one stacked bar."""

from __future__ import annotations

from collections.abc import Mapping

from vramlab.measure import Breakdown
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.bars import BarPart
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.stack import describe_stack, draw_stack
from vramlab_course.plots.style import CATEGORY_LOOKS


def draw_breakdown(
    at: Breakdown,
    *,
    title: str = "Where the bytes are at the peak",
    outside: Mapping[str, int] | None = None,
    capacity_bytes: int | None = None,
) -> Picture:
    """Draw the categories, the cache and what lies outside of the allocator in one bar.

    Args:
        at: from `vramlab.measure.breakdown`.
        title: the picture's title.
        outside: bytes on the device that are not PyTorch's, such as {"CUDA context": ...}.
        capacity_bytes: the GPU's memory, drawn as a line if given.
    """
    moment = at.moment
    return draw_stack(
        _parts(at, outside or {}),
        title=title,
        capacity_bytes=capacity_bytes,
        sums=f"{short_size(moment.allocated_bytes)} allocated, "
        f"{short_size(moment.reserved_bytes)} reserved",
    )


def describe_breakdown(
    at: Breakdown,
    *,
    title: str = "Where the bytes are at the peak",
    outside: Mapping[str, int] | None = None,
    capacity_bytes: int | None = None,
) -> str:
    """Describe what `draw_breakdown` draws."""
    return describe_stack(_parts(at, outside or {}), title=title, capacity_bytes=capacity_bytes)


def _parts(at: Breakdown, outside: Mapping[str, int]) -> list[BarPart]:
    parts = [
        BarPart(str(category), size_bytes, CATEGORY_LOOKS[category])
        for category, size_bytes in at.category_bytes.items()
    ]
    parts.append(BarPart("cached, not allocated", at.moment.cached_bytes, style.CACHED_LOOK))
    parts += [BarPart(name, size_bytes, style.OUTSIDE_LOOK) for name, size_bytes in outside.items()]
    return parts
