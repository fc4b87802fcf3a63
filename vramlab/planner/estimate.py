"""What a plan comes to in closed form, at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vramlab.planner.plan import Plan
from vramlab_course.formulas import rank_peak
from vramlab_course.formulas.rank_peak import Sharing
from vramlab_course.formulas.transformer_peak import Gpu, Moment

Fitting = Literal["fits", "may fit", "does not fit"]

NARROW = 0.93
"""Share of the GPU beyond which a sum of blocks may not fit: the allocator keeps rests and gaps."""


def fitting_of(peak_bytes: int, available_bytes: int) -> Fitting:
    """Whether a GPU has room for a sum of blocks.

    Args:
        peak_bytes: the blocks together.
        available_bytes: what the GPU has beside its CUDA context.
    """
    if peak_bytes > available_bytes:
        return "does not fit"
    return "fits" if peak_bytes <= NARROW * available_bytes else "may fit"


@dataclass(frozen=True)
class Estimate:
    """The peak of one rank of a plan."""

    plan: Plan
    stage: int
    """Of the pipeline."""
    peak: Moment

    @property
    def bytes_by_category(self) -> Mapping[str, int]:
        """At the peak, by the names in `vramlab_course.formulas.rank_peak.CATEGORIES`."""
        return self.peak.bytes_by_category

    @property
    def peak_bytes(self) -> int:
        """Allocated bytes at the peak, but for rests of blocks."""
        return self.peak.total_bytes

    @property
    def available_bytes(self) -> int:
        """What the GPU has beside its CUDA context."""
        return self.plan.model.total_bytes - self.plan.model.context_bytes

    @property
    def fitting(self) -> Fitting:
        """Whether it fits, as well as a sum of blocks can tell."""
        return fitting_of(self.peak_bytes, self.available_bytes)

    @property
    def fits(self) -> bool:
        """Whether it fits with something to spare."""
        return self.fitting == "fits"


def estimate(plan: Plan) -> Estimate:
    """The rank that holds most: of the first stage, or the last, or one between them."""
    stages = sorted({0, plan.pipeline // 2, plan.pipeline - 1})
    return max((estimate_stage(plan, stage) for stage in stages), key=lambda e: e.peak_bytes)


def estimate_stage(plan: Plan, stage: int) -> Estimate:
    """One rank of a stage."""
    sharing = Sharing(
        stage=plan.zero,
        data=plan.data,
        micro_batches=plan.micro_batches,
        tensor=plan.tensor,
        pipeline=plan.pipeline,
        schedule=plan.schedule,
        in_flight=plan.in_flight(stage),
        in_flight_later=plan.in_flight(stage, after_first=True),
        activations_on_host=plan.activations_on_host,
        optimizer_on_host=plan.optimizer_on_host,
    )
    peak = rank_peak.peak(plan.part(stage), plan.run, Gpu.of(plan.model), sharing)
    return Estimate(plan, stage, peak)
