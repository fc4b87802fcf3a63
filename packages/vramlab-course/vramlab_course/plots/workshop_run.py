"""Draw how a learner's program ran: what it did, and below it what it held, against a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
_MEMORY_IN = 2.6
_PLOT_WIDTH_IN = 7.6  # what is left of a picture's width beside the rows' names
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


@dataclass(frozen=True)
class RunBar:
    """Something that was done, from one moment to another."""

    row: str
    """Whose work it is, or of what kind: the bars of a row stand beside each other."""

    kind: str
    """Decides the colour."""

    label: str
    """Written on it where there is room."""

    start: float
    end: float
    low: float = 0.0
    """Where in the height of its row it begins, from 0 (above) to 1."""

    high: float = 1.0
    """Where it ends."""


@dataclass(frozen=True)
class RunPicture:
    """What there is to be drawn of a run."""

    title: str
    time: str
    """What one step to the right is."""

    bars: Sequence[RunBar]
    curves: Mapping[str, Sequence[tuple[float, int]]]
    """By name, moments and what is held from each on, in bytes."""

    target_bytes: int
    """The most that should be held."""

    target_end: float | None = None
    """When it should end, on the axis of time."""

    target_name: str = ""
    """What it should have done then, if time does not say it: "80 operators"."""

    held: str = "allocated"
    """What the bytes are."""

    remark: str = ""
    """What the largest part of it is."""

    @property
    def peak_bytes(self) -> int:
        """The most that is held in any curve."""
        return max(size_bytes for curve in self.curves.values() for _, size_bytes in curve)

    @property
    def end(self) -> float:
        """The last moment, of the run or of its target."""
        bars = (bar.end for bar in self.bars)
        target = 0 if self.target_end is None else self.target_end
        return max(
            [target, *bars, *(moment for curve in self.curves.values() for moment, _ in curve)]
        )


def draw_workshop_run(run: RunPicture) -> Picture:
    """Draw what was done above, and what was held meanwhile below, with the target as a line."""
    rows = list(dict.fromkeys(bar.row for bar in run.bars))
    kinds = list(dict.fromkeys(bar.kind for bar in run.bars))
    looks = _looks(kinds)
    rows_in = 0.5 + min(_ROW_IN * max(len(rows), 1), _MOST_ROWS_IN)
    with style.house_style():
        picture = new_picture(rows_in + _MEMORY_IN + 1.0)
        above, below = picture.subplots(
            2, 1, sharex=True, height_ratios=(rows_in, _MEMORY_IN), squeeze=True
        )
        above.set_title(run.title.replace("; ", "\n"), fontsize=style.TITLE_FONT_SIZE)
        above.set_xlim(0, max(run.end, 1))
        above.tick_params(axis="x", length=0, labelbottom=False)
        for kind in kinds:
            _draw_bars(above, [bar for bar in run.bars if bar.kind == kind], rows, looks[kind])
        name_rows(above, rows)
        if run.target_end is not None:
            name = run.target_name or f"{run.target_end:g}"
            _draw_target_end(above, below, run.target_end, name)
        if _ROW_IN * len(rows) > _MOST_ROWS_IN:
            above.tick_params(axis="y", labelsize=_SMALLEST_FONT_SIZE)
            every = -(-len(rows) // _MOST_NAMES)
            above.set_yticks(range(0, len(rows), every), rows[::every])
        _draw_memory(below, run)
        below.set_xlabel(run.time)
        if run.remark:
            below.set_title(
                "\n".join(wrap(run.remark.replace(" x ", _TIMES), _LINE_CHARACTERS)),
                fontsize=style.FONT_SIZE,
            )
        if kinds != rows:
            picture.explain(looks)
    picture.alt = describe_workshop_run(run)
    return picture


def describe_workshop_run(run: RunPicture) -> str:
    """Describe what `draw_workshop_run` draws."""
    rows = list(dict.fromkeys(bar.row for bar in run.bars))
    done = f"{len(run.bars)} bars in {len(rows)} rows"
    if len(rows) <= _MOST_ROWS_TOLD:
        done = "; ".join(f"{row}: {sum(bar.row == row for bar in run.bars)} bars" for row in rows)
    peaks = "; ".join(
        f"{name} {format_bytes(max(size for _, size in curve))}"
        for name, curve in run.curves.items()
    )
    remark = f" {run.remark}" if run.remark else ""
    end = "" if run.target_end is None else f", and to end at {run.target_end:g}"
    if end and run.target_name:
        end += f", after {run.target_name}"
    return (
        f"{run.title}. {done}. Most that is {run.held}: {peaks}; the target is "
        f"{format_bytes(run.target_bytes)}{end}.{remark}"
    )


def _looks(kinds: Sequence[str]) -> dict[str, Look]:
    known = {kind: _KNOWN_LOOKS[kind] for kind in kinds if kind in _KNOWN_LOOKS}
    others = looks_for([kind for kind in kinds if kind not in known])
    return {kind: known.get(kind) or others[kind] for kind in kinds}


def _draw_bars(axes: Axes, bars: Sequence[RunBar], rows: Sequence[str], look: Look) -> None:
    """Draw all bars of a kind: there can be thousands."""
    corners = []
    for bar in bars:
        top = rows.index(bar.row) - _HEIGHT / 2
        low, high = top + _HEIGHT * bar.low, top + _HEIGHT * bar.high
        corners.append([(bar.start, low), (bar.start, high), (bar.end, high), (bar.end, low)])
        if bar.label and fits(axes, bar.label, bar.end - bar.start, _PLOT_WIDTH_IN):
            middle = (bar.start + bar.end) / 2
            style.write_label(axes, middle, (low + high) / 2, bar.label, look)
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


def _draw_target_end(above: Axes, below: Axes, moment: float, name: str) -> None:
    for axes in (above, below):
        axes.axvline(moment, color=style.ALARM, linewidth=1.5, linestyle="--", zorder=4)
    below.text(
        moment,
        0.02,
        f"target: {name} ",
        transform=below.get_xaxis_transform(),
        ha="right",
        va="bottom",
        color=style.ALARM,
    )


def _draw_memory(axes: Axes, run: RunPicture) -> None:
    highest_bytes = max(run.peak_bytes, run.target_bytes)
    unit = MemoryUnit.for_axis(highest_bytes)
    end = max(run.end, 1)
    for number, (name, curve) in enumerate(run.curves.items()):
        moments = [moment for moment, _ in curve]
        held = [unit.of(size_bytes) for _, size_bytes in curve]
        color = _STROKE_COLORS[number % len(_STROKE_COLORS)]
        axes.step(
            [*moments, end],
            [*held, held[-1]],
            where="post",
            color=color,
            linewidth=1.3,
            linestyle=_STROKES[number % len(_STROKES)],
            label=name,
        )
        if len(run.curves) == 1:
            axes.fill_between(
                [*moments, end],
                [*held, held[-1]],
                step="post",
                color=style.TENSORS_LOOK.color,
                alpha=0.5,
            )
            # What is above the target stands out by its hatch, too.
            axes.fill_between(
                [*moments, end],
                [max(each, unit.of(run.target_bytes)) for each in (*held, held[-1])],
                unit.of(run.target_bytes),
                step="post",
                facecolor="white",
                hatch="//",
                edgecolor=style.INK,
                linewidth=0,
            )
    axes.axhline(unit.of(run.target_bytes), color=style.ALARM, linewidth=1.5, linestyle="--")
    room = 1.32 if len(run.curves) > 1 else 1.18  # for the names of curves
    axes.set_ylim(0, unit.of(highest_bytes) * room or 1)
    is_late = _peak_moment(run) > end / 2
    axes.text(
        0.002 if is_late else 0.998,  # away from the peak's own words
        unit.of(run.target_bytes),
        f"target: {short_size(run.target_bytes)}",
        transform=axes.get_yaxis_transform(),
        ha="left" if is_late else "right",
        va="bottom",
        color=style.ALARM,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
    )
    _mark_peak(axes, run, unit)
    axes.set_ylabel(f"{run.held} ({unit.name})")
    if len(run.curves) > 1:
        axes.legend(
            handles=[line for line in axes.get_lines() if _is_named(line)],
            loc="upper left",
            ncols=len(run.curves),
        )


def _is_named(line: Line2D) -> bool:
    return not str(line.get_label()).startswith("_")


def _peak_curve(run: RunPicture) -> tuple[str, Sequence[tuple[float, int]]]:
    return max(run.curves.items(), key=lambda each: max(size for _, size in each[1]))


def _peak_moment(run: RunPicture) -> float:
    _, curve = _peak_curve(run)
    return next(moment for moment, size in curve if size == run.peak_bytes)


def _mark_peak(axes: Axes, run: RunPicture, unit: MemoryUnit) -> None:
    name, _ = _peak_curve(run)
    moment = _peak_moment(run)
    axes.plot([moment], [unit.of(run.peak_bytes)], marker="o", color=style.INK, markersize=4)
    of = f" of {name}" if len(run.curves) > 1 else ""
    is_right = moment > run.end / 2
    axes.annotate(
        f"peak{of}: {short_size(run.peak_bytes)}",
        (moment, unit.of(run.peak_bytes)),
        xytext=(-6 if is_right else 6, 4),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85},
    )
