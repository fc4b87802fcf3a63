"""Who works when in a pipeline: a row for each rank, a box for each pass of a micro-batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from vramlab.measure.step_times import Rates
from vramlab.programs.pipeline_schedules import PipelineSchedule
from vramlab_course.lessons.l22_pipeline_parallel.schedules import ScheduleRun, bubble, work_of
from vramlab_course.plots import style
from vramlab_course.plots.durations import short_time, unit_of
from vramlab_course.plots.lanes import Lanes, Span, draw_lanes
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.steps import merged, spans_of
from vramlab_course.plots.style import Look

_WAITS = "bubble: waits"
LOOKS: dict[str, Look] = {
    "backward, inputs": style.BACKWARD_LOOK,
    "backward, weights": Look(style.FAINT, text_color="white"),
    _WAITS: Look(style.paler(style.ALARM, 0.65), "//"),
}
"""Work is grey; the bubble has the color of a limit that should not be passed."""


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
    picture = draw_lanes(
        Lanes(
            title=title or _heading(plan),
            time="time in slots. Assumed: backward takes twice as long as forward, sending no time",
            spans=list(_spans(plan)),
            curves={
                f"rank {rank}": _in_flight(plan, rank, micro_batch_bytes)
                for rank in range(plan.ranks)
                if micro_batch_bytes is not None
            },
            looks=LOOKS,
            held="activations in flight",
            until=until or plan.slots,
        )
    )
    picture.alt = describe_gantt(plan, title=title)
    return picture


def _spans(plan: PipelineSchedule) -> Iterator[Span]:
    for rank in range(plan.ranks):
        yield Span(f"rank {rank}", _WAITS, "", 0, plan.slots)
    for cell in plan.cells:
        label = str(cell.work.micro_batch) + "'" * (cell.work.stage // plan.ranks)
        yield Span(f"rank {cell.rank}", cell.work.direction, label, cell.start, cell.end)


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


def _in_flight(
    plan: PipelineSchedule, rank: int, micro_batch_bytes: int
) -> list[tuple[float, int]]:
    """Return the activations of a rank's micro-batches in flight, from each moment on."""
    changes = Counter[int]()
    for cell in plan.cells:
        if cell.rank == rank and cell.work.direction == "forward":
            changes[cell.start] += 1
        elif cell.rank == rank and cell.work.direction != "backward, inputs":
            changes[cell.end] -= 1
    times = sorted({0, *changes})
    levels = accumulate(changes[time] for time in times)
    return [(time, level * micro_batch_bytes) for time, level in zip(times, levels, strict=True)]


_KINDS = {"F": "forward", "B": "backward", "I": "backward, inputs", "W": "backward, weights"}


def draw_schedule(run: ScheduleRun, rates: Rates, *, until_s: float = 0.0) -> Picture:
    """Draw a step that has run on all ranks, in time, and below it what each rank allocates.

    The numbers in the boxes are those of micro-batches; those of a rank's second stage have a
    stroke.

    Args:
        run: of a schedule.
        rates: how fast GPUs compute and send.
        until_s: where the axis of time ends at least, for pictures that are to be compared.
    """
    ranks = run.in_time(rates)
    end_s = max(rank.end_s for rank in ranks)
    unit_s, unit = unit_of(end_s)
    spans = [Span(f"rank {number}", _WAITS, "", 0, end_s / unit_s) for number in range(len(ranks))]
    for number, rank in enumerate(ranks):
        of_rank = spans_of(rank, f"rank {number}", links=False)
        spans += [
            replace(span, start=span.start / unit_s, end=span.end / unit_s)
            for span in merged(_work_spans(of_rank, len(ranks)))
        ]
    return draw_lanes(
        Lanes(
            title=f"{run.name}: ranks wait {bubble(ranks):.1%} of {short_time(end_s)}",
            time=f"{unit}. Assumed of {rates}",
            spans=spans,
            curves={
                f"rank {number}": [(moment / unit_s, size) for moment, size in rank.held()]
                for number, rank in enumerate(ranks)
            },
            looks=LOOKS,
            until=until_s / unit_s,
        )
    )


def _work_spans(spans: Iterator[Span], ranks: int) -> Iterator[Span]:
    for span in spans:
        if (work := work_of(span.label)) is not None:
            stage, kind, micro_batch = work
            label = str(micro_batch) + "'" * (stage >= ranks)
            yield replace(span, kind=_KINDS[kind], label=label)
