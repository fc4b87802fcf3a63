"""Bars under each other in named groups, such as predicted and measured for each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from vramlab_course.plots import style
from vramlab_course.plots.style import Look

_BAR_IN, _GAP_IN = 0.21, 0.12
_GAP = 0.6
"""Between groups, where bars are 1 apart."""


@dataclass(frozen=True)
class Bar:
    """One bar of a group."""

    kind: str
    """By which it gets its look."""
    length: float
    """In the unit of the x axis."""
    label: str
    """What stands at its end."""


Groups = Sequence[tuple[str, Sequence[Bar]]]
"""The bars of each group by its name, from top to bottom."""


def height_in(groups: Groups) -> float:
    """Measure what the bars take of a picture's height, in inches."""
    return sum(len(bars) for _, bars in groups) * _BAR_IN + len(groups) * _GAP_IN


def draw_groups(axes: Axes, groups: Groups, looks: Mapping[str, Look]) -> None:
    """Draw the groups, the bars of a group close together.

    Args:
        axes: which the bars have for themselves.
        groups: what to draw.
        looks: of each kind.
    """
    row, middles = 0.0, []
    for _, bars in groups:
        middles.append(row + (len(bars) - 1) / 2)
        for bar in bars:
            look = looks[bar.kind]
            drawn = axes.barh(
                row,
                bar.length,
                height=0.9,
                color=look.color,
                hatch=look.hatch,
                edgecolor=style.INK,
                linewidth=0.6,
                label=bar.kind,
            )
            axes.bar_label(drawn, [bar.label], padding=3, fontsize=style.SMALL_FONT_SIZE)
            row += 1
        row += _GAP
    axes.set_yticks(middles, [name for name, _ in groups])
    axes.set_ylim(row - _GAP - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
