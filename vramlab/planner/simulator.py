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


def simulate(
    plan: Plan, stage: int = 0, alloc_conf: str | None = None, steps: int = 2
) -> Simulation:
    """Run steps of the first rank of a stage on a fresh virtual GPU.

    Whatever is attached is left alone.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
        alloc_conf: of the allocator, as in PYTORCH_CUDA_ALLOC_CONF; if None, the environment's.
        steps: how many; a third step can take more than the second, if free blocks lie elsewhere.
    """
    with gpu_of(plan, plan.model, alloc_conf):
        return _run(plan, stage, steps)


def simulate_inside(plan: Plan, stage: int = 0) -> Simulation:
    """Run two steps on the GPU of this process, which runs on the native engine.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
    """
    with KnownValues():
        return replace(_run(plan, stage, steps=2), native_torch=str(torch.__version__))


def _run(plan: Plan, stage: int, steps: int) -> Simulation:
    with no_garbage_collection(), first_rank_of(plan, stage) as mesh:
        try:
            timeline = record_steps(plan, mesh, steps=steps)
            return _measured(stage, timeline, torch.cuda.max_memory_reserved())
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
