"""Amounts of memory as curves over a quantity, such as a sequence's length."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes

from vramlab.units import label_size, short_size
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import MemoryUnit

Points = Sequence[tuple[float, float]]
"""(x, bytes), in the order of x."""

_MARKS = (
    (style.BLUE, "o", "solid"),
    (style.VERMILLION, "s", "dashed"),
    (style.GREEN, "^", "dashdot"),
    (style.ORANGE, "D", "dotted"),
    (style.PURPLE, "v", (0, (5, 1))),
    (style.SKY_BLUE, "P", (0, (3, 1, 1, 1))),
    (style.INK, "X", (0, (1, 1))),
)
"""Colour, marker and line of each curve: each tells the curves apart on its own."""
_HEIGHT_IN = 3.6
_MOST_MARKERS = 40
_LINE_IN = 0.14
"""Of a name beside the axes."""
_NAME_CHARACTERS = 24


def draw_curves(
    curves: Mapping[str, Points],
    *,
    title: str,
    x_label: str,
    logarithmic: bool = False,
    capacity_bytes: int | None = None,
) -> Picture:
    """Draw memory over a quantity, a line for each name, which stands at its end.

    Args:
        curves: points by the name of the curve; at most seven curves.
        title: the picture's title.
        x_label: what the x axis is, with its unit.
        logarithmic: both axes, with base 2 on x: a power of x is a straight line, and its exponent
            the slope. Points at 0 bytes are left out then.
        capacity_bytes: the GPU's memory, drawn as a line if given.

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
        picture = new_picture(_HEIGHT_IN + 0.4)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        for (name, points), (color, marker, line) in zip(curves.items(), _MARKS, strict=False):
            drawn = [(x, size) for x, size in points if size > 0 or not logarithmic]
            axes.plot(
                [x for x, _ in drawn],
                [size / unit.size_bytes for _, size in drawn],
                color=color,
                marker=marker,
                markersize=5 if len(drawn) <= _MOST_MARKERS else 0,
                linestyle=line,
                label=name,
            )
        ends = {name: points[-1] for name, points in curves.items() if points}
        if capacity_bytes is not None:
            axes.axhline(
                unit.of(capacity_bytes),
                color=style.BLACK,
                linewidth=1.5,
                label=f"memory of the GPU: {short_size(capacity_bytes)}",
            )
            last = max(x for x, _ in ends.values())
            ends[f"memory of the GPU: {label_size(capacity_bytes)}"] = (last, capacity_bytes)
        if logarithmic:
            _make_logarithmic(axes, sorted({x for points in curves.values() for x, _ in points}))
        else:
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_formatter("{x:,.6g}")
        axes.set_xlabel(x_label)
        axes.set_ylabel(unit.name)
        axes.grid(True, color=style.GREY, linewidth=0.4)
        axes.margins(x=0.02)
        _name_ends(axes, {name: (x, y / unit.size_bytes) for name, (x, y) in ends.items()})
    picture.alt = describe_curves(curves, title=title, x_label=x_label)
    return picture


def _name_ends(axes: Axes, ends: Mapping[str, tuple[float, float]]) -> None:
    """Write names right of the axes, as high as their curves end, or as close as there is room."""
    names = {name: textwrap.fill(name, _NAME_CHARACTERS) for name in ends}
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = {name: float(to_axes.transform(end)[1]) for name, end in ends.items()}
    halves = {
        name: (text.count("\n") + 1.3) * _LINE_IN / _HEIGHT_IN / 2 for name, text in names.items()
    }
    order = sorted(ends, key=lambda name: wanted[name])
    for name, height in _apart([wanted[n] for n in order], [halves[n] for n in order], order):
        x, y = ends[name]
        axes.annotate(
            names[name],
            (x, y),
            xytext=(1.02, height),
            textcoords="axes fraction",
            va="center",
            fontsize=style.SMALL_FONT_SIZE,
            linespacing=1.15,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": style.GREY,
                "linewidth": 0.8,
                "shrinkA": 2,
                "shrinkB": 4,
                "relpos": (0, 0.5),
            },
        )


def _apart(
    wanted: Sequence[float], halves: Sequence[float], names: Sequence[str]
) -> Iterable[tuple[str, float]]:
    """Give each name a height close to the one that it wants, so that no two overlap.

    All are shares of the axes' height; `wanted` ascends.
    """
    heights = list(wanted)
    for place in range(1, len(heights)):
        least = heights[place - 1] + halves[place - 1] + halves[place]
        heights[place] = max(heights[place], least)
    ceiling = 1.05
    for place in reversed(range(len(heights))):
        heights[place] = min(heights[place], ceiling - halves[place])
        ceiling = heights[place] - halves[place]
    return zip(names, heights, strict=True)


def _make_logarithmic(axes: Axes, xs: Sequence[float]) -> None:
    """Scale both axes, with ticks on x where there are points."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(xs, [f"{x:,.0f}" for x in xs])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")


def describe_curves(curves: Mapping[str, Points], *, title: str, x_label: str) -> str:
    """Say in words what `draw_curves` draws."""
    parts = "; ".join(
        f"{name}: "
        + ", ".join(f"{short_size(round(size))} at {x:,.6g}" for x, size in _some(points))
        for name, points in curves.items()
        if points
    )
    return f"{title}, over {x_label}. {parts}."


def _some(points: Points) -> Points:
    """The first point, one in the middle and the last."""
    return points if len(points) <= 3 else [points[0], points[len(points) // 2], points[-1]]
