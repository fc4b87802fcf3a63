"""Workshop E: the order of work in a pipeline, run on as many GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.programs.pipeline_schedules import Cell, PipelineSchedule, StageWork, plan, put_in_time
from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.building import BARE_T4, Building, Curves
from vramlab_course.tasks.ranks import each_rank
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import as_data, whole

if TYPE_CHECKING:
    from vramlab_course.plots.lanes import Span

RANKS = 4
"""Most there are."""

ROWS, WIDTH = 256, 64
"""Of a micro-batch."""

Order = list[tuple[str, int]]
"""What a rank does, one after the other: "forward" or "backward", and of which micro-batch."""


@dataclass(frozen=True)
class CellReading:
    """What a rank's GPU held while a piece of work was done, and after it."""

    cell: Cell
    peak_bytes: int
    after_bytes: int


@dataclass
class PipelineRun:
    """A step of training, as a schedule has it."""

    schedule: PipelineSchedule
    orders: list[Order]
    """Of each rank."""

    readings: list[CellReading] = field(default_factory=list)


def _orders(program: Callable[..., Any], ranks: int, micro_batches: int) -> list[list[StageWork]]:
    """Ask each rank for its order, and require that it has each piece of work once."""
    orders = each_rank(ranks, lambda rank: _order(program, rank, ranks, micro_batches))
    return [
        [StageWork(way, rank, number) for way, number in order] for rank, order in enumerate(orders)
    ]


def _order(program: Callable[..., Any], rank: int, ranks: int, micro_batches: int) -> Order:
    all_work = {(way, n) for way in ("forward", "backward") for n in range(micro_batches)}
    given = program(rank, ranks, micro_batches)
    order: Any = as_data(list(given) if isinstance(given, Iterator) else given)
    if not _is_list_of_pairs(order):
        raise NotFixed(
            f"For rank {rank} it has to return a list of pairs such as ('forward', 0) or "
            f"('backward', 0); it returns {_short(order)}."
        )
    pairs = [(way, whole(number) or 0) for way, number in order]
    for pair in pairs:
        if pair not in all_work or pairs.count(pair) > 1:
            problem = "twice" if pair in all_work else "which is not in the schedule"
            raise NotFixed(f"The order of rank {rank} has {pair!r}, {problem}.")
    if missing := sorted(all_work.difference(pairs)):
        raise NotFixed(f"The order of rank {rank} is missing {missing[0]!r}.")
    return pairs


def _is_list_of_pairs(order: object) -> bool:
    return isinstance(order, list | tuple) and all(
        isinstance(each, list | tuple)
        and len(each) == 2
        and isinstance(each[0], str)
        and whole(each[1]) is not None
        for each in order
    )


def _short(order: object) -> str:
    return f"{order!r:.60}" if isinstance(order, list | tuple) else type(order).__name__


class _Stages:
    """The stages of a model, one on each GPU, and what travels between them."""

    def __init__(self, ranks: int, micro_batches: int) -> None:
        generator = torch.Generator().manual_seed(ranks)
        self.stages = [_stage(rank, generator) for rank in range(ranks)]
        self.batches = torch.randn(micro_batches, ROWS, WIDTH, generator=generator)
        self.sent: dict[tuple[str, int, int], torch.Tensor] = {}
        self.in_flight: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def work(self, work: StageWork) -> None:
        """Do a piece of work, and send on what comes of it."""
        rank, number = work.stage, work.micro_batch
        if work.direction == "forward":
            x = self.sent.pop(("forward", rank, number), None)
            x = self.batches[number].to(f"cuda:{rank}") if x is None else x.requires_grad_()
            y = self.stages[rank](x)
            self.in_flight[rank, number] = (x, y)
            if rank + 1 < len(self.stages):
                self.sent["forward", rank + 1, number] = y.detach().to(f"cuda:{rank + 1}")
            return
        x, y = self.in_flight.pop((rank, number))
        if rank + 1 < len(self.stages):
            y.backward(self.sent.pop(("backward", rank, number)))
        else:
            (y.square().mean() / len(self.batches)).backward()
        if rank:
            assert x.grad is not None
            self.sent["backward", rank - 1, number] = x.grad.to(f"cuda:{rank - 1}")


def _stage(rank: int, generator: torch.Generator) -> torch.nn.Module:
    linears = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)]
    for each in linears:
        each.weight.data = torch.randn(WIDTH, WIDTH, generator=generator) / 8
    return torch.nn.Sequential(linears[0], torch.nn.GELU(), linears[1]).to(f"cuda:{rank}")


def _model(run: Run, ranks: int, micro_batches: int) -> tuple[_Stages]:
    return (_Stages(ranks, micro_batches),)


def _run_in_order(run: Run) -> PipelineRun:
    """Ask for the orders, put all work in time, and do it."""
    ranks, micro_batches = run.case["ranks"], run.case["micro_batches"]
    orders = _orders(run.program, ranks, micro_batches)
    try:
        schedule = put_in_time("own", orders, [1] * ranks, micro_batches)
    except ValueError as error:
        raise NotFixed(f"The pipeline is stuck: {error}.") from error
    done = PipelineRun(
        schedule, [[(work.direction, work.micro_batch) for work in order] for order in orders]
    )
    for cell in schedule.cells:
        torch.cuda.reset_peak_memory_stats(cell.rank)
        run.inputs[0].work(cell.work)
        done.readings.append(
            CellReading(
                cell,
                torch.cuda.max_memory_allocated(cell.rank),
                torch.cuda.memory_allocated(cell.rank),
            )
        )
    return done


def _slots(run: Run) -> int:
    return int(run.results.schedule.slots)


def _gpipe(rank: int, ranks: int, micro_batches: int) -> Order:
    return _planned("GPipe", rank, ranks, micro_batches)


def _one_forward_one_backward(rank: int, ranks: int, micro_batches: int) -> Order:
    return _planned("1F1B", rank, ranks, micro_batches)


def _planned(name: Any, rank: int, ranks: int, micro_batches: int) -> Order:
    whole = plan(name, ranks, micro_batches)
    return [(work.direction, work.micro_batch) for work in whole.order(rank)]


def _as_gpipe(run: Run, _: object) -> None:
    """Require GPipe's order, which leaves nothing to choose."""
    ranks, micro_batches = run.case["ranks"], run.case["micro_batches"]
    for rank, (wanted, order) in enumerate(
        (_gpipe(rank, ranks, micro_batches), run.results.orders[rank]) for rank in range(ranks)
    ):
        for place, (expected, found) in enumerate(zip(wanted, order, strict=True)):
            if found != expected:
                raise NotFixed(
                    f"It runs, but the order is not GPipe's: rank {rank} does {found!r} in "
                    f"position {place}, where {expected!r} is expected."
                )


def _as_few_in_flight(run: Run, _: object) -> None:
    """Require that no rank has more micro-batches in flight than in our 1F1B."""
    ranks, micro_batches = run.case["ranks"], run.case["micro_batches"]
    target = plan("1F1B", ranks, micro_batches)
    for rank in range(ranks):
        found, most = (each.in_flight(rank) for each in (run.results.schedule, target))
        if found > most:
            raise NotFixed(
                f"Rank {rank} has {found} micro-batches in flight at the same time; the target is "
                f"{most}. How long does it have to wait for its first backward pass?"
            )


def _in_flight(run: Run) -> str:
    """Describe how many micro-batches ranks hold."""
    schedule = run.results.schedule
    counts = (f"rank {rank} {schedule.in_flight(rank)}" for rank in range(schedule.ranks))
    return f"micro-batches in flight at most: {', '.join(counts)}"


def _too_much(run: Run) -> str:
    peak_bytes, limit_bytes = format_bytes(run.peak_bytes), format_bytes(run.limit_bytes)
    return (
        f"A GPU allocates {peak_bytes} at its peak; the target is {limit_bytes}: {_in_flight(run)}."
    )


def _work_of_ranks(run: Run) -> list[Span]:
    from vramlab_course.plots.lanes import Span

    return sorted(
        (
            Span(
                f"rank {cell.rank}",
                cell.work.direction,
                f"{cell.work.micro_batch}",
                cell.start,
                cell.end,
            )
            for cell in run.results.schedule.cells
        ),
        key=lambda span: span.lane,
    )


def _held_in_time(run: Run) -> Curves:
    curves: dict[str, list[tuple[float, int]]] = {}
    for rank in range(run.results.schedule.ranks):
        curve: dict[float, int] = {0: run.record.held_bytes[rank][0]}
        for reading in run.results.readings:
            if reading.cell.rank == rank:
                curve[reading.cell.start] = reading.peak_bytes
                curve[reading.cell.end] = reading.after_bytes
        curves[f"rank {rank}"] = list(curve.items())
    return curves


def _scheduling(**how: Any) -> Building:
    return Building(
        gpu=BARE_T4.but(count=RANKS, values=False),  # only bytes and time are compared
        ranks=RANKS,
        own_name="PyTorch",
        build=_model,
        call=_run_in_order,
        limit=lambda own: own.peak_bytes,
        ran_out=_too_much,
        steps=_slots,
        steps_name="slots of time",
        question="Which rank waits for which, and for how long?",
        most_steps=_slots,
        time="time in slots: a forward pass takes one, a backward pass two",
        time_is_steps=True,
        bars=_work_of_ranks,
        curves=_held_in_time,
        largest=_in_flight,
        **how,
    )


VISIBLE: tuple[Config, ...] = (
    {"ranks": 4, "micro_batches": 8},
    {"ranks": 3, "micro_batches": 2},
)


def _hidden(random: Random) -> list[Config]:
    return [
        {"ranks": 4, "micro_batches": random.randrange(5, 11)},
        {"ranks": random.randrange(2, 4), "micro_batches": random.randrange(3, 8)},
        {"ranks": 4, "micro_batches": random.randrange(1, 4)},
    ]


GPIPE = Workshop(
    name="gpipe",
    points=2,
    minutes=15,
    visible=VISIBLE,
    hidden=_hidden,
    steps="slots of time",
    is_plain=True,
    without=("torch",),
    trial=_scheduling(fits=_gpipe, compare=_as_gpipe),
)

ONE_ONE = Workshop(
    name="one_forward_one_backward",
    points=5,
    minutes=35,
    visible=VISIBLE,
    hidden=_hidden,
    steps="slots of time",
    is_plain=True,
    without=("torch",),
    trial=_scheduling(fits=_one_forward_one_backward, compare=_as_few_in_flight),
)

EXERCISE = Exercise(name="workshop_e_pipeline", module=__name__, tasks=(GPIPE, ONE_ONE))
