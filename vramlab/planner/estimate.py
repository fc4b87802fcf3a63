"""What a plan comes to: the peak of one rank, from steps of a few layers, extended to all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from vramlab.planner.about import about_bytes
from vramlab.planner.events import Moment, moments, peak
from vramlab.planner.plan import Plan

Fitting = Literal["fits", "may fit", "does not fit"]

NARROW = 0.93
"""Share of the GPU beyond which a sum of blocks may not fit: the allocator keeps remainders and
gaps."""


CLOSE = 0.85
"""Share of the largest stage's peak, in closed form, from which on a stage is run, too."""


def fitting_of(peak_bytes: int, available_bytes: int) -> Fitting:
    """Tell whether a GPU has room for a sum of blocks.

    Args:
        peak_bytes: the blocks together.
        available_bytes: what the GPU has beside its CUDA context.
    """
    if peak_bytes > available_bytes:
        return "does not fit"
    return "fits" if peak_bytes <= NARROW * available_bytes else "may fit"


def available_bytes(plan: Plan) -> int:
    """Give what a GPU of the plan has beside its CUDA context."""
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

    @property
    def bytes_by_category(self) -> Mapping[str, int]:
        """At the peak, by the names in `vramlab.planner.events.CATEGORIES`."""
        return self.peak.bytes_by_category

    @property
    def peak_bytes(self) -> int:
        """Allocated bytes at the peak, but for unsplit remainders."""
        return self.peak.total_bytes

    @property
    def available_bytes(self) -> int:
        """What the GPU has beside its CUDA context."""
        return available_bytes(self.plan)

    @property
    def fitting(self) -> Fitting:
        """Whether it fits, as well as a sum of blocks can tell."""
        return fitting_of(self.peak_bytes, self.available_bytes)

    @property
    def fits(self) -> bool:
        """Whether it fits with something to spare."""
        return self.fitting == "fits"


def estimate(plan: Plan) -> Estimate:
    """Give the rank that holds most: of the first stage, the second, or the last.

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

    Its peak is that of the second step, to the byte but for unsplit remainders
    (`vramlab.planner.steps`).
    """
    from vramlab.planner.steps import step_of

    step = step_of(plan, stage)
    return Estimate(plan, stage, peak(step.events), step.how, step.value_reads)


def largest_moments(plan: Plan, stage: int = 0) -> dict[str, Moment]:
    """Give the largest moment of a step at each place in it, in order; imports torch."""
    from vramlab.planner.steps import step_of

    return moments(step_of(plan, stage).events)
