"""What to change in a plan that does not fit, or in one that could be cheaper: the next best steps.

Each step changes one thing. Its effect is computed, not assumed; its price is said in words. All
are compared in closed form, and the best one is run where few layers of one stage are enough: to
run all of them would take longer than anybody waits.
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
    """One thing that could be done otherwise."""

    what: str
    """In words."""
    price: str
    """What it costs, in words."""
    plan: Plan
    """With the change."""
    peak_bytes: int
    """Of the plan with the change."""
    exact: bool = False
    """Whether that is `estimate`'s answer; else it is about as much (`about_bytes`)."""

    @property
    def fitting(self) -> Fitting:
        """Whether the plan with the change fits."""
        if self.exact:
            return "fits" if estimate(self.plan).fits else "does not fit"
        return fitting_of(self.peak_bytes, available_bytes(self.plan))

    @property
    def fits(self) -> bool:
        """Whether it fits with something to spare."""
        return self.fitting == "fits"


WORTHWHILE = 0.01
"""A change that lowers the peak by a smaller share is none to try next."""


def next_changes(plan: Plan) -> list[Change]:
    """List what would lower the peak: what makes it fit first, fewer GPUs before more.

    Of a custom model, which has no closed form, changes are run until one makes it fit.
    Among equals the change that lowers it most comes first. The first one's peak is exact if a step
    of it is quick to run (`vramlab.planner.steps.is_quick`).
    """
    if plan.is_custom:
        return _changes_of_custom(plan)
    enough_bytes = (1 - WORTHWHILE) * about_bytes(plan)
    changes = [
        Change(what, price, changed, about_bytes(changed))
        for what, price, changed in _possible(plan)
    ]
    ranked = sorted((each for each in changes if each.peak_bytes <= enough_bytes), key=_rank)
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
    """Run changes of a plan that has no closed form, one by one until one makes it fit."""
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
            "none: the same result, faster",
            {"attention": fused},
        )
    if plan.checkpointing != "full":
        yield (
            "checkpoint every layer",
            "the forward pass twice: at most a third more FLOPs",
            {"checkpointing": "full"},
        )
    can_select = not plan.is_custom and plan.checkpointing == "none"
    if can_select and plan.attention in ("eager", "math"):
        yield (
            "checkpoint attention",
            "its products again: few more FLOPs",
            {"checkpointing": "selective"},
        )
    dtype = "bfloat16" if plan.model.compute_capability >= BFLOAT16_SINCE else "float16"
    if plan.precision == "float32":
        yield (
            f"autocast to {dtype}",
            "16-bit products: check that it still learns",
            {"precision": f"autocast {dtype}"},
        )
    elif plan.precision.startswith("autocast"):
        yield (
            f"{dtype} with float32 copies",
            "16-bit gradients and residual stream",
            {"precision": f"{dtype}, float32 master"},
        )
    if plan.implementation != "fused" and plan.optimizer.startswith("adam"):
        yield ("a fused optimizer", "none: the same result, faster", _FUSED)
    if plan.data > 1 and plan.zero < 3:
        for stage in range(plan.zero + 1, 4):
            yield (f"ZeRO-{stage}", _ZERO_PRICES[stage], {"zero": stage})
    if plan.offload == "nothing":
        yield (
            "optimizer on the host",
            "gradients and parameters cross PCI Express in each step",
            {"offload": "optimizer"},
        )
        yield (
            "activations on the host",
            "they cross PCI Express twice",
            {"offload": "activations"},
        )
    yield from _more_gpus(plan)


_FUSED: dict[str, object] = {"implementation": "fused"}

_ZERO_PRICES = {
    1: "updated parameters are sent to all ranks",
    2: "parameters are gathered in each step",
    3: "parameters are gathered twice in each step",
}


def _more_gpus(plan: Plan) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Twice as many, in each of the ways."""
    if plan.batch % (2 * plan.data) == 0:
        zero = max(plan.zero, 3) if plan.data == 1 else plan.zero
        share = plan.batch // (2 * plan.data)
        yield (
            f"data-parallel over {2 * plan.data}, ZeRO-{zero}" if zero else "twice the ranks (DDP)",
            f"{2 * plan.ranks} GPUs in place of {plan.ranks}",
            {"data": 2 * plan.data, "zero": zero, "micro_batch": _micro_batch(plan, share)},
        )
    yield (
        f"tensor-parallel over {2 * plan.tensor}, with the sequence",
        f"{2 * plan.ranks} GPUs in place of {plan.ranks}, sums in every layer",
        {"tensor": 2 * plan.tensor, "sequence_parallel": True},
    )
    stages, share = 2 * plan.pipeline, plan.batch // plan.data
    yield (
        f"a pipeline of {stages}",
        f"{2 * plan.ranks} GPUs in place of {plan.ranks}, some of which wait",
        {"pipeline": stages, "micro_batch": _micro_batch(plan, share, stages)},
    )


def _micro_batch(plan: Plan, share: int, stages: int | None = None) -> int:
    """Not larger than now, and such that a GPU's share gives each stage one at least."""
    return min(plan.at_a_time, share // (stages or plan.pipeline))
