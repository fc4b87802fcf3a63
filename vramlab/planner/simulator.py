"""Carry a plan out on a virtual GPU, one rank alone, and measure what it holds."""

from __future__ import annotations

import torch

from vramlab.measure import Timeline
from vramlab.planner.events import peak
from vramlab.planner.plan import Plan
from vramlab.planner.program import first_rank_of
from vramlab.planner.simulation import Simulation
from vramlab.planner.tracing import begin_of_step, events_of, gpu_of, no_collections, record_steps


def simulate(plan: Plan, stage: int = 0, alloc_conf: str | None = None) -> Simulation:
    """Run two steps of the first rank of a stage on a fresh virtual GPU; the second one counts.

    Whatever is attached is left alone.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
        alloc_conf: of the allocator, as in PYTORCH_CUDA_ALLOC_CONF; if None, the environment's.
    """
    gpu = gpu_of(plan, plan.model, alloc_conf)
    with no_collections(), gpu, first_rank_of(plan, stage) as mesh:
        try:
            return _measured(stage, record_steps(plan, mesh), torch.cuda.max_memory_reserved())
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
    """Give what torch says, without where to read more."""
    return str(error).split(" See documentation")[0]


def _measured(stage: int, timeline: Timeline, reserved_bytes: int) -> Simulation:
    found = peak(events_of(timeline))
    allocated_bytes = max(timeline.allocated_bytes[begin_of_step(timeline) :])
    return Simulation(
        stage,
        found.bytes_by_category,
        allocated_bytes,
        reserved_bytes,
        allocated_bytes - found.total_bytes,
    )
