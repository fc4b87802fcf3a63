"""Searches for the fastest plans that fit on a number of equal GPUs.

Candidates are sorted by the estimated tokens per second (`vramlab.planner.step_time`), fastest
first, and their exact peaks are computed in that order until enough of them fit. Two rules save
most of the work: if a plan does not fit, neither do larger micro-batches with the same settings;
and a plan is skipped if a formula puts its peak far above the GPU's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, get_args

from vramlab import catalogue
from vramlab.planner.about import about_bytes
from vramlab.planner.defaults import BFLOAT16_SINCE
from vramlab.planner.estimate import available_bytes, estimate
from vramlab.planner.plan import Plan, UnsupportedPlan
from vramlab.planner.step_time import StepTime, step_time
from vramlab.programs.divisions import ZeROStage
from vramlab.programs.transformer_memory import CHECKPOINTINGS, Sizes

MARGIN = 0.05
"""Part of the memory that is left free: for NCCL's buffers, which PyTorch's allocator does not see,
for fragmentation later in training, and for other processes' contexts."""
FAR = 1.25
"""A plan is skipped if the formula's peak is this many times the limit. The formula is coarse, so
the report counts the plans that it ruled out."""
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
PRECISIONS = ("autocast bfloat16", "bfloat16, float32 master")
"""Precisions tried on GPUs with bfloat16, both with float32 weights in the optimizer."""
FLOAT16_PRECISIONS = ("autocast float16", "float16, float32 master")
COUNT = 10
MOST_GPUS = 128
"""Where the search for a number of GPUs that fits ends."""


@dataclass(frozen=True)
class Rejected:
    """A plan that does not fit."""

    plan: Plan
    time: StepTime
    peak_bytes: int
    runs_out: bool
    """Whether the allocator runs out although the peak is below the limit: fragmentation."""


@dataclass(frozen=True)
class Candidate:
    """A plan that fits."""

    plan: Plan
    time: StepTime
    peak_bytes: int
    """Exact peak of a rank, see `vramlab.planner.estimate`."""

    @property
    def tokens_per_second(self) -> float:
        """Estimated tokens per second of all GPUs together."""
        return tokens_per_second(self.plan, self.time)


@dataclass
class Found:
    """The result of a search, complete or interrupted."""

    limit_bytes: int
    """The most that a plan may take: the GPU's memory after the CUDA context, less the margin."""
    candidates: int = 0
    fitting: list[Candidate] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    ruled_out: list[Plan] = field(default_factory=list)
    """Plans that the formula or a smaller micro-batch ruled out, without a simulation."""
    interrupted: bool = False

    def next_larger(self, plan: Plan) -> Rejected | Plan | None:
        """Return the plan with the next larger micro-batch, if it does not fit.

        Returns:
            The rejected plan; a plan that was ruled out; None if it fits or was not a candidate.
        """
        tried: list[Candidate | Rejected] = [*self.fitting, *self.rejected]
        outcomes = [*((one.plan, one) for one in tried), *((one, one) for one in self.ruled_out)]
        larger = [
            (other.at_a_time, outcome)
            for other, outcome in outcomes
            if other.at_a_time > plan.at_a_time and _settings(other) == _settings(plan)
        ]
        outcome = min(larger, key=lambda one: one[0], default=(0, None))[1]
        return None if isinstance(outcome, Candidate) else outcome


def tokens_per_second(plan: Plan, time: StepTime) -> float:
    """Return the tokens per second of all GPUs together."""
    return plan.batch * plan.sequence / time.seconds


def candidates(sizes: Sizes, gpu: str, gpus: int, chosen: dict[str, Any]) -> Iterator[Plan]:
    """Yield every plan that is searched.

    Args:
        sizes: The transformer.
        gpu: Name of the GPU.
        gpus: Number of GPUs; all of them are data-parallel ranks.
        chosen: Options of `Plan` that are fixed. Without a batch, a step is one micro-batch on
            each GPU.
    """
    capability = catalogue.find(gpu).compute_capability
    usual = PRECISIONS if capability >= BFLOAT16_SINCE else FLOAT16_PRECISIONS
    fixed = dict(chosen)
    batch = fixed.pop("batch", None)
    axes: dict[str, tuple[Any, ...]] = {
        "precision": usual,
        "checkpointing": CHECKPOINTINGS,
        "zero": get_args(ZeROStage) if gpus > 1 else (0,),
        "micro_batch": MICRO_BATCHES,
        "implementation": ("fused",),
    }
    axes |= {name: (value,) for name, value in fixed.items() if name in axes}
    rest = {name: value for name, value in fixed.items() if name not in axes}
    for values in product(*axes.values()):
        options = dict(zip(axes, values, strict=True))
        whole = options["micro_batch"] * gpus if batch is None else batch
        try:
            yield Plan(sizes, gpu, whole, data=gpus, **options, **rest)
        except UnsupportedPlan:
            continue


def search(
    sizes: Sizes,
    gpu: str,
    gpus: int,
    *,
    count: int = COUNT,
    margin: float = MARGIN,
    tell: Callable[[str], None] = lambda _: None,
    **chosen: Any,
) -> Found:
    """Return the fastest plans that fit, by estimated tokens per second.

    An interruption (Ctrl-C) returns what was found until then.

    Args:
        sizes: The transformer.
        gpu: Name of the GPU.
        gpus: Number of GPUs, in one machine.
        count: How many plans to return.
        margin: Part of the memory to leave free.
        tell: Called with the progress, in a few words.
        **chosen: Options of `Plan` that are fixed.

    Raises:
        UnsupportedPlan: No plan is possible with these options, or invalid numbers.
    """
    if gpus < 1:
        raise UnsupportedPlan(f"invalid number of GPUs {gpus}: use at least 1")
    batch = chosen.get("batch", gpus)
    if batch < 1 or batch % gpus:
        raise UnsupportedPlan(
            f"a batch of {batch} cannot be divided among {gpus} GPUs: choose a multiple of {gpus}"
        )
    if not 0 <= margin < 1:
        raise UnsupportedPlan(f"invalid margin {margin:g}: use a fraction from 0 to below 1")
    timed = [(plan, step_time(plan)) for plan in candidates(sizes, gpu, gpus, chosen)]
    if not timed:
        # The leanest plan with these options says what is wrong with them.
        Plan(sizes, gpu, **{"batch": gpus, "data": gpus, **chosen})
        raise UnsupportedPlan("no plan is possible with these options: leave out some of them")
    timed.sort(key=lambda one: (-tokens_per_second(*one), about_bytes(one[0])))
    found = Found(int((1 - margin) * available_bytes(timed[0][0])), len(timed))
    too_large: dict[Plan, int] = {}
    try:
        for number, (plan, time) in enumerate(timed, 1):
            if len(found.fitting) == count:
                break
            tell(f"candidate {number} of {len(timed)}, {len(found.fitting)} fit")
            settings = _settings(plan)
            if plan.at_a_time >= too_large.get(settings, plan.at_a_time + 1):
                found.ruled_out.append(plan)
                continue
            if about_bytes(plan) > FAR * found.limit_bytes:
                found.ruled_out.append(plan)
                continue
            estimated = estimate(plan)
            if estimated.fits and estimated.peak_bytes <= found.limit_bytes:
                found.fitting.append(Candidate(plan, time, estimated.peak_bytes))
                continue
            too_large[settings] = plan.at_a_time
            runs_out = estimated.runs_out and estimated.peak_bytes <= found.limit_bytes
            found.rejected.append(Rejected(plan, time, estimated.peak_bytes, runs_out))
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def smallest_count(sizes: Sizes, gpu: str, gpus: int, margin: float, **chosen: Any) -> int | None:
    """Return the smallest doubling of a number of GPUs on which a plan fits; None above 128."""
    while (gpus := 2 * gpus) <= MOST_GPUS:
        if _leanest_fits(sizes, gpu, gpus, margin, chosen):
            return gpus
    return None


def smallest_gpu(sizes: Sizes, gpu: str, gpus: int, margin: float, **chosen: Any) -> str | None:
    """Return the GPU with the least memory of `vramlab.catalogue.common()` on which a plan fits."""
    least_bytes = catalogue.find(gpu).total_bytes
    larger = [model for model in catalogue.common() if model.total_bytes > least_bytes]
    for model in sorted(larger, key=lambda one: one.total_bytes):
        if _leanest_fits(sizes, model.name, gpus, margin, chosen):
            return model.name
    return None


def _leanest_fits(sizes: Sizes, gpu: str, gpus: int, margin: float, chosen: dict[str, Any]) -> bool:
    plans = candidates(sizes, gpu, gpus, chosen)
    plan = min(plans, key=about_bytes, default=None)
    if plan is None:
        return False
    limit_bytes = int((1 - margin) * available_bytes(plan))
    if about_bytes(plan) > FAR * limit_bytes:
        return False
    found = estimate(plan)
    return found.fits and found.peak_bytes <= limit_bytes


def _settings(plan: Plan) -> Plan:
    """Return a plan that is equal for all micro-batches with the same settings."""
    return plan.but(batch=plan.data, micro_batch=1)
