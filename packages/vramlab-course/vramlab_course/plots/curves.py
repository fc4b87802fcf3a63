"""Amounts of memory as curves over a quantity, such as a sequence's length."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import MemoryUnit, size_label

Points = Sequence[tuple[float, float]]
"""(x, bytes), in the order of x."""

_STROKES = (
    ("o", "solid"),
    ("s", "dashed"),
    ("^", "dashdot"),
    ("D", "dotted"),
    ("v", (0, (5, 1))),
    ("P", (0, (3, 1, 1, 1))),
    ("X", (0, (1, 1))),
)
_MARKS = tuple((color, *stroke) for color, stroke in zip(style.LINE_COLORS, _STROKES, strict=True))
"""Colour, marker and line of each curve: each tells the curves apart on its own."""
_NAME_CHARACTERS = 22
_NAME_SHARE = 0.075
"""Of the height of the axes, for a name of a line or two."""
_LINE_SHARE = 0.042
"""Of the height of the axes, for a line of a name of more."""


def draw_curves(
    curves: Mapping[str, Points],
    *,
    title: str,
    x_label: str,
    logarithmic: bool = False,
    capacity_bytes: int | None = None,
    capacity_name: str = "memory of the GPU",
) -> Picture:
    """Draw memory over a quantity, a line with markers for each name, which stands at its end.

    Args:
        curves: points by the name of the curve; at most seven curves.
        title: the picture's title.
        x_label: what the x axis is, with its unit.
        logarithmic: both axes, with base 2: a power of x is a straight line, and its exponent the
            slope. Points at 0 bytes are left out then.
        capacity_bytes: the GPU's memory, drawn as a line if given.
        capacity_name: what that line is.

    Raises:
        ValueError: there are no points, or more curves than can be told apart.
    """
    if len(curves) > len(_MARKS):
        raise ValueError(f"{len(curves)} curves in one picture; at most {len(_MARKS)} can be drawn")
    sizes = [size_bytes for points in curves.values() for _, size_bytes in points]
    if not sizes:
        raise ValueError("there is no point to draw in any of the curves")
    largest_bytes = int(max([*sizes, capacity_bytes or 0]))
    if logarithmic:  # powers of ten below 1 are hard to read
        largest_bytes = math.isqrt(largest_bytes * int(min(filter(None, sizes), default=1)))
    unit = MemoryUnit.for_axis(largest_bytes)
    with style.house_style():
        picture = new_picture(4.2)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        for (name, points), (color, marker, line) in zip(curves.items(), _MARKS, strict=False):
            drawn = [(x, size) for x, size in points if size > 0 or not logarithmic]
            axes.plot(
                [x for x, _ in drawn],
                [size / unit.size_bytes for _, size in drawn],
                color=color,
                marker=marker,
                markersize=5,
                linestyle=line,
                label=name,
            )
        if capacity_bytes is not None:
            _draw_capacity(axes, capacity_bytes, capacity_name, unit)
        if logarithmic:
            xs = sorted({x for points in curves.values() for x, _ in points})
            _make_logarithmic(axes, xs, unit)
        else:
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
            axes.set_ylabel(unit.name)
        axes.set_xlabel(x_label)
        axes.grid(True, color=style.GREY, linewidth=0.4)
        _name_ends(axes, curves)
    picture.alt = describe_curves(curves, title=title, x_label=x_label)
    return picture


def _draw_capacity(axes: Axes, capacity_bytes: int, name: str, unit: MemoryUnit) -> None:
    words = f"{name}: {size_label(capacity_bytes)}"
    height = unit.of(capacity_bytes)
    axes.axhline(height, color=style.BLACK, linewidth=1.5, label=words)
    axes.annotate(
        words,
        (0, height),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize=style.SMALL_FONT_SIZE,
    )


def _name_ends(axes: Axes, names: Iterable[str]) -> None:
    """Write the names of curves to the right of the axes, where the curves end.

    Names that would overlap are moved, and a thin line connects them with their curves.
    """
    ends = [
        (axes.transAxes.inverted().transform(axes.transData.transform(points[-1])), name)
        for line, name in zip(axes.get_lines(), names, strict=False)
        if len(points := np.asarray(line.get_xydata()))
    ]
    ends.sort(key=lambda end: end[0][1])
    names_filled = [
        textwrap.fill(name, _NAME_CHARACTERS, break_long_words=False) for _, name in ends
    ]
    heights = _spread(
        [height for (_, height), _ in ends], [_name_share(name) for name in names_filled]
    )
    for ((x, y), _), name, height in zip(ends, names_filled, heights, strict=True):
        axes.annotate(
            name,
            (x, y),
            xycoords="axes fraction",
            xytext=(1.02, height),
            textcoords="axes fraction",
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": style.FAINT, "linewidth": 0.6, "shrinkB": 4},
        )


def _name_share(name: str) -> float:
    """How much of the axes' height a name takes."""
    return max(_NAME_SHARE, _LINE_SHARE * len(name.splitlines()))


def _spread(heights: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Move rising heights apart where names would touch, evenly up and down.

    Args:
        heights: where each name would like its middle.
        shares: how high each name is, in the same unit.
    """
    groups: list[tuple[float, list[float]]] = []  # the middle of names that touch, their shares
    for height, share in zip(heights, shares, strict=True):
        middle, group = height, [share]
        while groups and middle - groups[-1][0] < (sum(group) + sum(groups[-1][1])) / 2:
            other, others = groups.pop()
            middle = (middle * len(group) + other * len(others)) / (len(group) + len(others))
            group = others + group
        groups.append((middle, group))
    return [
        middle - sum(group) / 2 + sum(group[:number]) + group[number] / 2
        for middle, group in groups
        for number in range(len(group))
    ]


def _make_logarithmic(axes: Axes, xs: Sequence[float], unit: MemoryUnit) -> None:
    """Scale both axes: ticks on x where there are points, and on y at powers of two."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(xs, [f"{x:,.0f}" for x in xs])
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: size_label(round(value * unit.size_bytes)))


def describe_curves(curves: Mapping[str, Points], *, title: str, x_label: str) -> str:
    """Describe what `draw_curves` draws."""
    parts = "; ".join(
        f"{name}: "
        + ", ".join(f"{short_size(round(size))} at {x:,.6g}" for x, size in _some(points))
        for name, points in curves.items()
        if points
    )
    return f"{title}, over {x_label}. {parts}."


def _some(points: Points) -> Points:
    """Return the first point, one in the middle and the last."""
    return points if len(points) <= 3 else [points[0], points[len(points) // 2], points[-1]]
