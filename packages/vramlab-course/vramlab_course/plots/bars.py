"""Stretches of memory laid end to end in a bar, and the line where a GPU's memory ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from vramlab_course.plots import style
from vramlab_course.plots.style import Look, MemoryUnit, fits, size_label


@dataclass(frozen=True)
class BarPart:
    """One stretch of a bar."""

    name: str
    size_bytes: int
    look: Look
    labels: Sequence[str] = ()
    """What may stand on it: the first that there is room for. Empty: its size."""


def draw_bar(
    axes: Axes,
    row: int,
    parts: Iterable[BarPart],
    unit: MemoryUnit,
    plot_width_in: float,
    height: float = 0.8,
) -> set[str]:
    """Lay parts end to end; those of 0 bytes are left out. Give the names that stand on parts.

    Args:
        axes: whose x axis is in `unit`, with its limits set.
        row: the bar's place on the y axis.
        parts: from left to right.
        unit: of the x axis.
        plot_width_in: width of the axes in inches, by which labels are chosen.
        height: of the bar, where rows are 1 apart.
    """
    start = 0.0
    named = set()
    for part in parts:
        width = unit.of(part.size_bytes)
        if not width:
            continue
        axes.barh(
            row,
            width,
            left=start,
            height=height,
            color=part.look.color,
            hatch=part.look.hatch,
            edgecolor=style.INK,
            linewidth=0.6,
            label=part.name,
        )
        labels = part.labels or (size_label(part.size_bytes),)
        label = next((text for text in labels if fits(axes, text, width, plot_width_in)), "")
        if label:
            style.write_label(axes, start + width / 2, row, label, part.look, pad=1.5)
        if label.startswith(part.name) and label.endswith(size_label(part.size_bytes)):
            named.add(part.name)
        start += width
    return named


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write the names of bars, which are 1 apart, beside them: the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def draw_capacity(
    axes: Axes, capacity_bytes: int | None, unit: MemoryUnit, name: str | None = None
) -> list[Artist]:
    """Draw the line where the GPU's memory ends, if that is given; its entry in the legend."""
    if capacity_bytes is None:
        return []
    label = f"memory of the GPU: {size_label(capacity_bytes)}"
    if name is not None:
        label = f"{name}: {size_label(capacity_bytes)}"
    return [axes.axvline(unit.of(capacity_bytes), color=style.BLACK, linewidth=2, label=label)]
