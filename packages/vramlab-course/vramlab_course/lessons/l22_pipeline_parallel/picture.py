"""Who works when in a pipeline: a row for each rank, a box for each pass of a micro-batch."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

from matplotlib.axes import Axes

from vramlab.programs.pipeline_schedules import Cell, PipelineSchedule
from vramlab_course.plots import style
from vramlab_course.plots.bars import name_rows
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, MemoryUnit, fits

_WAITS = "bubble: waits"
_LOOKS: dict[str, Look] = {
    "forward": style.FORWARD_LOOK,
    "backward": style.BACKWARD_LOOK,
    "backward, inputs": style.BACKWARD_LOOK,
    "backward, weights": Look(style.FAINT, text_color="white"),
    _WAITS: Look(style.paler(style.ALARM, 0.65), "//"),
}
"""Work is grey; the bubble has the color of a limit that should not be passed."""

_ROW_IN = 0.34
_PLOT_WIDTH_IN = 8.0  # what is left of a picture's width beside the ranks' names
_MEMORY_IN = 1.6  # of the curves below
_HEIGHT = 0.8
"""Of a box, in a row of height 1."""


def draw_gantt(
    plan: PipelineSchedule,
    *,
    title: str | None = None,
    until: int | None = None,
    micro_batch_bytes: int | None = None,
) -> Picture:
    """Draw a step of a pipeline over time; the numbers in the boxes are those of micro-batches.

    With several stages on a rank, a number has a stroke for each stage of the rank that came
    before: 0 in its first stage, 0' in its second, 0'' in its third.

    Args:
        plan: all work of a step, in time.
        title: the picture's title; what is planned if None.
        until: slots of the time axis, for pictures that are to be compared; the plan's if None.
        micro_batch_bytes: the activations that a micro-batch in flight keeps on a rank; given, a
            curve for each rank stands below: what is in flight over time.
    """
    until = until or plan.slots
    with style.house_style():
        rows_in = 1.15 + _ROW_IN * plan.ranks
        if micro_batch_bytes is None:
            picture = new_picture(rows_in)
            axes = picture.subplots()
        else:
            picture = new_picture(rows_in + _MEMORY_IN)
            axes, below = picture.subplots(2, 1, sharex=True, height_ratios=(rows_in, _MEMORY_IN))
            _draw_in_flight(below, plan, micro_batch_bytes)
        axes.set_title(title or _heading(plan), fontsize=style.TITLE_FONT_SIZE)
        axes.set_xlim(0, until)
        for rank in range(plan.ranks):
            _draw_box(axes, rank, 0, plan.slots, _LOOKS[_WAITS])
        for cell in plan.cells:
            _draw_cell(axes, cell, plan)
        picture.axes[-1].set_xlabel(
            "time in slots. Assumed: backward takes twice as long as forward, sending no time"
        )
        name_rows(axes, [f"rank {rank}" for rank in range(plan.ranks)])
        kinds = {cell.work.direction for cell in plan.cells}
        picture.explain(
            {name: look for name, look in _LOOKS.items() if name in kinds or name == _WAITS}
        )
    picture.alt = describe_gantt(plan, title=title)
    return picture


def describe_gantt(plan: PipelineSchedule, *, title: str | None = None) -> str:
    """Describe what `draw_gantt` draws."""
    ranks = "; ".join(
        f"rank {rank} works {plan.busy_slots(rank)} of {plan.slots} slots and has at most "
        f"{_micro_batches(plan.in_flight(rank))} in flight"
        for rank in range(plan.ranks)
    )
    return f"{title or _heading(plan)}. {ranks}. In all, ranks wait {float(plan.bubble):.1%}."


def _heading(plan: PipelineSchedule) -> str:
    return (
        f"{plan.name}: {_micro_batches(plan.micro_batches)} on {plan.ranks} ranks, "
        f"which wait {float(plan.bubble):.1%} of the time"
    )


def _micro_batches(number: int) -> str:
    return f"{number} micro-batch{'es' if number > 1 else ''}"


def _draw_in_flight(axes: Axes, plan: PipelineSchedule, micro_batch_bytes: int) -> None:
    """Draw a line for each rank: the activations of its micro-batches in flight, over time."""
    unit = MemoryUnit.for_axis(plan.micro_batches * micro_batch_bytes)
    for rank in range(plan.ranks):
        changes = Counter[int]()
        for cell in plan.cells:
            if cell.rank == rank and cell.work.direction == "forward":
                changes[cell.start] += 1
            elif cell.rank == rank and cell.work.direction != "backward, inputs":
                changes[cell.end] -= 1
        times = sorted({0, *changes})
        levels = list(accumulate(changes[time] for time in times))
        axes.step(
            [*times, plan.slots],
            [unit.of(level * micro_batch_bytes) for level in [*levels, levels[-1]]],
            where="post",
            color=style.LINE_COLORS[rank % len(style.LINE_COLORS)],
            label=f"rank {rank}",
        )
    axes.set_ylim(0, unit.of(plan.micro_batches * micro_batch_bytes) * 1.08)
    axes.set_ylabel(f"activations\nin flight, {unit.name}")
    axes.legend(loc="upper right", ncols=plan.ranks, fontsize=style.SMALL_FONT_SIZE)


def _draw_cell(axes: Axes, cell: Cell, plan: PipelineSchedule) -> None:
    look = _LOOKS[cell.work.direction]
    _draw_box(axes, cell.rank, cell.start, cell.slots, look)
    label = str(cell.work.micro_batch) + "'" * (cell.work.stage // plan.ranks)
    if fits(axes, f"{label}i", cell.slots, _PLOT_WIDTH_IN):  # with some room at the edges
        style.write_label(axes, cell.start + cell.slots / 2, cell.rank, label, look)


def _draw_box(axes: Axes, rank: int, start: int, slots: int, look: Look) -> None:
    axes.broken_barh(
        [(start, slots)],
        (rank - _HEIGHT / 2, _HEIGHT),
        facecolor=look.color,
        hatch=look.hatch,
        edgecolor=style.INK,
        linewidth=0.5,
    )
