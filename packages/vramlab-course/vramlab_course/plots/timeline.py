"""Allocated bytes over time, stacked by what they are for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vramlab.measure import (
    Timeline,
    TimelineStage,
    attribute,
    breakdown,
    category_curves,
)
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, MemoryUnit, size_label

_PLOT_WIDTH_IN = 8.3  # what is left of a picture's width beside the axis
_LEVELS = 3
_LEVEL_POINTS = 11
_NOTE_SHARE = 0.1  # of the height, for a line of notes
_NOTE_AROUND_IN = 0.3  # the box of a note, and between two
_PLOT_HEIGHT_IN = 3.0
_FAILURE_IN = 0.1  # for the line at a request that failed
_PEAK_LIFTS = (6, 18, 30, 42, 54)  # points from the peak up to its label, best first
_PEAK_AWAY = (8, 30, 60, 100, 150, 210)  # points from the peak to the side
_LABEL_PAD_IN = 0.04
_NOTE_SIDE_IN = 0.15  # from the moment to the words
_NOTE_HEIGHT_IN = 0.17


def draw_timeline(
    timeline: Timeline,
    *,
    title: str = "Memory over time",
    show_reserved: bool = True,
    capacity_bytes: int | None = None,
    notes: Mapping[int, str] | None = None,
    names: Mapping[int, str] | None = None,
) -> Picture:
    """Draw what lives on the GPU over the allocator's events, with its stages and its peak.

    Args:
        timeline: such as `recording.timeline`.
        title: the picture's title: best, what is to be seen.
        show_reserved: also draw what is reserved, as a line.
        capacity_bytes: the GPU's memory, drawn as a line if given.
        notes: what a block is, by its place in `timeline.blocks`: an arrow points at its birth, and
            its size is written behind the words. `largest_born(timeline, "backward")` finds one.
        names: what to call a block instead of its category, by its place in `timeline.blocks`; such
            as "gathered parameters", which no category tells from other temporaries.

    Raises:
        IndexError: the timeline has no such block.
    """
    names_given = names or {}
    curves = _curves(timeline, names_given)
    looks = style.looks_for(list(curves))
    highest_bytes = max(
        timeline.peak_bytes,
        max(timeline.reserved_bytes) if show_reserved else 0,
        capacity_bytes or 0,
    )
    unit = MemoryUnit.for_axis(highest_bytes)
    with style.house_style():
        picture = new_picture(4.6)
        axes = picture.subplots()
        stage_names = _place_names(timeline)
        levels = 1 + max((name.level for name in stage_names), default=-1)
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE, pad=8 + levels * _LEVEL_POINTS)
        axes.set_xlim(0, max(timeline.event_count, 1))
        placed = _place_notes(timeline, notes or {})
        lines = 1 + max((note.line for note in placed), default=-1)
        room = 1.18 + _NOTE_SHARE * 1.4 * lines
        axes.set_ylim(0, unit.of(highest_bytes) * room or 1)
        _draw_stages(axes, stage_names, timeline)
        failed_at = [failure.position for failure in timeline.out_of_memory]
        named = _draw_areas(axes, curves, looks, unit, failed_at)
        seen_bytes = axes.get_ylim()[1] * unit.size_bytes / 300  # a pixel
        handles: list[Artist] = [
            looks[category].patch(category)
            for category, curve in reversed(curves.items())
            if category not in named and max(curve) > seen_bytes
        ]
        if show_reserved:
            handles.append(_draw_line(axes, timeline.reserved_bytes, unit, "reserved", (0, (4, 2))))
        if capacity_bytes is not None:
            level = (capacity_bytes,) * (timeline.event_count + 1)
            handles.append(_draw_line(axes, level, unit, "memory of the GPU", "solid"))
        _mark_peak(axes, timeline, unit, placed, timeline.reserved_bytes if show_reserved else ())
        _write_notes(axes, timeline, placed, unit)
        _mark_failures(axes, timeline)
        axes.set_xlabel("time, in allocations and frees")
        axes.set_ylabel(unit.name)
        picture.explain_in_columns(handles, 5)
    told = "".join(f" {_note(timeline, *note)}." for note in (notes or {}).items())
    picture.alt = describe_timeline(timeline, title=title, names=names) + told
    return picture


def largest_born(timeline: Timeline, stage: str | None = None, category: str | None = None) -> int:
    """Find the largest block that a stage takes, the first of several: its place in `blocks`.

    Args:
        timeline: with its stages.
        stage: its name; any, and what was there before, if None.
        category: what the block is, such as "gradients"; anything, if None.

    Raises:
        ValueError: nothing of the kind was taken there.
    """
    categories = [attribution.category for attribution in attribute(timeline)]
    born = [
        number
        for number, block in enumerate(timeline.blocks)
        if (stage is None or timeline.stage_at(block.born + 1) == stage)
        and category in (None, categories[number])
    ]
    if not born:
        what = "block" if category is None else f"block of {category}"
        raise ValueError(f"no {what} is taken in stage {stage!r}")
    return max(born, key=lambda number: timeline.blocks[number].size_bytes)


def _note(timeline: Timeline, number: int, words: str) -> str:
    return f"{words}: {size_label(timeline.blocks[number].size_bytes)}"


@dataclass(frozen=True)
class _PlacedNote:
    """Words above all areas, and the moment at which their arrow points."""

    words: str
    position: int
    color: str
    on_the_left: bool
    """Whether they end at the moment; else they begin there."""
    line: int
    """0 is the highest."""


def _place_notes(timeline: Timeline, notes: Mapping[int, str]) -> list[_PlacedNote]:
    """Give each note the highest line on which it touches no other.

    Notes are about the birth of a block; and there is one for each request that failed.
    """
    told = [
        (max(timeline.blocks[number].born + 1, 0), _note(timeline, number, words), style.INK)
        for number, words in notes.items()
    ]
    told += [
        (failure.position, _asked_for(failure.requested_bytes), style.ALARM)
        for failure in timeline.out_of_memory
    ]
    events_per_inch = max(timeline.event_count, 1) / _PLOT_WIDTH_IN
    taken: list[list[tuple[float, float]]] = []
    placed = []
    # Words stand on the side where there is room; the outermost highest, so that no arrow crosses.
    for position, words, color in sorted(told, key=lambda n: -abs(n[0] - timeline.event_count / 2)):
        on_the_left = position > timeline.event_count / 2
        reach = (style.text_width_in(words) + _NOTE_AROUND_IN) * events_per_inch
        ends = (position - reach, position) if on_the_left else (position, position + reach)
        free = (
            line
            for line, others in enumerate(taken)
            if all(ends[1] < begin or end < ends[0] for begin, end in others)
        )
        line = next(free, len(taken))
        if line == len(taken):
            taken.append([])
        taken[line].append(ends)
        placed.append(_PlacedNote(words, position, color, on_the_left, line))
    return placed


def _write_notes(
    axes: Axes, timeline: Timeline, notes: Sequence[_PlacedNote], unit: MemoryUnit
) -> None:
    events_per_inch = max(timeline.event_count, 1) / _PLOT_WIDTH_IN
    for note in notes:
        side = -_NOTE_SIDE_IN if note.on_the_left else _NOTE_SIDE_IN
        axes.annotate(
            note.words,
            (note.position, unit.of(timeline.allocated_bytes[note.position])),
            xytext=(
                note.position + side * events_per_inch,
                axes.get_ylim()[1] * (0.97 - note.line * _NOTE_SHARE),
            ),
            ha="right" if note.on_the_left else "left",
            va="top",
            fontsize=style.SMALL_FONT_SIZE,
            arrowprops={
                "arrowstyle": "-|>",
                "color": note.color,
                "linewidth": 1,
                "relpos": (1, 0.5) if note.on_the_left else (0, 0.5),
            },
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": note.color},
            zorder=6,
        )


def _asked_for(size_bytes: int) -> str:
    return f"out of memory: {size_label(size_bytes)} more were asked for"


def describe_timeline(
    timeline: Timeline, *, title: str = "Memory over time", names: Mapping[int, str] | None = None
) -> str:
    """Describe what `draw_timeline` draws."""
    at_peak = breakdown(timeline)
    curves = _curves(timeline, names or {})
    parts = ", ".join(
        f"{name} {short_size(curve[at_peak.moment.position])}"
        for name, curve in curves.items()
        if curve[at_peak.moment.position]
    )
    where = f" in stage '{at_peak.moment.stage}'" if at_peak.moment.stage else ""
    stages = " ".join(
        f"After '{stage.name}': {short_size(timeline.allocated_bytes[stage.end])} allocated."
        for stage in timeline.stages
    )
    failures = "".join(
        f" Out of memory at event {failure.position}: {short_size(failure.requested_bytes)} more "
        "were asked for."
        for failure in timeline.out_of_memory
    )
    return (
        f"{title}, over {timeline.event_count} allocator events: allocated bytes begin at "
        f"{short_size(timeline.allocated_bytes[0])}, peak at {short_size(timeline.peak_bytes)} at "
        f"event {at_peak.moment.position}{where}, and end at "
        f"{short_size(timeline.allocated_bytes[-1])}. At the peak: {parts or 'nothing'}. "
        f"Reserved at the end: {short_size(timeline.reserved_bytes[-1])}. {stages}"
    ).rstrip() + failures


def _curves(timeline: Timeline, names: Mapping[int, str]) -> dict[str, list[int]]:
    """Follow the allocated bytes of each category, and of each given name after its category."""
    curves: dict[str, list[int]] = {}
    categories = [attribution.category for attribution in attribute(timeline)]
    for category, curve in category_curves(timeline).items():
        named: dict[str, list[int]] = {}
        for number, name in names.items():
            if categories[number] != category:
                continue
            own = named.setdefault(name, curves.pop(name, [0] * len(curve)))
            block = timeline.blocks[number]
            end = len(curve) if block.freed is None else block.freed + 1
            for position in range(block.born + 1, end):
                own[position] += block.size_bytes
                curve[position] -= block.size_bytes
        curves |= {str(category): curve} if any(curve) else {}
        curves |= named
    return curves


def _draw_areas(
    axes: Axes,
    curves: Mapping[str, Sequence[int]],
    looks: Mapping[str, Look],
    unit: MemoryUnit,
    failed_at: Sequence[int],
) -> set[str]:
    """Stack the curves as steps: between events, nothing changes. Give those that have a label."""
    named: set[str] = set()
    floor: list[float] = []
    for category, curve in curves.items():
        look = looks[category]
        floor = floor or [0.0] * len(curve)
        top = [low + unit.of(size_bytes) for low, size_bytes in zip(floor, curve, strict=True)]
        axes.fill_between(
            range(len(curve)),
            floor,
            top,
            step="post",
            facecolor=look.color,
            hatch=look.hatch,
            edgecolor=style.INK,
            linewidth=0.3,
            label=category,
        )
        if _name_area(axes, category, look, floor, top, failed_at):
            named.add(category)
        floor = top
    return named


def _name_area(
    axes: Axes,
    category: str,
    look: Look,
    floor: Sequence[float],
    top: Sequence[float],
    failed_at: Sequence[int],
) -> bool:
    """Write a category's name into its area where there is most room; return whether it fits.

    Where a line says that a request failed, there is none.
    """
    events_per_inch = (len(top) - 1) / _PLOT_WIDTH_IN
    width = style.text_width_in(category) * events_per_inch
    height = 0.17 * axes.get_ylim()[1] / _PLOT_HEIGHT_IN
    span = math.ceil(width) + 1
    best, place = 0.0, None
    around = _FAILURE_IN * events_per_inch
    for start in range(0, len(top) - span, max(1, len(top) // 200)):
        if any(start - around < failed < start + span + around for failed in failed_at):
            continue
        low, high = max(floor[start : start + span]), min(top[start : start + span])
        if high - low > max(best, height):
            best, place = high - low, (start + span / 2, (low + high) / 2)
    if place is not None:
        style.write_label(axes, *place, category, look)
    return place is not None


def _draw_line(
    axes: Axes,
    level_bytes: Sequence[int],
    unit: MemoryUnit,
    label: str,
    line_style: str | tuple[int, tuple[int, ...]],
) -> Line2D:
    (line,) = axes.plot(
        range(len(level_bytes)),
        [unit.of(size_bytes) for size_bytes in level_bytes],
        drawstyle="steps-post",
        color=style.BLACK,
        linestyle=line_style,
        linewidth=1.2,
        label=label,
    )
    return line


def _draw_stages(axes: Axes, names: Sequence[_StageName], timeline: Timeline) -> None:
    """Mark the stages by bands and lines, and write their names above the axes."""
    for number, stage in enumerate(_with_events(timeline)):
        if number % 2 == 0:
            axes.axvspan(stage.start, stage.end, color=style.PALE, zorder=0)
        axes.axvline(stage.start, color=style.INK, linewidth=0.6, linestyle=":")
    for name in names:
        axes.annotate(
            name.text,
            (name.middle, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4 + name.level * _LEVEL_POINTS),
            textcoords="offset points",
            ha="center",
            fontsize=style.SMALL_FONT_SIZE,
        )


def _with_events(timeline: Timeline) -> list[TimelineStage]:
    """Stages that take some room: others would have their names over what comes next."""
    return [stage for stage in timeline.stages if stage.end > stage.start]


@dataclass(frozen=True)
class _StageName:
    """Where the name of a stage is written."""

    text: str
    middle: float
    """In allocator events."""
    level: int
    """0 right above the axes, 1 above that, and so on."""


def _place_names(timeline: Timeline) -> list[_StageName]:
    """Give each stage's name the lowest level on which it touches no other.

    A name for which there is no room on any level is left out (there are bands, and the words
    below the picture): with dozens of short stages, names would be all one sees.
    """
    events_per_inch = max(timeline.event_count, 1) / _PLOT_WIDTH_IN
    taken_until = [float("-inf")] * _LEVELS
    names = []
    for stage in _with_events(timeline):
        middle = (stage.start + stage.end) / 2
        half = (style.text_width_in(stage.name) / 2 + 0.03) * events_per_inch
        for level in range(_LEVELS):
            if taken_until[level] <= middle - half:
                taken_until[level] = middle + half
                names.append(_StageName(stage.name, middle, level))
                break
    return names


def _mark_failures(axes: Axes, timeline: Timeline) -> None:
    """Draw a line where a request could not be served."""
    for failure in timeline.out_of_memory:
        axes.axvline(failure.position, color=style.ALARM, linewidth=1.5)


def _mark_peak(
    axes: Axes,
    timeline: Timeline,
    unit: MemoryUnit,
    notes: Sequence[_PlacedNote],
    reserved_bytes: Sequence[int],
) -> None:
    """Mark the peak, and write its label where no arrow, line or note lies over it."""
    position = timeline.peak().position
    height = unit.of(timeline.peak_bytes)
    words = f"peak {size_label(timeline.peak_bytes)}"
    (_, end), (_, top) = axes.get_xlim(), axes.get_ylim()
    scale = _PLOT_WIDTH_IN / end, _PLOT_HEIGHT_IN / top
    lines, boxes = _obstacles(timeline, notes, unit, scale)
    reserved = [unit.of(size_bytes) * scale[1] for size_bytes in reserved_bytes]
    peak = position * scale[0], height * scale[1]
    prefers_left = position > timeline.event_count / 2
    places = [
        (-away if on_the_left else away, lift)
        for lift in _PEAK_LIFTS
        for away in _PEAK_AWAY
        for on_the_left in (prefers_left, not prefers_left)
    ]
    away, lift = min(
        places,
        key=lambda place: (
            _hidden(_label_box(peak, words, place), lines, boxes, reserved, scale[0])
            + (abs(place[0]) + place[1]) / 1000
        ),
    )
    axes.plot(position, height, marker="v", color=style.BLACK, markersize=6, clip_on=False)
    axes.annotate(
        words,
        (position, height),
        xytext=(away, lift),
        textcoords="offset points",
        ha="right" if away < 0 else "left",
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"},
        arrowprops=None
        if abs(away) == min(_PEAK_AWAY)
        else {"arrowstyle": "-", "color": style.FAINT, "linewidth": 0.8, "shrinkB": 4},
        zorder=5,
    )


_Point = tuple[float, float]
"""To the right and up, in inches from the axes' corner."""
_Extent = tuple[float, float, float, float]
"""Left, right, low, high, in the same units."""


def _obstacles(
    timeline: Timeline, notes: Sequence[_PlacedNote], unit: MemoryUnit, scale: _Point
) -> tuple[list[tuple[_Point, _Point]], list[_Extent]]:
    """Return the arrows and lines that come down from above, and the boxes of notes."""
    lines: list[tuple[_Point, _Point]] = []
    boxes: list[_Extent] = []
    for note in notes:
        x = note.position * scale[0]
        side = -1 if note.on_the_left else 1
        begin = x + side * _NOTE_SIDE_IN
        far = begin + side * style.text_width_in(note.words)
        top = _PLOT_HEIGHT_IN * (0.97 - note.line * _NOTE_SHARE)
        low = top - _NOTE_HEIGHT_IN
        end = unit.of(timeline.allocated_bytes[note.position]) * scale[1]
        lines.append(((begin, (top + low) / 2), (x, end)))
        boxes.append((min(begin, far), max(begin, far), low, top))
    for failure in timeline.out_of_memory:
        x = failure.position * scale[0]
        lines.append(((x, _PLOT_HEIGHT_IN), (x, 0.0)))
    return lines, boxes


def _label_box(peak: _Point, words: str, place: tuple[int, int]) -> _Extent:
    away, lift = (points / 72 for points in place)
    width = style.text_width_in(words, style.FONT_SIZE)
    left = peak[0] + away - (width if away < 0 else 0)
    low = peak[1] + lift
    return (
        left - _LABEL_PAD_IN,
        left + width + _LABEL_PAD_IN,
        low - _LABEL_PAD_IN,
        low + style.FONT_SIZE / 72 + _LABEL_PAD_IN,
    )


def _hidden(
    label: _Extent,
    lines: Sequence[tuple[_Point, _Point]],
    boxes: Sequence[_Extent],
    reserved: Sequence[float],
    event_in: float,
) -> float:
    """Rate what lies over the peak's label, or it over, at a place: 0 is nothing.

    Args:
        label: where it would be.
        lines: arrows and lines, from end to end.
        boxes: of notes.
        reserved: the line of what is reserved, by event, in inches; empty if not drawn.
        event_in: inches of an event.
    """
    left, right, low, high = label
    width = right - left
    outside = max(0.0, -left, right - _PLOT_WIDTH_IN) + max(0.0, high - _PLOT_HEIGHT_IN)
    struck = sum(_crosses(line, label) for line in lines) + sum(
        left < box[1] and box[0] < right and low < box[3] and box[2] < high for box in boxes
    )
    first = max(0, math.floor(left / event_in))
    under = range(first, min(len(reserved), math.ceil(right / event_in)))
    covered = sum(
        min(reserved[event], reserved[max(event - 1, 0)]) < high and reserved[event] > low
        for event in under
    )
    return 10 * outside / width + 10 * struck + covered * event_in / width


def _crosses(line: tuple[_Point, _Point], box: _Extent) -> bool:
    """Return whether a line that comes down goes through a box."""
    (x1, y1), (x2, y2) = line
    left, right, low, high = box
    upper, lower = min(y1, high), max(y2, low)
    if upper <= lower:
        return False
    at = [x1 + (x2 - x1) * (y1 - y) / (y1 - y2) for y in (upper, lower)]
    return min(at) < right and left < max(at)
