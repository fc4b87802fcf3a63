"""Carry a plan out on a virtual GPU, one rank alone, and measure what it holds."""

from __future__ import annotations

import torch

from vramlab.gpu import VirtualGPU
from vramlab.measure import breakdown, record_timeline
from vramlab.measure.categories import blocks_by_category
from vramlab.planner.plan import Plan
from vramlab.planner.program import Training, first_rank_of
from vramlab.planner.simulation import Simulation


def simulate(plan: Plan, stage: int = 0, alloc_conf: str | None = None) -> Simulation:
    """Run two steps of the first rank of a stage on a fresh virtual GPU; the second one counts.

    Whatever is attached is left alone.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
        alloc_conf: of the allocator, as in PYTORCH_CUDA_ALLOC_CONF; if None, the environment's.
    """
    with VirtualGPU(plan.gpu, alloc_conf=alloc_conf), first_rank_of(plan, stage) as mesh:
        try:
            return _measured(Training(plan, mesh))
        except torch.OutOfMemoryError as error:
            problem = in_short(error)
        return Simulation(
            stage,
            {},
            torch.cuda.max_memory_allocated(),
            torch.cuda.max_memory_reserved(),
            problem=problem,
        )


def in_short(error: torch.OutOfMemoryError) -> str:
    """What torch says, without where to read more."""
    return str(error).split(" See documentation")[0]


def _measured(training: Training) -> Simulation:
    training.step()
    with record_timeline() as recording:
        recording.watch(
            model=training.model, inputs=list(training.inputs.values()), states=training.states()
        )
        training.forward_and_backward()
        recording.stage("optimizer step")  # gradients are looked up here
        training.update()
    timeline = recording.timeline
    moment = breakdown(timeline).moment
    return Simulation(
        training.stage,
        blocks_by_category(timeline, moment.position),
        moment.allocated_bytes,
        torch.cuda.max_memory_reserved(),
        moment.remainder_bytes,
    )
