"""Who works when in a pipeline: a row for each rank, a box for each pass of a micro-batch."""

from __future__ import annotations

from matplotlib.axes import Axes

from vramlab.programs.pipeline_schedules import Cell, PipelineSchedule
from vramlab_course.plots import style
from vramlab_course.plots.bars import name_rows
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, fits

_FORWARD, _BACKWARD, _WAITS = "forward", "backward", "waits"

_LOOKS = {
    _FORWARD: style.FORWARD_LOOK,
    _BACKWARD: style.BACKWARD_LOOK,
    _WAITS: Look("white"),
}

_ROW_IN = 0.34
_PLOT_WIDTH_IN = 8.0  # what is left of a picture's width beside the ranks' names
_HEIGHT = 0.8
"""Of a box, in a row of height 1."""


def draw_gantt(plan: PipelineSchedule, *, title: str | None = None) -> Picture:
    """Draw a step of a pipeline over time; the numbers in the boxes are those of micro-batches.

    With several stages on a rank, a number has a stroke for each stage of the rank that came
    before: 0 in its first stage, 0' in its second, 0'' in its third.

    Args:
        plan: all work of a step, in time.
        title: the picture's title; what is planned if None.
    """
    with style.house_style():
        picture = new_picture(1.15 + _ROW_IN * plan.ranks)
        axes = picture.subplots()
        axes.set_title(title or _heading(plan), fontsize=style.TITLE_FONT_SIZE)
        axes.set_xlim(0, plan.slots)
        for rank in range(plan.ranks):
            _draw_box(axes, rank, 0, plan.slots, _LOOKS[_WAITS])
        for cell in plan.cells:
            _draw_cell(axes, cell, plan)
        axes.set_xlabel("time in slots: backward takes twice as many as forward")
        name_rows(axes, [f"rank {rank}" for rank in range(plan.ranks)])
        picture.explain(_LOOKS)
    picture.alt = describe_gantt(plan, title=title)
    return picture


def describe_gantt(plan: PipelineSchedule, *, title: str | None = None) -> str:
    """Say in words what `draw_gantt` draws."""
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
