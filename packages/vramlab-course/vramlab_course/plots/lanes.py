"""What works when, on one axis of time: a lane for computing, a lane for sending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vramlab_course.plots import style
from vramlab_course.plots.bars import name_rows
from vramlab_course.plots.durations import short_time, unit_of
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, fits

_ROW_IN = 0.5
_PLOT_WIDTH_IN = 7.4  # what is left of a picture's width beside the lanes' names
_HEIGHT = 0.8


@dataclass(frozen=True)
class Span:
    """One piece of work in a lane."""

    kind: str
    """What it is, for the legend."""
    start_s: float
    end_s: float
    label: str = ""
    """What stands on it: the lines that there is room for."""


def draw_lanes(
    lanes: Mapping[str, Sequence[Span]],
    looks: Mapping[str, Look],
    *,
    title: str,
    assumes: str,
) -> Picture:
    """Draw who works when, in proportion to time.

    Args:
        lanes: pieces of work by the lane's name, from top to bottom.
        looks: of the kinds of work.
        title: the picture's title.
        assumes: where the times come from; stands below the picture.

    Raises:
        ValueError: there is no work to draw, or a kind has no look.
    """
    spans = [span for lane in lanes.values() for span in lane]
    missing = {span.kind for span in spans} - set(looks)
    if not spans or missing:
        raise ValueError(
            f"{len(spans)} pieces of work to draw, {', '.join(sorted(missing)) or 'none'} of them "
            "without a look: give at least one piece, and a look for each kind"
        )
    end_s = max(span.end_s for span in spans)
    unit_s, unit = unit_of(end_s)
    with style.house_style():
        picture = new_picture(1.2 + _ROW_IN * len(lanes))
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        axes.set_xlim(0, end_s / unit_s)
        for row, lane in enumerate(lanes.values()):
            for span in lane:
                look, width = looks[span.kind], (span.end_s - span.start_s) / unit_s
                axes.broken_barh(
                    [(span.start_s / unit_s, width)],
                    (row - _HEIGHT / 2, _HEIGHT),
                    facecolor=look.color,
                    hatch=look.hatch,
                    edgecolor=style.INK,
                    linewidth=0.6,
                )
                lines = span.label.split("\n")
                label = "\n".join(
                    line for line in lines if fits(axes, f"{line}i", width, _PLOT_WIDTH_IN)
                )
                if label:
                    middle = span.start_s / unit_s + width / 2
                    style.write_label(axes, middle, row, label, look)
        name_rows(axes, list(lanes))
        axes.set_xlabel(f"{unit}. {assumes}")
        picture.explain(looks)
    picture.alt = describe_lanes(lanes, title=title, assumes=assumes)
    return picture


def describe_lanes(lanes: Mapping[str, Sequence[Span]], *, title: str, assumes: str) -> str:
    """Describe what `draw_lanes` draws."""
    told = " ".join(
        name.replace("\n", " ")
        + ": "
        + ", ".join(
            f"{span.kind} {span.label}".replace("\n", " ").strip()
            + f" from {short_time(span.start_s)} to {short_time(span.end_s)}"
            for span in lane
        )
        + "."
        for name, lane in lanes.items()
    )
    return f"{title}. {assumes} {told}"
