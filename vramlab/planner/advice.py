"""Suggests changes to a plan that lower its peak.

Every suggestion changes one setting. Its effect is computed, and its cost is described in words.
All suggestions are compared with a formula, and the best one is simulated if a few layers of one
stage are enough. Simulating all of them would take too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vramlab.planner.about import about_bytes
from vramlab.planner.defaults import BFLOAT16_SINCE
from vramlab.planner.estimate import Fitting, available_bytes, estimate, fitting_of
from vramlab.planner.parts import UnevenParts
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.planner.steps import is_quick


@dataclass(frozen=True)
class Change:
    """A change of one setting."""

    what: str
    """Description of the change."""
    price: str
    """What it costs, in words."""
    plan: Plan
    """The plan with the change."""
    peak_bytes: int
    """Peak of the plan with the change."""
    exact: bool = False
    """Whether the peak comes from `estimate`; otherwise from the formula `about_bytes`."""

    @property
    def fitting(self) -> Fitting:
        """Whether the plan with the change fits."""
        if self.exact:
            return "fits" if estimate(self.plan).fits else "does not fit"
        return fitting_of(self.peak_bytes, available_bytes(self.plan))

    @property
    def fits(self) -> bool:
        """Whether it fits with memory to spare."""
        return self.fitting == "fits"


WORTHWHILE = 0.01
"""Smallest fraction of the peak that a suggested change must save."""


def next_changes(plan: Plan) -> list[Change]:
    """Return changes that lower the peak: those that make the plan fit first, fewer GPUs first.

    Otherwise the change that saves most comes first. The first change's peak is exact if a step of
    it is quick to run (`vramlab.planner.steps.is_quick`). For a custom model, which has no formula,
    changes are simulated until one makes it fit.
    """
    if plan.is_custom:
        return _changes_of_custom(plan)
    enough_bytes = (1 - WORTHWHILE) * about_bytes(plan)
    changes = [
        Change(what, price, changed, about_bytes(changed))
        for what, price, changed in _possible(plan)
    ]
    ranked = sorted((change for change in changes if change.peak_bytes <= enough_bytes), key=_rank)
    while ranked and not ranked[0].exact and is_quick(ranked[0].plan):
        first, others = ranked[0], ranked[1:]
        exact = replace(first, peak_bytes=estimate(first.plan).peak_bytes, exact=True)
        if exact.peak_bytes > (1 - WORTHWHILE) * estimate(plan).peak_bytes:
            ranked = others
        elif exact.fits == first.fits:
            return [exact, *others]
        else:
            ranked = sorted([exact, *others], key=_rank)
    return ranked


def _changes_of_custom(plan: Plan) -> list[Change]:
    """Simulate the changes of a custom model one by one until one makes it fit."""
    enough_bytes = (1 - WORTHWHILE) * estimate(plan).peak_bytes
    found: list[Change] = []
    for what, price, changed in filter(lambda possible: is_quick(possible[2]), _possible(plan)):
        change = Change(what, price, changed, estimate(changed).peak_bytes, exact=True)
        if change.peak_bytes <= enough_bytes:
            found.append(change)
            if change.fits:
                break
    return sorted(found, key=_rank)


def _rank(change: Change) -> tuple[bool, int, int]:
    return not change.fits, change.plan.ranks, change.peak_bytes


def _possible(plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    for what, price, changes in _candidates(plan):
        try:
            yield what, price, plan.but(**changes)
        except (UnsupportedPlan, UnevenParts):
            continue


def _candidates(plan: Plan) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield changes, of which some may be impossible."""
    if plan.at_a_time > 1:
        half = plan.at_a_time // 2
        yield (
            f"micro-batches of {half}",
            "more, smaller kernels",
            {"micro_batch": half},
        )
    if not plan.is_custom and plan.attention not in ("flash", "efficient"):
        fused = "flash" if plan.run.dtypes.compute != "float32" else "efficient"
        yield (
            f"{fused} attention",
            "none: same result, faster",
            {"attention": fused},
        )
    if plan.checkpointing != "full":
        yield (
            "full activation checkpointing",
            "a second forward pass: at most a third more FLOPs",
            {"checkpointing": "full"},
        )
    can_select = not plan.is_custom and plan.checkpointing == "none"
    if can_select and plan.attention in ("eager", "math"):
        yield (
            "selective checkpointing (attention)",
            "attention is recomputed: few more FLOPs",
            {"checkpointing": "selective"},
        )
    dtype = "bfloat16" if plan.model.compute_capability >= BFLOAT16_SINCE else "float16"
    if plan.precision == "float32":
        yield (
            f"autocast to {dtype}",
            "16-bit matmuls: check that training still converges",
            {"precision": f"autocast {dtype}"},
        )
    elif plan.precision.startswith("autocast"):
        yield (
            f"{dtype} with float32 master weights",
            "16-bit gradients and residual stream",
            {"precision": f"{dtype}, float32 master"},
        )
    if plan.implementation != "fused" and plan.optimizer.startswith("adam"):
        yield ("fused optimizer", "none: same result, faster", _FUSED)
    if plan.data > 1 and plan.zero < 3:
        for stage in range(plan.zero + 1, 4):
            yield (f"ZeRO-{stage}", _ZERO_PRICES[stage], {"zero": stage})
    if plan.offload == "nothing":
        yield (
            "offload the optimizer to the CPU",
            "gradients and parameters cross PCI Express in every step",
            {"offload": "optimizer"},
        )
        yield (
            "offload activations to the CPU",
            "activations cross PCI Express twice",
            {"offload": "activations"},
        )
    yield from _more_gpus(plan)


_FUSED: dict[str, object] = {"implementation": "fused"}

_ZERO_PRICES = {
    1: "updated parameters are broadcast to all ranks",
    2: "one all-gather of the parameters per step",
    3: "two all-gathers of the parameters per step",
}


def _more_gpus(plan: Plan) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield changes that double the number of GPUs."""
    if plan.batch % (2 * plan.data) == 0:
        zero = max(plan.zero, 3) if plan.data == 1 else plan.zero
        share = plan.batch // (2 * plan.data)
        yield (
            f"{2 * plan.data} data-parallel ranks ({f'ZeRO-{zero}' if zero else 'DDP'})",
            f"{2 * plan.ranks} GPUs instead of {plan.ranks}",
            {"data": 2 * plan.data, "zero": zero, "micro_batch": _micro_batch(plan, share)},
        )
    yield (
        f"{2 * plan.tensor} tensor-parallel ranks with sequence parallelism",
        f"{2 * plan.ranks} GPUs instead of {plan.ranks}; communication in every layer",
        {"tensor": 2 * plan.tensor, "sequence_parallel": True},
    )
    stages, share = 2 * plan.pipeline, plan.batch // plan.data
    yield (
        f"{stages} pipeline stages",
        f"{2 * plan.ranks} GPUs instead of {plan.ranks}; idle time in the pipeline bubble",
        {"pipeline": stages, "micro_batch": _micro_batch(plan, share, stages)},
    )


def _micro_batch(plan: Plan, share: int, stages: int | None = None) -> int:
    """Return a micro-batch size that keeps every stage busy and is not larger than now."""
    return min(plan.at_a_time, share // (stages or plan.pipeline))
