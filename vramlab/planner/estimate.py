"""What a plan comes to: the peak of one rank, from steps of a few layers, extended to all.

All blocks that steps allocate and free, from the making of the model on, are served by the
allocator of a GPU as large as the plan's. So the peak is what `torch.cuda.max_memory_allocated()`
returns after training, unsplit remainders included, and whether it fits is known, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from vramlab.errors import OutOfDeviceMemory
from vramlab.planner.about import about_bytes
from vramlab.planner.events import Moment, moments, peak
from vramlab.planner.plan import Plan

if TYPE_CHECKING:
    from vramlab.allocator import CachingAllocator

Fitting = Literal["fits", "may fit", "does not fit"]

NARROW = 0.93
"""Share of the GPU beyond which a sum of blocks may not fit: the allocator keeps remainders and
gaps."""

ROOM_BYTES = 2**46
"""Memory of a GPU that every plan fits on."""

CLOSE = 0.85
"""Share of the largest stage's peak, in closed form, from which on a stage is run, too."""


def fitting_of(peak_bytes: int, available_bytes: int) -> Fitting:
    """Return whether a GPU has room for a sum of blocks.

    Args:
        peak_bytes: the blocks together.
        available_bytes: what the GPU has beside its CUDA context.
    """
    if peak_bytes > available_bytes:
        return "does not fit"
    return "fits" if peak_bytes <= NARROW * available_bytes else "may fit"


def available_bytes(plan: Plan) -> int:
    """Return what a GPU of the plan has beside its CUDA context."""
    return plan.model.total_bytes - plan.model.context_bytes


@dataclass(frozen=True)
class Estimate:
    """The peak of one rank of a plan."""

    plan: Plan
    stage: int
    """Of the pipeline."""
    peak: Moment
    how: str = ""
    """Which steps were run for it."""
    value_reads: tuple[tuple[str, str], ...] = ()
    """Values that a custom model has read and that do not exist: how and where."""
    runs_out: bool = False
    """Whether the GPU's allocator runs out of memory; the peak is then that of a larger GPU."""

    @property
    def bytes_by_category(self) -> Mapping[str, int]:
        """At the peak, by the names in `vramlab.planner.events.CATEGORIES`, and `REMAINDERS`."""
        return self.peak.bytes_by_category

    @property
    def peak_bytes(self) -> int:
        """The most that is allocated, as `torch.cuda.max_memory_allocated()` returns it."""
        return self.peak.total_bytes

    @property
    def available_bytes(self) -> int:
        """What the GPU has beside its CUDA context."""
        return available_bytes(self.plan)

    @property
    def fits(self) -> bool:
        """Whether the GPU's allocator serves all of it."""
        return not self.runs_out and self.peak_bytes <= self.available_bytes


def estimate(plan: Plan) -> Estimate:
    """Return the rank that holds most: of the first stage, the second, or the last.

    In a schedule the first stages have most micro-batches in flight, and the stages between the
    second and the last one have no more of anything.
    """
    if plan.pipeline == 1:
        return estimate_stage(plan, 0)
    about = {
        stage: about_bytes(plan, stage)
        for stage in sorted({0, min(1, plan.pipeline - 1), plan.pipeline - 1})
    }
    close = [stage for stage, size in about.items() if size >= CLOSE * max(about.values())]
    return max((estimate_stage(plan, stage) for stage in close), key=lambda e: e.peak_bytes)


@lru_cache(maxsize=1024)
def estimate_stage(plan: Plan, stage: int) -> Estimate:
    """Trace one rank of a stage; imports torch.

    Its peak is that of training, to the byte: steps repeat the second one
    (`vramlab.planner.steps`), until one leaves the memory as another did before.
    """
    from vramlab.planner.steps import step_of

    step = step_of(plan, stage)
    runs_out = False
    try:
        found = peak(step.events, _allocator(plan))
    except OutOfDeviceMemory:
        runs_out = True
        larger = plan.but(gpu=replace(plan.model, total_bytes=ROOM_BYTES))
        found = peak(step.events, _allocator(larger))
    return Estimate(plan, stage, found, step.how, step.value_reads, runs_out)


def _allocator(plan: Plan) -> CachingAllocator:
    """Make a fresh allocator as PyTorch has it on the plan's GPU; imports torch."""
    from vramlab.planner.tracing import gpu_of

    return gpu_of(plan, plan.model).machine.use(0).allocator


def largest_moments(plan: Plan, stage: int = 0) -> dict[str, Moment]:
    """Return the largest moment of a step at each place in it, in order; imports torch."""
    from vramlab.planner.steps import step_of

    return moments(step_of(plan, stage).events)
