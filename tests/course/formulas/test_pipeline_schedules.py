"""Schedules of pipelines: the order of PyTorch's own, and what can be counted by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from torch.distributed.pipelining import schedules as of_torch

from vramlab.programs.pipeline_schedules import Name, StageWork, bubble_fraction, in_flight, plan

Order = list[tuple[str, int, int | None]]

LETTERS = {
    of_torch._ComputationType.FORWARD: "forward",
    of_torch._ComputationType.FULL_BACKWARD: "backward",
}


def order_of_torch(ranks: int, micro_batches: int, rank: int, stages_per_rank: int) -> Order:
    """What PyTorch's interleaved schedule says that a rank does, without stages or processes."""
    schedule = object.__new__(of_torch.ScheduleInterleaved1F1B)
    schedule.n_local_stages, schedule.pp_group_size = stages_per_rank, ranks
    schedule._n_microbatches = micro_batches
    schedule.number_of_rounds = micro_batches // ranks
    schedule.microbatches_per_round = ranks
    return [
        (LETTERS[action.computation_type], action.stage_index, action.microbatch_index)
        for action in schedule._calculate_single_rank_operations(rank)
        if action is not None and action.computation_type in LETTERS
    ]


# test_experiment.py compares GPipe and 1F1B with what PyTorch runs.
@pytest.mark.parametrize(
    ("ranks", "micro_batches", "stages_per_rank"), [(4, 8, 2), (2, 6, 3), (4, 4, 2), (3, 9, 1)]
)
def test_interleaved_every_rank_works_in_the_order_of_torch(
    ranks: int, micro_batches: int, stages_per_rank: int
) -> None:
    whole = plan("interleaved 1F1B", ranks, micro_batches, stages_per_rank)
    for rank in range(ranks):
        order = [(work.direction, work.stage, work.micro_batch) for work in whole.order(rank)]
        assert order == order_of_torch(ranks, micro_batches, rank, stages_per_rank)


@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
@pytest.mark.parametrize(
    ("ranks", "micro_batches"), [(1, 3), (4, 1), (4, 3), (4, 4), (4, 8), (8, 20)]
)
def test_the_counted_bubble_is_that_of_the_closed_form(
    name: Name, ranks: int, micro_batches: int
) -> None:
    whole = plan(name, ranks, micro_batches)
    # a micro-batch takes 1 + 2 slots; the last rank begins ranks - 1 forwards late, and the first
    # one ends ranks - 1 backwards after it
    assert whole.slots == 3 * (micro_batches + ranks - 1)
    assert whole.bubble == bubble_fraction(ranks, micro_batches)
    assert whole.bubble == Fraction(ranks - 1, micro_batches + ranks - 1)
    for rank in range(ranks):
        assert whole.busy_slots(rank) == 3 * micro_batches
        assert whole.in_flight(rank) == in_flight(name, rank, ranks, micro_batches)


def test_one_micro_batch_is_model_parallelism() -> None:
    assert plan("GPipe", 4, 1).bubble == Fraction(3, 4)


def test_who_waits_by_hand() -> None:
    """Two ranks, two micro-batches: | 0 1 . b0b0 b1b1 | for rank 0, one slot later for rank 1."""
    whole = plan("GPipe", 2, 2)
    cells = [(c.rank, c.work.direction[0], c.work.micro_batch, c.start) for c in whole.cells]
    assert cells == [
        (0, "f", 0, 0),
        (0, "f", 1, 1),
        (1, "f", 0, 1),
        (1, "f", 1, 2),
        (1, "b", 0, 3),
        (0, "b", 0, 5),
        (1, "b", 1, 5),
        (0, "b", 1, 7),
    ]
    assert whole.slots == 9  # 3 * (2 + 2 - 1)


def test_micro_batches_in_flight() -> None:
    assert [in_flight("GPipe", rank, 4, 8) for rank in range(4)] == [8, 8, 8, 8]
    assert [in_flight("1F1B", rank, 4, 8) for rank in range(4)] == [4, 3, 2, 1]
    assert [in_flight("1F1B", rank, 4, 2) for rank in range(4)] == [2, 2, 2, 1]


def test_interleaving_shortens_the_bubble_and_lengthens_the_list_of_micro_batches() -> None:
    whole = plan("interleaved 1F1B", 4, 8, 2)
    assert whole.bubble == Fraction(3, 19) == bubble_fraction(4, 8, 2)  # 3 of 8 * 2 + 3
    # of half a rank's layers each: 11 / 2 rather than 4
    assert [whole.in_flight(rank) for rank in range(4)] == [11, 9, 7, 5]
    assert whole.order(1)[4] == StageWork("forward", 5, 0)  # the second stage of rank 1 is 1 + 4


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "interleaved 1F1B"])
def test_nothing_starts_before_its_input_is_there(name: Name) -> None:
    whole = plan(name, 4, 8, 2 if name == "interleaved 1F1B" else 1)
    ends = {cell.work: cell.end for cell in whole.cells}
    stages = 1 + max(work.stage for work in ends)
    assert len(ends) == 2 * stages * 8
    for cell in whole.cells:
        work = cell.work
        if work.direction == "forward" and work.stage:
            assert ends[StageWork("forward", work.stage - 1, work.micro_batch)] <= cell.start
        if work.direction == "backward":
            later = (
                StageWork("forward", work.stage, work.micro_batch)
                if work.stage == stages - 1
                else StageWork("backward", work.stage + 1, work.micro_batch)
            )
            assert ends[later] <= cell.start


def test_the_longest_stage_decides() -> None:
    """Stages of 1 and 2 slots: of 2 * (4 * 6 + 1 + 2) rank 0 works 4 * 3, rank 1 works 4 * 6."""
    whole = plan("1F1B", 2, 4, forward_slots=(1, 2))
    assert whole.slots == 1 + 4 * 6 + 2  # in, four micro-batches, and back out
    assert [whole.busy_slots(rank) for rank in range(2)] == [12, 24]
    assert whole.bubble == Fraction(2 * 27 - 36, 2 * 27)
