"""Who did what and when, on one axis of time: a lane for each, and below them what was held.

The picture of a step in time, of a pipeline's ranks, and of what learners build in workshops: those
are compared with a target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D

from vramlab.units import format_bytes, short_size
from vramlab_course.plots import style
from vramlab_course.plots.bars import name_rows
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, MemoryUnit, fits, looks_for

_ROW_IN = 0.32
_MOST_ROWS_IN = 4.5
_MEMORY_IN = 2.2
_PLOT_WIDTH_IN = 7.9  # what is left of a picture's width beside the rows' names
_LINE_CHARACTERS = 110
_TIMES = "\N{NO-BREAK SPACE}x\N{NO-BREAK SPACE}"
"""A number of blocks stays with what they are."""
_MOST_ROWS_TOLD = 8
_SMALLEST_FONT_SIZE = 6
_MOST_NAMES = 40
"""Of rows, of that font; of more rows, only some have their names."""
_HEIGHT = 0.72
"""Of a bar, in a row of height 1."""

_KNOWN_LOOKS = {
    "forward": style.FORWARD_LOOK,
    "backward": style.BACKWARD_LOOK,
    "products": Look(style.FAINT, text_color="white"),
    "other operators": Look(style.GREY),
    "block": style.TENSORS_LOOK,
    "free in a segment": style.CACHED_LOOK,
}
"""The same as in other pictures of the course."""

_STROKES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_STROKE_COLORS = (style.INK, *style.LINE_COLORS[:3])


Curve = Sequence[tuple[float, int]]
"""Moments, and what is held from each on, in bytes."""


@dataclass(frozen=True)
class Span:
    """Something that was done, from one moment to another."""

    lane: str
    """Whose work it is, or of what kind: the spans of a lane stand beside each other."""

    kind: str
    """Decides the colour."""

    label: str
    """Written on it: the lines that there is room for."""

    start: float
    end: float
    low: float = 0.0
    """Where in the height of its lane it begins, from 0 (above) to 1."""

    high: float = 1.0
    """Where it ends."""


@dataclass(frozen=True)
class Target:
    """What a run should not exceed."""

    size_bytes: int
    """The most that should be held."""

    end: float | None = None
    """When it should end, on the axis of time."""

    name: str = ""
    """What it should have done then, if time does not say it: "80 operators"."""


@dataclass(frozen=True)
class Lanes:
    """What there is to be drawn."""

    title: str
    time: str
    """What the axis of time is, and where times come from."""

    spans: Sequence[Span]
    """Lanes stand in the order of their first spans; later spans lie on top."""

    curves: Mapping[str, Curve] = field(default_factory=dict)
    """By name, what is held over time; without any, there are lanes only."""

    looks: Mapping[str, Look] = field(default_factory=dict)
    """Of kinds of work that do not look as elsewhere in the course."""

    held: str = "allocated"
    """What the bytes are."""

    target: Target | None = None
    remark: str = ""
    """What the largest part of what is held is."""

    until: float = 0.0
    """Where the axis of time ends at least, for pictures that are to be compared."""

    told: str = ""
    """Describes the lanes, instead of how many spans they have."""

    @property
    def names(self) -> list[str]:
        """The lanes, from top to bottom."""
        return list(dict.fromkeys(span.lane for span in self.spans))

    @property
    def peak_bytes(self) -> int:
        """The most that is held in any curve."""
        return max(size_bytes for curve in self.curves.values() for _, size_bytes in curve)

    @property
    def end(self) -> float:
        """The last moment, of the work or of its target."""
        target = self.target.end if self.target and self.target.end is not None else 0
        moments = [moment for curve in self.curves.values() for moment, _ in curve]
        return max([self.until, target, *(span.end for span in self.spans), *moments])


def draw_lanes(lanes: Lanes) -> Picture:
    """Draw what was done above, in proportion to time, and what was held meanwhile below.

    Raises:
        ValueError: there is no work to draw.
    """
    if not lanes.spans:
        raise ValueError(f"{lanes.title!r} has no work to draw: give at least one span")
    names = lanes.names
    kinds = list(dict.fromkeys(span.kind for span in lanes.spans))
    looks = _looks(kinds, lanes.looks)
    row_in = _ROW_IN * (1.5 if any("\n" in span.label for span in lanes.spans) else 1)
    lanes_in = 0.5 + min(row_in * len(names), _MOST_ROWS_IN)
    with style.house_style():
        picture = new_picture(lanes_in + (_MEMORY_IN + 0.5 if lanes.curves else 0.35) + 0.5)
        if lanes.curves:
            above, below = picture.subplots(
                2, 1, sharex=True, height_ratios=(lanes_in, _MEMORY_IN), squeeze=True
            )
            above.tick_params(axis="x", length=0, labelbottom=False)
            _draw_memory(below, lanes)
        else:
            above = below = picture.subplots()
        above.set_title(lanes.title.replace("; ", "\n"), fontsize=style.TITLE_FONT_SIZE)
        above.set_xlim(0, lanes.end or 1)
        for kind in kinds:
            _draw_spans(above, [span for span in lanes.spans if span.kind == kind], names, looks)
        name_rows(above, names)
        if lanes.target and lanes.target.end is not None:
            _draw_target_end(above, below, lanes.target)
        if _ROW_IN * len(names) > _MOST_ROWS_IN:
            above.tick_params(axis="y", labelsize=_SMALLEST_FONT_SIZE)
            every = -(-len(names) // _MOST_NAMES)
            above.set_yticks(range(0, len(names), every), names[::every])
        below.set_xlabel("\n".join(wrap(lanes.time, _LINE_CHARACTERS)))
        if lanes.remark:
            below.set_title(
                "\n".join(wrap(lanes.remark.replace(" x ", _TIMES), _LINE_CHARACTERS)),
                fontsize=style.FONT_SIZE,
            )
        if kinds != names:
            picture.explain(looks)
    picture.alt = describe_lanes(lanes)
    return picture


def describe_lanes(lanes: Lanes) -> str:
    """Describe what `draw_lanes` draws."""
    done = f"{len(lanes.spans)} bars in {len(lanes.names)} rows"
    if len(lanes.names) <= _MOST_ROWS_TOLD:
        done = "; ".join(
            f"{name}: {sum(span.lane == name for span in lanes.spans)} bars" for name in lanes.names
        )
    text = f"{lanes.title}. {lanes.told or done + '.'}"
    if lanes.curves:
        peaks = "; ".join(
            f"{name} {format_bytes(max(size for _, size in curve))}".strip()
            for name, curve in lanes.curves.items()
        )
        text += f" Most that is {lanes.held}: {peaks}"
        if lanes.target is not None:
            text += f"; the target is {format_bytes(lanes.target.size_bytes)}"
            if lanes.target.end is not None:
                text += f", and to end at {lanes.target.end:g}"
                text += f", after {lanes.target.name}" if lanes.target.name else ""
        text += "."
    return text + (f" {lanes.remark}" if lanes.remark else "")


def _looks(kinds: Sequence[str], given: Mapping[str, Look]) -> dict[str, Look]:
    usual = {**_KNOWN_LOOKS, **given}
    known = {kind: usual[kind] for kind in kinds if kind in usual}
    others = looks_for([kind for kind in kinds if kind not in known])
    return {kind: known.get(kind) or others[kind] for kind in kinds}


def _draw_spans(
    axes: Axes, spans: Sequence[Span], names: Sequence[str], looks: Mapping[str, Look]
) -> None:
    """Draw all spans of a kind: there can be thousands."""
    look = looks[spans[0].kind]
    corners = []
    for span in spans:
        top = names.index(span.lane) - _HEIGHT / 2
        low, high = top + _HEIGHT * span.low, top + _HEIGHT * span.high
        start, end = span.start, span.end
        corners.append([(start, low), (start, high), (end, high), (end, low)])
        label = "\n".join(
            line
            for line in span.label.split("\n")
            if fits(axes, f"{line}i", end - start, _PLOT_WIDTH_IN)
        )
        if label:
            style.write_label(axes, (start + end) / 2, (low + high) / 2, label, look)
    axes.add_collection(
        PolyCollection(
            corners,
            facecolor=look.color,
            hatch=look.hatch,
            edgecolor=style.INK,
            linewidth=0.3,
        ),
        autolim=False,
    )


def _draw_target_end(above: Axes, below: Axes, target: Target) -> None:
    assert target.end is not None
    for axes in (above, below):
        axes.axvline(target.end, color=style.ALARM, linewidth=1.5, linestyle="--", zorder=4)
    below.text(
        target.end,
        0.02,
        f"target: {target.name or f'{target.end:g}'} ",
        transform=below.get_xaxis_transform(),
        ha="right",
        va="bottom",
        color=style.ALARM,
    )


def _draw_memory(axes: Axes, lanes: Lanes) -> None:
    target_bytes = lanes.target.size_bytes if lanes.target else 0
    highest_bytes = max(lanes.peak_bytes, target_bytes)
    unit = MemoryUnit.for_axis(highest_bytes)
    for number, (name, curve) in enumerate(lanes.curves.items()):
        moments = [*(moment for moment, _ in curve), lanes.end or 1]
        held = [unit.of(size_bytes) for _, size_bytes in (*curve, curve[-1])]
        color = _STROKE_COLORS[number % len(_STROKE_COLORS)]
        stroke = _STROKES[number % len(_STROKES)]
        axes.step(
            moments, held, where="post", color=color, linewidth=1.3, linestyle=stroke, label=name
        )
        if len(lanes.curves) == 1:
            fill = style.TENSORS_LOOK.color
            axes.fill_between(moments, held, step="post", color=fill, alpha=0.5)
            if lanes.target:  # what is above the target stands out by its hatch, too
                axes.fill_between(
                    moments,
                    [max(each, unit.of(target_bytes)) for each in held],
                    unit.of(target_bytes),
                    step="post",
                    facecolor="white",
                    hatch="//",
                    edgecolor=style.INK,
                    linewidth=0,
                )
    room = 1.32 if len(lanes.curves) > 1 else 1.18  # for the names of curves
    axes.set_ylim(0, unit.of(highest_bytes) * room or 1)
    if lanes.target:
        axes.axhline(unit.of(target_bytes), color=style.ALARM, linewidth=1.5, linestyle="--")
        is_late = _peak_moment(lanes) > lanes.end / 2
        axes.text(
            0.002 if is_late else 0.998,  # away from the peak's own words
            unit.of(target_bytes),
            f"target: {short_size(target_bytes)}",
            transform=axes.get_yaxis_transform(),
            ha="left" if is_late else "right",
            va="bottom",
            color=style.ALARM,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
        )
    _mark_peak(axes, lanes, unit)
    axes.set_ylabel(f"{lanes.held} ({unit.name})")
    if len(lanes.curves) > 1:
        axes.legend(
            handles=[line for line in axes.get_lines() if _is_named(line)],
            loc="upper left",
            ncols=len(lanes.curves),
        )


def _is_named(line: Line2D) -> bool:
    return not str(line.get_label()).startswith("_")


def _peak_curve(lanes: Lanes) -> tuple[str, Curve]:
    return max(lanes.curves.items(), key=lambda each: max(size for _, size in each[1]))


def _peak_moment(lanes: Lanes) -> float:
    _, curve = _peak_curve(lanes)
    return next(moment for moment, size in curve if size == lanes.peak_bytes)


def _mark_peak(axes: Axes, lanes: Lanes, unit: MemoryUnit) -> None:
    name, _ = _peak_curve(lanes)
    moment = _peak_moment(lanes)
    axes.plot([moment], [unit.of(lanes.peak_bytes)], marker="o", color=style.INK, markersize=4)
    of = f" of {name}" if len(lanes.curves) > 1 else ""
    is_right = moment > lanes.end / 2
    axes.annotate(
        f"peak{of}: {short_size(lanes.peak_bytes)}",
        (moment, unit.of(lanes.peak_bytes)),
        xytext=(-6 if is_right else 6, 4),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
    )
