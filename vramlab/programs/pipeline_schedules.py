"""Who works when in a pipeline: the order of work on each rank, and the slots it falls into.

A model is cut into stages. A batch is cut into micro-batches, and each goes forward through all
stages and backward through all of them. A schedule is the order in which a rank does its share;
the rest follows: work starts as soon as its rank is free and its input is there.

Time is counted in slots: a forward pass of a micro-batch through a stage takes one (or as many as
the stage is long), its backward pass twice as many, because backward has two matrix products for
each one of forward. Sending takes none.

Sources: GPipe, arXiv 1811.06965; 1F1B, arXiv 1806.03377 and, with the flush at the end of a step,
arXiv 2104.04473 §2.2.1, where its interleaved form is, too (§2.2.2). The orders are those of
torch/distributed/pipelining/schedules.py, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle

Name = Literal["GPipe", "1F1B", "interleaved 1F1B"]
NAMES: tuple[Name, ...] = get_args(Name)

BACKWARD_PER_FORWARD = 2
"""How much longer backward takes."""

Direction = Literal["forward", "backward", "backward, inputs", "backward, weights"]
"""Zero-bubble schedules (arXiv 2401.10241) split backward into two: the gradients of a stage's
inputs, which the stage before waits for, and those of its weights, which can wait."""
_SLOTS_PER_FORWARD: dict[Direction, int] = {
    "forward": 1,
    "backward": BACKWARD_PER_FORWARD,
    "backward, inputs": BACKWARD_PER_FORWARD // 2,
    "backward, weights": BACKWARD_PER_FORWARD // 2,
}


@dataclass(frozen=True)
class StageWork:
    """A micro-batch that passes a stage."""

    direction: Direction
    """Towards the loss, or back from it."""
    stage: int
    """0 is the first one."""
    micro_batch: int
    """0 is the first one."""

    def __str__(self) -> str:
        return f"{self.direction} of micro-batch {self.micro_batch} in stage {self.stage}"


@dataclass(frozen=True)
class Cell:
    """Work in its place in time."""

    work: StageWork
    """What is done."""
    rank: int
    """Who does it."""
    start: int
    """The slot in which it begins."""
    slots: int
    """How many it takes."""

    @property
    def end(self) -> int:
        """The first slot after it."""
        return self.start + self.slots


@dataclass(frozen=True)
class PipelineSchedule:
    """All work of a step, in time."""

    name: str
    """The schedule's."""
    ranks: int
    """How many GPUs share the model."""
    micro_batches: int
    """Of a step."""
    cells: tuple[Cell, ...]
    """In the order in which they begin; those of a rank in the order of its schedule."""

    @property
    def slots(self) -> int:
        """From the first forward pass to the last backward pass."""
        return max(cell.end for cell in self.cells)

    def busy_slots(self, rank: int) -> int:
        """Count the slots in which a rank works."""
        return sum(cell.slots for cell in self.cells if cell.rank == rank)

    @property
    def bubble(self) -> Fraction:
        """The share of all ranks' time in which they wait."""
        busy = sum(cell.slots for cell in self.cells)
        return 1 - Fraction(busy, self.ranks * self.slots)

    def order(self, rank: int) -> list[StageWork]:
        """List the work of a rank, one after the other."""
        return [cell.work for cell in self.cells if cell.rank == rank]

    def in_flight(self, rank: int, *, after_first: bool = False) -> int:
        """Return the most micro-batches (of a stage) that a rank holds at once.

        One is in flight from the beginning of its forward pass to the end of its backward pass.

        Args:
            rank: which one.
            after_first: count only from the end of the first backward pass on, when there are
                gradients.
        """
        most = held = 0
        counts = not after_first
        for work in self.order(rank):
            if work.direction == "forward":
                held += 1
            elif work.direction != "backward, inputs":
                held -= 1
                counts = True
            most = max(most, held) if counts else most
        return most


def plan(
    name: Name,
    ranks: int,
    micro_batches: int,
    stages_per_rank: int = 1,
    forward_slots: Sequence[int] | None = None,
) -> PipelineSchedule:
    """Put every piece of work of a step in its place.

    Args:
        name: of the schedule.
        ranks: GPUs, one after the other.
        micro_batches: of a step. Model parallelism without a pipeline is GPipe with one.
        stages_per_rank: more than one for interleaved 1F1B only. Rank r has the stages r,
            r + ranks, r + 2 ranks, ...
        forward_slots: how many slots a forward pass takes in each stage; one in each if None.

    Raises:
        ValueError: no such schedule, or it cannot be made of these numbers.
    """
    if ranks < 1 or micro_batches < 1 or stages_per_rank < 1:
        raise ValueError(
            f"{ranks} ranks, {micro_batches} micro-batches, {stages_per_rank} stages per rank: "
            "each has to be 1 at least"
        )
    if name not in NAMES:
        raise ValueError(f"No schedule named {name!r}. Known: {', '.join(NAMES)}.")
    if name != "interleaved 1F1B":
        if stages_per_rank > 1:
            raise ValueError(f"{name} has one stage per rank; interleaved 1F1B can have more")
        one = _gpipe_order if name == "GPipe" else _one_forward_one_backward_order
        orders = [one(rank, ranks, micro_batches) for rank in range(ranks)]
    else:
        if micro_batches % ranks:
            raise ValueError(
                f"interleaved 1F1B takes micro-batches in groups of {ranks}, one for each rank: "
                f"{micro_batches} is no multiple of it"
            )
        orders = [
            _interleaved_order(rank, ranks, micro_batches, stages_per_rank) for rank in range(ranks)
        ]
    stages = ranks * stages_per_rank
    slots = [1] * stages if forward_slots is None else list(forward_slots)
    if len(slots) != stages or min(slots) < 1:
        raise ValueError(f"slots {slots} for {stages} stages: each takes 1 at least")
    return put_in_time(name, orders, slots, micro_batches)


def put_in_time(
    name: str,
    orders: Sequence[Sequence[StageWork]],
    forward_slots: Sequence[int],
    micro_batches: int,
) -> PipelineSchedule:
    """Put the work of ranks in its place, whatever their orders are.

    Args:
        name: what they are called.
        orders: of each rank.
        forward_slots: how many slots a forward pass takes in each stage.
        micro_batches: of a step.

    Raises:
        ValueError: ranks wait for each other, or for work that no rank does; names both.
    """
    return PipelineSchedule(name, len(orders), micro_batches, _in_time(orders, forward_slots))


def bubble_fraction(ranks: int, micro_batches: int, stages_per_rank: int = 1) -> Fraction:
    """Return the share of time in which ranks wait, in closed form; GPipe and 1F1B have the same.

    A rank works for `micro_batches x stages_per_rank` micro-batches, forward and backward. It waits
    for `ranks - 1` of them: until the first one arrives, and after the last one has left.
    """
    work = micro_batches * stages_per_rank
    return Fraction(ranks - 1, work + ranks - 1)


def in_flight(name: Name, rank: int, ranks: int, micro_batches: int) -> int:
    """Return the most micro-batches that a rank holds at once, with a stage per rank."""
    return micro_batches if name == "GPipe" else min(micro_batches, ranks - rank)


def _gpipe_order(rank: int, ranks: int, micro_batches: int) -> list[StageWork]:
    """Everything forward, then everything backward."""
    return [
        *(StageWork("forward", rank, number) for number in range(micro_batches)),
        *(StageWork("backward", rank, number) for number in range(micro_batches)),
    ]


def _one_forward_one_backward_order(rank: int, ranks: int, micro_batches: int) -> list[StageWork]:
    """Forward until the first gradient can be there, then one backward for every forward."""
    forwards = [StageWork("forward", rank, number) for number in range(micro_batches)]
    backwards = [StageWork("backward", rank, number) for number in range(micro_batches)]
    return _alternating(forwards, backwards, ahead=ranks - 1 - rank)


def _interleaved_order(
    rank: int, ranks: int, micro_batches: int, stages_per_rank: int
) -> list[StageWork]:
    """Interleave several stages on a rank: in turn, as many micro-batches each as ranks."""
    works = micro_batches * stages_per_rank
    forwards, backwards = [], []
    for number in range(works):
        turn, place = divmod(number, ranks)
        rounds, share = divmod(turn, stages_per_rank)
        micro_batch = rounds * ranks + place
        forwards.append(StageWork("forward", share * ranks + rank, micro_batch))
        last_first = stages_per_rank - 1 - share
        backwards.append(StageWork("backward", last_first * ranks + rank, micro_batch))
    ahead = (stages_per_rank - 1) * ranks + 2 * (ranks - 1 - rank)
    return _alternating(forwards, backwards, ahead)


def _alternating(
    forwards: Sequence[StageWork], backwards: Sequence[StageWork], ahead: int
) -> list[StageWork]:
    """Return some forward passes, then one forward and one backward in turn, then the rest."""
    ahead = min(ahead, len(forwards))
    order = list(forwards[:ahead])
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return [*order, *backwards[len(forwards) - ahead :]]


def _in_time(
    orders: Sequence[Sequence[StageWork]], forward_slots: Sequence[int]
) -> tuple[Cell, ...]:
    """Start everything as soon as its rank is free and its input is there."""
    stages = len(forward_slots)
    ends: dict[StageWork, int] = {}
    cells: list[Cell] = []
    done = [0] * len(orders)
    free = [0] * len(orders)
    while len(cells) < sum(map(len, orders)):
        before = len(cells)
        for rank, order in enumerate(orders):
            while done[rank] < len(order):
                work = order[done[rank]]
                needed = _needed(work, stages)
                if needed is not None and needed not in ends:
                    break
                start = max(free[rank], 0 if needed is None else ends[needed])
                slots = forward_slots[work.stage] * _SLOTS_PER_FORWARD[work.direction]
                cells.append(Cell(work, rank, start, slots))
                ends[work] = free[rank] = start + slots
                done[rank] += 1
        if len(cells) == before:
            waiting = [
                f"rank {rank}, with {order[place]}, for {_needed(order[place], stages)}"
                for rank, (order, place) in enumerate(zip(orders, done, strict=True))
                if place < len(order)
            ]
            raise ValueError(f"ranks wait for what does not come: {'; '.join(waiting)}")
    return tuple(sorted(cells, key=lambda cell: (cell.start, cell.rank)))


def _needed(work: StageWork, stages: int) -> StageWork | None:
    """Find the work that has to be done before: of the stage before, or after in backward."""
    if work.direction == "forward":
        return StageWork("forward", work.stage - 1, work.micro_batch) if work.stage else None
    if work.direction == "backward, weights":
        return StageWork("backward, inputs", work.stage, work.micro_batch)
    if work.stage == stages - 1:
        return StageWork("forward", work.stage, work.micro_batch)
    return StageWork(work.direction, work.stage + 1, work.micro_batch)


def schedule_of_torch(name: str) -> type[PipelineScheduleSingle]:
    """Return PyTorch's class for a schedule that needs no interleaving: GPipe or 1F1B."""
    # Imported here: it brings torch.export and Dynamo, which take a second.
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe

    return {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}[name]
