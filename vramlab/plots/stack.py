"""Named amounts of memory laid end to end in one bar, if need be against a GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from vramlab.plots import style
from vramlab.plots.picture import Picture, new_picture
from vramlab.plots.style import Look, Unit, fits, short_size

_PLOT_WIDTH_IN = 8.6  # what is left of a picture's width beside the margins

LOOKS = (
    Look(style.BLUE, text_color="white"),
    Look(style.ORANGE, "//"),
    Look(style.SKY_BLUE, "\\\\"),
    Look(style.GREEN, "xx", text_color="white"),
    Look(style.YELLOW, ".."),
    Look(style.PURPLE, "||"),
    Look(style.VERMILLION, "--"),
    Look(style.GREY, "++"),
    Look(style.INK, text_color="white"),
)
"""How parts without a look of their own are drawn, in their order; after the last, the first."""


@dataclass(frozen=True)
class Part:
    """One stretch of the bar."""

    name: str
    size_bytes: int
    look: Look


def draw_stack(
    parts: Mapping[str, int] | Sequence[Part],
    *,
    title: str,
    capacity_bytes: int | None = None,
) -> Picture:
    """Draw amounts of memory end to end.

    Args:
        parts: bytes by name, or parts with looks of their own. Those of 0 bytes are left out.
        title: the picture's title.
        capacity_bytes: the GPU's memory, drawn as a line if given.
    """
    drawn = _parts(parts)
    total_bytes = sum(part.size_bytes for part in drawn)
    longest_bytes = max(total_bytes, capacity_bytes or 0) or 1
    unit = Unit.for_axis(longest_bytes)
    with style.house_style():
        rows_of_legend = -(-(len(drawn) + (capacity_bytes is not None)) // 3)
        picture = new_picture(1.45 + 0.2 * rows_of_legend)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.FONT_SIZE + 2)
        axes.set_xlim(0, unit.of(longest_bytes) * 1.02)
        _draw_parts(axes, drawn, unit)
        handles: list[Artist] = [
            part.look.patch(f"{part.name}: {short_size(part.size_bytes)}") for part in drawn
        ]
        if capacity_bytes is not None:
            edge = unit.of(capacity_bytes)
            label = f"memory of the GPU: {short_size(capacity_bytes)}"
            handles.append(axes.axvline(edge, color=style.BLACK, linewidth=2, label=label))
        axes.set_xlabel(f"{unit.name} ({short_size(total_bytes)} in all)")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        picture.legend(handles=handles, loc="outside lower left", ncols=3)
    picture.alt = describe_stack(parts, title=title, capacity_bytes=capacity_bytes)
    return picture


def describe_stack(
    parts: Mapping[str, int] | Sequence[Part],
    *,
    title: str,
    capacity_bytes: int | None = None,
) -> str:
    """Say in words what `draw_stack` draws."""
    drawn = _parts(parts)
    total_bytes = sum(part.size_bytes for part in drawn)
    listed = ", ".join(f"{part.name} {short_size(part.size_bytes)}" for part in drawn)
    of_capacity = f" of {short_size(capacity_bytes)}" if capacity_bytes is not None else ""
    return f"{title}: {short_size(total_bytes)}{of_capacity}. {listed}."


def _parts(parts: Mapping[str, int] | Sequence[Part]) -> list[Part]:
    if isinstance(parts, Mapping):
        parts = [
            Part(name, size_bytes, LOOKS[number % len(LOOKS)])
            for number, (name, size_bytes) in enumerate(parts.items())
        ]
    return [part for part in parts if part.size_bytes > 0]


def _draw_parts(axes: Axes, parts: list[Part], unit: Unit) -> None:
    """Lay the parts end to end; label those that are wide enough (the legend has them all)."""
    start = 0.0
    for part in parts:
        width = unit.of(part.size_bytes)
        axes.barh(
            0,
            width,
            left=start,
            height=0.8,
            color=part.look.color,
            hatch=part.look.hatch,
            edgecolor=style.INK,
            linewidth=0.6,
            label=part.name,
        )
        label = next(
            (
                text
                for text in (f"{part.name} {short_size(part.size_bytes)}", part.name)
                if fits(axes, text, width, _PLOT_WIDTH_IN)
            ),
            "",
        )
        if label:
            axes.text(
                start + width / 2,
                0,
                label,
                ha="center",
                va="center",
                color=part.look.text_color,
                fontsize=style.SMALL_FONT_SIZE,
                bbox={"facecolor": part.look.color, "edgecolor": "none", "pad": 1.5},
            )
        start += width
