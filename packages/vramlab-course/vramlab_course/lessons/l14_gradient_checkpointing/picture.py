"""Which state of a chain a checkpointing schedule holds when, and what strategies save and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import StrMethodFormatter

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import (
    ScheduleMoment,
    ScheduleSimulation,
)
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look, MemoryUnit

if TYPE_CHECKING:
    from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_experiment import Exchange

_STORED = "stored"
_RECORDED = "recorded for going back"
_CURRENT = "current"
_GRADIENT = "gradient"

_LOOKS = {
    _STORED: Look("#8F6300", text_color="white"),
    _RECORDED: CATEGORY_LOOKS[Category.ACTIVATIONS],
    _CURRENT: CATEGORY_LOOKS[Category.ACTIVATIONS].paler(0.65),
    _GRADIENT: CATEGORY_LOOKS[Category.GRADIENTS],
}
"""Why a state, or the gradient of one, is held; states are activations."""

_NOT_HELD = Look("white")
_EXECUTED, _BY_TORCH = ("o", style.LINE_COLORS[0]), ("s", style.LINE_COLORS[1])
"""Marker and colour of a point: of a schedule, and of what torch has built in."""
_STATE_HEIGHT, _GRADIENT_HEIGHT = 0.55, 0.3
"""Of a row of the grid, whose height is 1."""


def draw_schedule(
    simulation: ScheduleSimulation, *, at: int | None = None, title: str | None = None
) -> Picture:
    """Draw a grid of states and time: a bar wherever a state, or its gradient, is held.

    With `at`, the chain as it is at that moment stands above: f0, f1, ... are the states, b0, b1,
    ... their gradients.

    Args:
        simulation: what a schedule holds, action by action.
        at: number of a moment; 0 is before the first action.
        title: the picture's title; the schedule's name if None.
    """
    steps = simulation.schedule.steps
    grid_in = 1.2 + 0.17 * (steps + 1)
    with style.house_style():
        if at is None:
            picture = new_picture(grid_in + 0.5)
            grid = picture.subplots()
            grid.set_title(title or _heading(simulation), fontsize=style.TITLE_FONT_SIZE)
        else:
            picture = new_picture(grid_in + 2.1)
            chain, grid = picture.subplots(2, 1, height_ratios=(1.4, grid_in))
            _draw_chain(chain, simulation, simulation.moments[at])
            chain.set_title(title or _heading(simulation), fontsize=style.TITLE_FONT_SIZE)
            grid.axvline(at + 0.5, color=style.INK, linewidth=1.5, linestyle=(0, (2, 1)))
        _draw_grid(grid, simulation)
        picture.explain(_LOOKS)
    picture.alt = describe_schedule(simulation, at=at, title=title)
    return picture


def describe_schedule(
    simulation: ScheduleSimulation, *, at: int | None = None, title: str | None = None
) -> str:
    """Describe what `draw_schedule` draws."""
    schedule = simulation.schedule
    words = (
        f"{title or _heading(simulation)}. {len(schedule.actions)} actions, "
        f"{simulation.forwards} of them steps forward; at most {simulation.most_states} states "
        "are held at once."
    )
    if at is None:
        return words
    moment = simulation.moments[at]
    done = "Before the first action" if moment.action is None else f"After {moment.action}"
    held = [
        f"{reason} {', '.join(f'f{state}' for state in states)}"
        for reason, states in (
            (_STORED, sorted(moment.stored)),
            (_RECORDED, sorted(moment.recorded)),
            (_CURRENT, [] if moment.current is None else [moment.current]),
        )
        if states
    ]
    gradient = "" if moment.gradient is None else f"; the gradient b{moment.gradient} is there"
    return f"{words} {done} (action {at}): {'; '.join(held) or 'no state is held'}{gradient}."


def draw_exchange(points: Sequence[Exchange], *, title: str) -> Picture:
    """Draw memory over FLOPs, a point for each strategy: predicted rings around measured dots.

    Args:
        points: one per strategy; the first is the one that FLOPs are compared with.
        title: the picture's title.
    """
    least = points[0].flops
    unit = MemoryUnit.for_axis(max(point.peak_bytes for point in points))
    with style.house_style():
        picture = new_picture(4.6)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        for number, point in enumerate(points, 1):
            _draw_point(axes, number, point, least, unit)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.margins(x=0.06, y=0.12)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axis.set_minor_formatter(StrMethodFormatter("{x:,g}"))
            axis.set_tick_params(which="both", labelsize=style.SMALL_FONT_SIZE)
        axes.set_xlabel("FLOPs of a training step, times those without checkpointing")
        axes.set_ylabel(f"peak beyond parameters and input ({unit.name})")
        _explain_marks(picture)
    picture.alt = describe_exchange(points, title=title)
    return picture


def describe_exchange(points: Sequence[Exchange], *, title: str) -> str:
    """Describe what `draw_exchange` draws."""
    least = points[0].flops
    words = "; ".join(
        f"{number}, {point.strategy}: peak {short_size(point.peak_bytes)} at "
        f"{point.flops / least:.2f} times the FLOPs"
        for number, point in enumerate(points, 1)
    )
    return f"{title}. {words}."


def _heading(simulation: ScheduleSimulation) -> str:
    schedule = simulation.schedule
    return f"A chain of {schedule.steps} steps: {schedule.name}"


def _reason(moment: ScheduleMoment, state: int) -> str | None:
    """Why a state is held at a moment."""
    if state in moment.recorded:
        return _RECORDED
    if state in moment.stored:
        return _STORED
    return _CURRENT if state == moment.current else None


def _draw_grid(axes: Axes, simulation: ScheduleSimulation) -> None:
    moments = simulation.moments
    for state in range(simulation.schedule.steps + 1):
        for reason, start, length in _spans([_reason(moment, state) for moment in moments]):
            _draw_bar(axes, start, length, state - 0.5, _STATE_HEIGHT, _LOOKS[reason])
        gradients = [_GRADIENT if moment.gradient == state else None for moment in moments]
        for reason, start, length in _spans(gradients):
            y = state - 0.5 + _STATE_HEIGHT
            _draw_bar(axes, start, length, y, _GRADIENT_HEIGHT, _LOOKS[reason])
    axes.set_xlim(0, len(moments))
    axes.set_ylim(simulation.schedule.steps + 0.5, -0.6)
    axes.set_xlabel("actions done")
    axes.set_ylabel("state")
    every = 1 if simulation.schedule.steps <= 12 else 4
    axes.set_yticks(
        range(0, simulation.schedule.steps + 1, every),
        [f"f{state}" for state in range(0, simulation.schedule.steps + 1, every)],
        fontsize=style.SMALL_FONT_SIZE,
    )


def _spans(reasons: Sequence[str | None]) -> Iterator[tuple[str, int, int]]:
    """Yield runs of moments with the same reason: the reason, the first moment, how many."""
    for reason, numbers in groupby(range(len(reasons)), reasons.__getitem__):
        run = list(numbers)
        if reason is not None:
            yield reason, run[0], len(run)


def _draw_bar(axes: Axes, start: int, length: int, y: float, height: float, look: Look) -> None:
    axes.broken_barh(
        [(start, length)],
        (y, height),
        facecolor=look.color,
        hatch=look.hatch,
        edgecolor=style.INK,
        linewidth=0.4,
    )


def _draw_chain(axes: Axes, simulation: ScheduleSimulation, moment: ScheduleMoment) -> None:
    """Two rows of circles: states above, gradients below; filled where they are held."""
    steps = simulation.schedule.steps
    for state in range(steps + 1):
        reason = _reason(moment, state)
        _draw_node(axes, state, 1.0, f"f{state}", _LOOKS.get(reason or "", _NOT_HELD))
        held = moment.gradient == state
        _draw_node(axes, state, 0.0, f"b{state}", _LOOKS[_GRADIENT] if held else _NOT_HELD)
    action = "nothing yet" if moment.action is None else str(moment.action)
    axes.text(
        0,
        1.75,
        f"last action: {action}      steps forward so far: {moment.forwards}",
        fontsize=style.FONT_SIZE,
    )
    axes.set_xlim(-0.7, max(steps, 12) + 0.7)
    axes.set_ylim(-0.6, 2.2)
    axes.set_aspect("equal", adjustable="box", anchor="W")
    axes.set_axis_off()


def _draw_node(axes: Axes, x: float, y: float, name: str, look: Look) -> None:
    is_held = look is not _NOT_HELD
    axes.add_patch(
        Circle(
            (x, y),
            0.42,
            facecolor=look.color,
            hatch=look.hatch,
            edgecolor=style.INK,
            linewidth=1.2 if is_held else 0.5,
            linestyle="solid" if is_held else (0, (2, 2)),
        )
    )
    axes.text(
        x,
        y,
        name,
        ha="center",
        va="center",
        fontsize=style.SMALL_FONT_SIZE - 1,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
    )


def _draw_point(axes: Axes, number: int, point: Exchange, least: int, unit: MemoryUnit) -> None:
    """Draw a ring for a prediction, a dot for a measurement, and the strategy's number and name."""
    marker, color = _BY_TORCH if point.by_torch else _EXECUTED
    axes.plot(
        point.predicted_flops / least,
        unit.of(point.predicted_peak_bytes),
        marker=marker,
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=style.INK,
        linestyle="none",
    )
    measured = point.flops / least, unit.of(point.peak_bytes)
    axes.plot(*measured, marker=marker, markersize=5, color=color, linestyle="none")
    axes.annotate(str(number), measured, xytext=(8, 4), textcoords="offset points")
    axes.text(
        1.02,
        0.96 - 0.085 * (number - 1),
        f"{number}  {point.strategy}",
        transform=axes.transAxes,
        fontsize=style.SMALL_FONT_SIZE,
    )


def _explain_marks(picture: Picture) -> None:
    handles = [
        Line2D([], [], marker=marker, color=color, linestyle="none", label=label)
        for (marker, color), label in ((_EXECUTED, "schedule, executed"), (_BY_TORCH, "by torch"))
    ]
    handles += [
        Line2D(
            [],
            [],
            marker="o",
            markersize=10,
            markerfacecolor="none",
            color=style.INK,
            linestyle="none",
            label="predicted",
        ),
    ]
    picture.legend(handles=handles, loc="outside lower left", ncols=len(handles))
