"""Carry a plan out on a virtual GPU, as a single-rank simulation, and measure its memory."""

from __future__ import annotations

from dataclasses import replace

import torch

from vramlab.garbage import no_garbage_collection
from vramlab.measure import Timeline
from vramlab.native.values import KnownValues
from vramlab.planner.plan import Plan
from vramlab.planner.program import first_rank_of
from vramlab.planner.simulation import Simulation
from vramlab.planner.tracing import gpu_of, peak_of, record_steps


def simulate(plan: Plan, stage: int = 0, alloc_conf: str | None = None) -> Simulation:
    """Run two steps of the first rank of a stage on a fresh virtual GPU.

    Whatever is attached is left alone.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
        alloc_conf: of the allocator, as in PYTORCH_CUDA_ALLOC_CONF; if None, the environment's.
    """
    with gpu_of(plan, plan.model, alloc_conf):
        return _two_steps(plan, stage)


def simulate_inside(plan: Plan, stage: int = 0) -> Simulation:
    """Run them on the GPU of this process, which runs on the native engine.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
    """
    with KnownValues():
        return replace(_two_steps(plan, stage), native_torch=str(torch.__version__))


def _two_steps(plan: Plan, stage: int) -> Simulation:
    with no_garbage_collection(), first_rank_of(plan, stage) as mesh:
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
    """Return what torch says, without where to read more."""
    return str(error).split(" See documentation")[0]


def _measured(stage: int, timeline: Timeline, reserved_bytes: int) -> Simulation:
    found = peak_of(timeline)
    return Simulation(stage, found.bytes_by_category, timeline.peak_bytes, reserved_bytes)
