"""Named amounts of memory laid end to end in one bar, if need be against a GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.artist import Artist

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.bars import BarPart, draw_bar, draw_capacity
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import MemoryUnit, size_label

_PLOT_WIDTH_IN = 8.6  # what is left of a picture's width beside the margins


def draw_stack(
    parts: Mapping[str, int] | Sequence[BarPart],
    *,
    title: str,
    capacity_bytes: int | None = None,
    sums: str = "",
    of: Category | str | None = None,
) -> Picture:
    """Draw amounts of memory end to end.

    Args:
        parts: bytes by name, or parts with looks of their own. Those of 0 bytes are left out.
        title: the picture's title.
        capacity_bytes: the GPU's memory, drawn as a line if given.
        sums: what stands at the axis instead of the sum of all parts.
        of: what all parts belong to, if that is one category: they have tints of its colour then.
    """
    drawn = _parts(parts, of)
    total_bytes = sum(part.size_bytes for part in drawn)
    longest_bytes = max(total_bytes, capacity_bytes or 0) or 1
    unit = MemoryUnit.for_axis(longest_bytes)
    with style.house_style():
        rows_of_legend = -(-(len(drawn) + (capacity_bytes is not None)) // 3)
        picture = new_picture(1.45 + 0.2 * rows_of_legend)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        axes.set_xlim(0, unit.of(longest_bytes) * 1.02)
        named = draw_bar(axes, 0, drawn, unit, _PLOT_WIDTH_IN)
        handles: list[Artist] = [
            part.look.patch(f"{part.name}: {size_label(part.size_bytes)}")
            for part in drawn
            if part.name not in named
        ]
        handles += draw_capacity(axes, capacity_bytes, unit)
        axes.set_xlabel(f"{unit.name} ({sums or f'{size_label(total_bytes)} in all'})")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        picture.legend(handles=handles, loc="outside lower left", ncols=3)
    picture.alt = describe_stack(parts, title=title, capacity_bytes=capacity_bytes)
    return picture


def describe_stack(
    parts: Mapping[str, int] | Sequence[BarPart],
    *,
    title: str,
    capacity_bytes: int | None = None,
) -> str:
    """Describe what `draw_stack` draws."""
    drawn = _parts(parts)
    total_bytes = sum(part.size_bytes for part in drawn)
    listed = ", ".join(f"{part.name} {short_size(part.size_bytes)}" for part in drawn)
    of_capacity = f" of {short_size(capacity_bytes)}" if capacity_bytes is not None else ""
    return f"{title}: {short_size(total_bytes)}{of_capacity}. {listed}."


def _parts(
    parts: Mapping[str, int] | Sequence[BarPart], of: Category | str | None = None
) -> list[BarPart]:
    if isinstance(parts, Mapping):
        names = list(parts)
        looks = style.looks_for(names) if of is None else style.tints_of(of, names)
        parts = [BarPart(name, size_bytes, looks[name]) for name, size_bytes in parts.items()]
    return [
        replace(part, labels=(f"{part.name} {size}", f"{part.name}\n{size}", part.name))
        for part in parts
        for size in (size_label(part.size_bytes),)
        if part.size_bytes > 0
    ]
