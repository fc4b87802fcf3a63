"""PyTorch's zero-bubble schedules, put in time like the others.

A zero-bubble schedule (arXiv 2401.10241) splits each backward pass in two, and moves the half that
no other stage waits for into the bubble. The orders are PyTorch's own: the method that its
schedules call to plan one rank's work, in torch/distributed/pipelining/schedules.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vramlab.programs.pipeline_schedules import (
    Direction,
    PipelineSchedule,
    StageWork,
    put_in_time,
)

_DIRECTIONS: dict[str, tuple[Direction, ...]] = {
    "FORWARD": ("forward",),
    "BACKWARD_INPUT": ("backward, inputs",),
    "BACKWARD_WEIGHT": ("backward, weights",),
    "FULL_BACKWARD": ("backward, inputs", "backward, weights"),
}


def zero_bubble(ranks: int, micro_batches: int) -> PipelineSchedule:
    """Plan ZBV: two stages of half the length on each rank, the second ones in reverse order.

    Rank r has the stages r and 2 * ranks - 1 - r, so the first rank also computes the loss.

    Args:
        ranks: GPUs.
        micro_batches: of a step; PyTorch fills up to 2 * ranks - 1 of them.

    Raises:
        ValueError: there are fewer micro-batches than PyTorch plans for.
    """
    from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

    if micro_batches < 2 * ranks - 1:
        raise ValueError(
            f"{micro_batches} micro-batches on {ranks} ranks: PyTorch plans ZBV for at least "
            f"{2 * ranks - 1}"
        )
    settings: Any = SimpleNamespace(
        pp_group_size=ranks, num_stages=2 * ranks, _n_microbatches=micro_batches
    )
    orders = []
    for rank in range(ranks):
        actions = ScheduleZBVZeroBubble._calculate_single_rank_operations(settings, rank)
        orders.append(
            [
                StageWork(direction, action.stage_index, action.microbatch_index)
                for action in actions
                if action is not None and action.microbatch_index is not None
                for direction in _DIRECTIONS[action.computation_type.name]
            ]
        )
    return put_in_time("ZBV", orders, [1] * (2 * ranks), micro_batches)
