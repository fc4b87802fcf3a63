"""Carry a plan out on a virtual GPU, one rank alone, and measure what it holds."""

from __future__ import annotations

import torch

from vramlab.measure import Category, attribute, breakdown, record_timeline
from vramlab.planner.plan import Plan
from vramlab.planner.program import Training, join_mesh
from vramlab.planner.simulation import Simulation
from vramlab.ranks import alone
from vramlab.virtual import VirtualGPU


def simulate(plan: Plan, stage: int = 0, alloc_conf: str | None = None) -> Simulation:
    """Run two steps of the first rank of a stage on a fresh virtual GPU; the second one counts.

    Whatever is attached is left alone.

    Args:
        plan: what to carry out.
        stage: of the pipeline.
        alloc_conf: of the allocator, as in PYTORCH_ALLOC_CONF; if None, what is set there.
    """
    rank = stage * plan.data * plan.tensor
    with VirtualGPU(plan.gpu, alloc_conf=alloc_conf):
        torch.cuda.set_device(0)  # else a DeviceMesh warns that nobody has chosen a GPU
        with alone(plan.ranks, rank):
            try:
                return _measured(plan, stage)
            except torch.OutOfMemoryError as error:
                said = str(error).split(" See documentation")[0]
            return Simulation(
                stage,
                {},
                torch.cuda.max_memory_allocated(),
                torch.cuda.max_memory_reserved(),
                problem=said,
            )


def _measured(plan: Plan, stage: int) -> Simulation:
    training = Training(plan, join_mesh(plan))
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
    sums: dict[str, int] = {}
    for block, found in zip(timeline.blocks, attribute(timeline), strict=True):
        if block.lives_at(moment.position):
            # What was there before and is nobody's is the workspace of autograd's thread.
            other = found.category is Category.OTHER
            name = Category.WORKSPACES if other else found.category
            sums[name] = sums.get(name, 0) + block.rounded_bytes
    return Simulation(
        stage,
        sums,
        moment.allocated_bytes,
        torch.cuda.max_memory_reserved(),
        moment.remainder_bytes,
    )
