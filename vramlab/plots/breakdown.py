"""Where the bytes are at one moment, as one stacked bar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from vramlab.measure import Breakdown
from vramlab.plots import style
from vramlab.plots.picture import Picture, new_picture
from vramlab.plots.style import CATEGORY_LOOKS, Look, Unit, fits, short_size

_PLOT_WIDTH_IN = 8.6  # what is left of a picture's width beside the margins


@dataclass(frozen=True)
class _Part:
    name: str
    size_bytes: int
    look: Look


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
    parts = _parts(at, outside or {})
    total_bytes = sum(part.size_bytes for part in parts)
    longest_bytes = max(total_bytes, capacity_bytes or 0) or 1
    unit = Unit.for_axis(longest_bytes)
    with style.house_style():
        rows_of_legend = -(-(len(parts) + (capacity_bytes is not None)) // 3)
        picture = new_picture(1.45 + 0.2 * rows_of_legend)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.FONT_SIZE + 2)
        axes.set_xlim(0, unit.of(longest_bytes) * 1.02)
        _draw_parts(axes, parts, unit)
        handles: list[Artist] = [
            part.look.patch(f"{part.name}: {short_size(part.size_bytes)}") for part in parts
        ]
        if capacity_bytes is not None:
            edge = unit.of(capacity_bytes)
            label = f"memory of the GPU: {short_size(capacity_bytes)}"
            handles.append(axes.axvline(edge, color=style.BLACK, linewidth=2, label=label))
        axes.set_xlabel(f"{unit.name} ({short_size(total_bytes)} in all)")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        picture.legend(handles=handles, loc="outside lower left", ncols=3)
    picture.alt = describe_breakdown(
        at, title=title, outside=outside, capacity_bytes=capacity_bytes
    )
    return picture


def describe_breakdown(
    at: Breakdown,
    *,
    title: str = "Where the bytes are at the peak",
    outside: Mapping[str, int] | None = None,
    capacity_bytes: int | None = None,
) -> str:
    """Say in words what `draw_breakdown` draws."""
    parts = _parts(at, outside or {})
    total_bytes = sum(part.size_bytes for part in parts)
    listed = ", ".join(f"{part.name} {short_size(part.size_bytes)}" for part in parts)
    of_capacity = f" of {short_size(capacity_bytes)}" if capacity_bytes is not None else ""
    return f"{title}: {short_size(total_bytes)}{of_capacity}. {listed}."


def _parts(at: Breakdown, outside: Mapping[str, int]) -> list[_Part]:
    parts = [
        _Part(str(category), size_bytes, CATEGORY_LOOKS[category])
        for category, size_bytes in at.category_bytes.items()
    ]
    parts.append(_Part("cached, not allocated", at.moment.cached_bytes, style.CACHED_LOOK))
    parts += [_Part(name, size_bytes, style.OUTSIDE_LOOK) for name, size_bytes in outside.items()]
    return [part for part in parts if part.size_bytes > 0]


def _draw_parts(axes: Axes, parts: list[_Part], unit: Unit) -> None:
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
