"""PyTorch's zero-bubble order, put in time."""

from __future__ import annotations

from fractions import Fraction

import pytest

from vramlab_course.lessons.l22_pipeline_parallel.zero_bubble import zero_bubble


def test_no_rank_waits_between_its_first_and_its_last_work() -> None:
    ranks, micro_batches = 4, 8
    plan = zero_bubble(ranks, micro_batches)
    for rank in range(ranks):
        cells = [cell for cell in plan.cells if cell.rank == rank]
        # Two half stages; forward, gradients of inputs and of weights take a slot each.
        assert cells[-1].end - cells[0].start == plan.busy_slots(rank) == 2 * 3 * micro_batches
        # As many half stages in flight as 1F1B has whole ones on its first rank.
        assert plan.in_flight(rank) == 2 * ranks
    # What is left is the shift between ranks: 3 of 51 slots.
    assert plan.bubble == Fraction(ranks - 1, 6 * micro_batches + ranks - 1)


def test_too_few_micro_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="6 micro-batches on 4 ranks: PyTorch plans ZBV for at"):
        zero_bubble(4, 6)
