"""Memory against time: where each way to train comes to stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes

from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.durations import short_time
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import MemoryUnit

_MARKS = "os^DvPX*<"

_PLOT_IN = (8.2, 3.4)
"""What is left of a picture beside the axes' words."""
_LINE_IN = 0.15
_Extent = tuple[float, float, float, float]
"""Left, right, low, high, in inches."""


@dataclass(frozen=True)
class Trade:
    """What one way to train costs."""

    peak_bytes: int
    """The peak of a step."""
    seconds: float
    """Time for a sequence, an image, ..."""


def draw_trades(trades: Mapping[str, Trade], *, title: str, of: str = "sequence") -> Picture:
    """Draw a point for each way to train: to the left is less memory, further down is faster.

    Args:
        trades: by name; at most nine.
        title: the picture's title.
        of: what the seconds are for.

    Raises:
        ValueError: there are none, or more than can be told apart.
    """
    if not 1 <= len(trades) <= len(_MARKS):
        raise ValueError(f"{len(trades)} ways in one picture; 1 to {len(_MARKS)} can be drawn")
    unit = MemoryUnit.for_axis(max(trade.peak_bytes for trade in trades.values()))
    with style.house_style():
        picture = new_picture(4.2)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        for (name, trade), marker in zip(trades.items(), _MARKS, strict=False):
            axes.plot(
                unit.of(trade.peak_bytes),
                trade.seconds * 1e3,
                color=style.GREY,
                marker=marker,
                markersize=9,
                markeredgecolor=style.INK,
                linestyle="none",
                label=name,
            )
        axes.set_xlim(0, unit.of(max(t.peak_bytes for t in trades.values())) * 1.1)
        axes.set_ylim(0, max(t.seconds for t in trades.values()) * 1.15e3)
        axes.set_xlabel(f"peak of a step in {unit.name}")
        axes.set_ylabel(f"least time for a {of} in ms")
        axes.grid(True, color=style.GREY, linewidth=0.4)
        _name_points(axes, trades, unit)
    picture.alt = describe_trades(trades, title=title, of=of)
    return picture


def _name_points(axes: Axes, trades: Mapping[str, Trade], unit: MemoryUnit) -> None:
    """Write names beside their points, where they touch no other name or point."""
    (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    at = {
        name: (
            unit.of(trade.peak_bytes) / right * _PLOT_IN[0],
            trade.seconds * 1e3 / top * _PLOT_IN[1],
        )
        for name, trade in trades.items()
    }
    taken = [(x - 0.07, x + 0.07, y - 0.07, y + 0.07) for x, y in at.values()]
    for name, (x, y) in at.items():
        width = style.text_width_in(name)
        places = [
            (x + side * 0.12 - (width if side < 0 else 0), y + lines * _LINE_IN)
            for lines in (0, 1, -1, 2, -2, 3, -3)
            for side in (1, -1)
        ]
        boxes = ((left, left + width, y - 0.07, y + 0.07) for left, y in places)
        box = next((box for box in boxes if _is_free(box, taken)), None)
        if box is None:
            continue
        taken.append(box)
        axes.annotate(
            name,
            (x / _PLOT_IN[0], y / _PLOT_IN[1]),
            xycoords="axes fraction",
            xytext=(box[0] / _PLOT_IN[0], (box[2] + box[3]) / 2 / _PLOT_IN[1]),
            textcoords="axes fraction",
            va="center",
            fontsize=style.SMALL_FONT_SIZE,
        )


def _is_free(box: _Extent, taken: Iterable[_Extent]) -> bool:
    left, right, low, high = box
    within = left >= 0 and right <= _PLOT_IN[0] and low >= 0 and high <= _PLOT_IN[1]
    return within and all(
        right <= other[0] or left >= other[1] or high <= other[2] or low >= other[3]
        for other in taken
    )


def describe_trades(trades: Mapping[str, Trade], *, title: str, of: str = "sequence") -> str:
    """Describe what `draw_trades` draws."""
    points = "; ".join(
        f"{name}: {short_size(trade.peak_bytes)}, {short_time(trade.seconds)}"
        for name, trade in trades.items()
    )
    return f"{title}: peak of a step, and least time for a {of}. {points}."
