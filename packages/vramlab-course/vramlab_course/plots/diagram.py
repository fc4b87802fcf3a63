"""Boxes, arrows and words on paper measured in inches: what pictures of ideas are drawn with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from vramlab_course.plots import style
from vramlab_course.plots.picture import WIDTH_IN, Picture
from vramlab_course.plots.style import Look

PAPER = Look("white")
"""A box that is no memory: an op, a GPU."""
STEP = Look(style.PALE)
"""A box for a step of a program."""
_TITLE_IN = 0.45


def check_drawable(count: int, what: str, least: int, most: int) -> None:
    """Refuse more than a picture has room for, or less than shows anything.

    Args:
        count: how many there are.
        what: their name, plural.
        least, most: that can be drawn.

    Raises:
        ValueError: there are fewer or more.
    """
    if not least <= count <= most:
        raise ValueError(f"{count} {what} in a picture; {least} to {most} can be drawn")


@dataclass(frozen=True)
class Box:
    """Where a box is, in inches from the lower left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> tuple[float, float]:
        """Middle of its left edge."""
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> tuple[float, float]:
        """Middle of its right edge."""
        return self.x + self.width, self.y + self.height / 2

    @property
    def top(self) -> tuple[float, float]:
        """Middle of its upper edge."""
        return self.x + self.width / 2, self.y + self.height

    @property
    def bottom(self) -> tuple[float, float]:
        """Middle of its lower edge."""
        return self.x + self.width / 2, self.y


class Diagram:
    """A picture without axes.

    Args:
        height_in: without the title.
        title: what is to be seen.
    """

    def __init__(self, height_in: float, title: str) -> None:
        self.height_in = height_in
        with style.house_style():
            self.picture = Picture(figsize=(WIDTH_IN, height_in + _TITLE_IN), dpi=100)
            self.axes: Axes = self.picture.add_axes(
                (0.0, 0.0, 1.0, height_in / (height_in + _TITLE_IN))
            )
            self.axes.set_xlim(0, WIDTH_IN)
            self.axes.set_ylim(0, height_in)
            self.axes.set_axis_off()
            self.picture.suptitle(
                title,
                x=0.02,
                y=1 - 0.12 / (height_in + _TITLE_IN),
                ha="left",
                va="top",
                fontsize=style.TITLE_FONT_SIZE,
                fontfamily="DejaVu Sans",
                color=style.INK,
            )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str = "",
        look: Look = PAPER,
        *,
        small: bool = True,
        dashed: bool = False,
        bold: bool = False,
        top: bool = False,
    ) -> Box:
        """Draw a box with words in it; give its place.

        Args:
            x, y: its lower left corner, in inches.
            width, height: in inches.
            text: lines to write in it.
            look: its colours.
            small: the size of the words.
            dashed: for what is not there: freed, sent away, shared.
            bold: the words.
            top: write at its upper edge instead of its middle.
        """
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=0.05",
                facecolor=look.color if not dashed else "white",
                edgecolor=style.INK,
                linewidth=0.8,
                linestyle=(0, (3, 2)) if dashed else "solid",
                zorder=2,
            )
        )
        if text:
            self.write(
                x + width / 2,
                y + height - 0.06 if top else y + height / 2,
                text,
                color=style.INK if dashed else look.text_color,
                small=small,
                bold=bold,
                va="top" if top else "center",
            )
        return Box(x, y, width, height)

    def area(
        self, x: float, y: float, width: float, height: float, look: Look, *, edged: bool
    ) -> None:
        """Draw a rectangle whose area means bytes.

        Args:
            x, y: its lower left corner, in inches.
            width, height: in inches.
            look: its colour.
            edged: whether it has an edge; one would hide the colour of a thin one.
        """
        self.axes.add_patch(
            Rectangle(
                (x, y),
                width,
                height,
                facecolor=look.color,
                edgecolor=style.INK,
                linewidth=0.8 if edged else 0,
                zorder=2,
            )
        )

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        color: str = style.INK,
        small: bool = True,
        bold: bool = False,
        ha: str = "center",
        va: str = "center",
    ) -> None:
        """Write words around a point."""
        self.axes.text(
            x,
            y,
            text,
            ha=ha,
            va=va,
            color=color,
            fontsize=style.SMALL_FONT_SIZE if small else style.FONT_SIZE,
            fontweight="bold" if bold else "normal",
            fontfamily="DejaVu Sans",
            linespacing=1.25,
            zorder=4,
        )

    def arrow(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        text: str = "",
        *,
        color: str = style.INK,
        bend: float = 0.0,
        dashed: bool = False,
        both: bool = False,
        width: float = 1.2,
        beside: tuple[float, float] = (0.0, 0.12),
    ) -> None:
        """Draw an arrow, and words beside its middle.

        Args:
            start, end: points in inches.
            text: lines.
            color: of the line.
            bend: how far it is curved, as a part of its length; to the right if positive.
            dashed: for what is only pointed at.
            both: whether it has two heads.
            width: of the line in points.
            beside: from the middle to the words, in inches.
        """
        self.axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="<|-|>" if both else "-|>",
                mutation_scale=9,
                color=color,
                linewidth=width,
                linestyle=(0, (3, 2)) if dashed else "solid",
                connectionstyle=f"arc3,rad={bend}",
                shrinkA=1,
                shrinkB=1,
                zorder=3,
            )
        )
        if text:
            across = (end[0] + start[0]) / 2, (end[1] + start[1]) / 2
            self.write(across[0] + beside[0], across[1] + beside[1], text)

    def path(self, *points: tuple[float, float], color: str = style.INK) -> None:
        """Draw an arrow along straight lines from the first point to the last."""
        xs, ys = zip(*points[:-1], strict=True)
        self.axes.plot(xs, ys, color=color, linewidth=1.2, zorder=1, solid_joinstyle="round")
        self.arrow(points[-2], points[-1], color=color)

    def line(self, start: tuple[float, float], end: tuple[float, float], width: float) -> None:
        """Draw a line over what is there, so many points wide."""
        xs, ys = zip(start, end, strict=True)
        self.axes.plot(xs, ys, color=style.INK, linewidth=width, zorder=3, solid_capstyle="butt")

    def key(self, entries: Mapping[str, Look], x: float = 0.3, y: float = 0.15) -> None:
        """Say on one line what colours mean."""
        for name, look in entries.items():
            self.box(x, y - 0.07, 0.22, 0.14, "", look)
            self.write(x + 0.29, y, name, ha="left")
            x += 0.29 + style.text_width_in(name) + 0.22

    def finish(self, alt: str) -> Picture:
        """Return the picture with its alternative text."""
        self.picture.alt = alt
        return self.picture
