"""Searches for the fastest plans that fit on a number of equal GPUs, or for the cheapest GPUs.

Candidates are sorted by the estimated tokens per second or by their price (`vramlab.planner.
step_time`), the best first, and their exact peaks are computed in that order until enough of them
fit. Three rules save most of the work, and none of them skips a plan that fits and is better than
what is listed: a plan is skipped if a lower bound of its peak (`about.least_bytes`) is above the
limit; if a smaller micro-batch with the same settings has a peak above it; and if the same settings
have been listed with a faster micro-batch. Peaks of earlier searches are cached (`peaks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, get_args

from vramlab import catalogue
from vramlab.planner import peaks
from vramlab.planner.about import about_bytes, least_bytes
from vramlab.planner.defaults import BFLOAT16_SINCE, defaults_for
from vramlab.planner.estimate import available_bytes
from vramlab.planner.parts import UnevenParts
from vramlab.planner.peaks import Peak
from vramlab.planner.plan import OPTIMIZERS, Plan, UnsupportedPlan
from vramlab.planner.step_time import StepTime, step_time
from vramlab.programs.divisions import ZeROStage
from vramlab.programs.transformer_memory import Sizes

MARGIN = 0.05
"""Part of the memory that is left free: for NCCL's buffers, which PyTorch's allocator does not see,
for fragmentation later in training, and for other processes' contexts."""
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
PRECISIONS = ("autocast bfloat16", "bfloat16, float32 master")
"""Precisions tried on GPUs with bfloat16, both with float32 weights in the optimizer."""
FLOAT16_PRECISIONS = ("autocast float16", "float16, float32 master")
ADAPTER_PRECISIONS = ("pure bfloat16",)
"""With adapters, weights that are not trained need no float32 copies."""
TENSORS = (1, 2, 4, 8)
LOSS_CHUNKS = (1, 8)
RECOMPUTED = (("none", 1), ("full", 1), ("full", 2), ("full", 4), ("selective", 1))
"""Checkpointing, and of how many layers one is recomputed."""
COUNT = 10
MOST_GPUS = 128
"""Where the search for a number of GPUs that fits ends."""
COUNTS = (1, 2, 4, 8)
"""Numbers of GPUs that are tried if the GPU is open."""
VARIED = {"optimizer": OPTIMIZERS, "attention": ("flash", "efficient", "math")}
"""Options that are searched only if asked for: an optimizer changes what is trained, and the first
attention kernel that a GPU has is the fastest."""


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
    price_per_hour: float | None = None
    """Price of one GPU, in any currency."""

    @property
    def tokens_per_second(self) -> float:
        """Estimated tokens per second of all GPUs together."""
        return tokens_per_second(self.plan, self.time)

    @property
    def cost_per_million_tokens(self) -> float | None:
        """Price of a million tokens on all GPUs; None without a price per hour."""
        if self.price_per_hour is None:
            return None
        return cost_per_million_tokens(self.plan, self.time, self.price_per_hour)


@dataclass
class Found:
    """The result of a search, complete or interrupted."""

    margin: float
    candidates: int = 0
    fitting: list[Candidate] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    ruled_out: list[Plan] = field(default_factory=list)
    """Plans that the lower bound or a smaller micro-batch ruled out, without a simulation."""
    slower: int = 0
    """Plans that were not simulated because the same settings are listed with a faster one."""
    interrupted: bool = False

    def limit_bytes(self, plan: Plan) -> int:
        """Return the most that a plan may take."""
        return limit_bytes(plan, self.margin)

    def next_larger(self, plan: Plan) -> Rejected | Plan | None:
        """Return the plan with the next larger micro-batch, if it does not fit.

        Returns:
            The rejected plan; a plan that was ruled out; None if it fits or was not a candidate.
        """
        outcomes: list[tuple[Plan, Rejected | Plan]] = [
            *((one.plan, one) for one in self.rejected),
            *((one, one) for one in self.ruled_out),
        ]
        larger = [
            (other.at_a_time, outcome)
            for other, outcome in outcomes
            if other.at_a_time > plan.at_a_time and _family(other) == _family(plan)
        ]
        return min(larger, key=lambda one: one[0], default=(0, None))[1]


def limit_bytes(plan: Plan, margin: float) -> int:
    """Return the most that a plan may take: the memory after the CUDA context, less a margin."""
    return int((1 - margin) * available_bytes(plan))


def tokens_per_second(plan: Plan, time: StepTime) -> float:
    """Return the tokens per second of all GPUs together."""
    return plan.batch * plan.sequence / time.seconds


def cost_per_million_tokens(plan: Plan, time: StepTime, price_per_hour: float) -> float:
    """Return the price of a million tokens on all GPUs of a plan."""
    return price_per_hour * plan.ranks / 3600 / tokens_per_second(plan, time) * 1e6


def candidates(
    sizes: Sizes, gpu: str, gpus: int, chosen: Mapping[str, Any], vary: Iterable[str] = ()
) -> Iterator[Plan]:
    """Yield every plan that is searched.

    Args:
        sizes: The transformer.
        gpu: Name of the GPU.
        gpus: Number of GPUs.
        chosen: Options of `Plan` that are fixed. Without a batch, a step is one micro-batch on
            each data-parallel rank, or two for each stage of a pipeline.
        vary: Names in `VARIED` to search, too.
    """
    capability = catalogue.find(gpu).compute_capability
    usual = PRECISIONS if capability >= BFLOAT16_SINCE else FLOAT16_PRECISIONS
    defaults = defaults_for(sizes, {**chosen, "gpu": gpu})
    fixed = {name: value for name, value in defaults.items() if name != "precision"} | {**chosen}
    batch = fixed.pop("batch", None)
    axes: dict[str, tuple[Any, ...]] = {
        "precision": ADAPTER_PRECISIONS if fixed.get("adapter_rank") else usual,
        "zero": get_args(ZeROStage),
        "micro_batch": MICRO_BATCHES,
        "implementation": ("fused",),
        "tensor": TENSORS,
        "pipeline": (1,),
        "loss_chunks": LOSS_CHUNKS,
        "offload": ("nothing", "optimizer", "activations", "both"),
        **{name: VARIED[name] for name in vary},
    }
    axes |= {name: (value,) for name, value in fixed.items() if name in axes}
    checkpointing, every = fixed.pop("checkpointing", None), fixed.pop("checkpoint_every", None)
    kinds = [
        kind for kind in RECOMPUTED if checkpointing in (None, kind[0]) and every in (None, kind[1])
    ] or [(checkpointing or "full", every or 1)]
    rest = {name: value for name, value in fixed.items() if name not in axes}
    for *values, (checkpointing, every) in product(*axes.values(), kinds):
        options = dict(zip(axes, values, strict=True))
        options |= {"checkpointing": checkpointing, "checkpoint_every": every}
        data, uneven = divmod(gpus, options["tensor"] * options["pipeline"])
        if uneven or not data or _is_pointless({**rest, **options}, data):
            continue
        micro_batches = 2 * options["pipeline"] if options["pipeline"] > 1 else 1
        whole = options["micro_batch"] * data * micro_batches if batch is None else batch
        options |= {"sequence_parallel": options["tensor"] > 1, **rest}
        try:
            yield Plan(sizes, gpu, whole, data=data, **options)
        except (UnsupportedPlan, UnevenParts):
            continue


def _is_pointless(options: Mapping[str, Any], data: int) -> bool:
    """Return whether a plan takes as much memory as another one and cannot be faster."""
    fused = options.get("attention", "flash") in ("flash", "efficient")
    if options["checkpointing"] == "selective" and fused:
        return True  # it keeps query, key and value either way
    if options["tensor"] > 1 and options["offload"] != "nothing":
        return True  # FSDP2 shards as much without tensor parallelism
    return data == 1 and options["zero"] > 0


def fleet(
    sizes: Sizes,
    gpus: Iterable[tuple[str, int]],
    chosen: Mapping[str, Any],
    vary: Iterable[str] = (),
) -> list[tuple[Plan, StepTime]]:
    """Return every candidate on every one of these GPUs and counts, with its time."""
    vary = tuple(vary)
    return [
        (plan, step_time(plan))
        for gpu, count in gpus
        for plan in candidates(sizes, gpu, count, chosen, vary)
    ]


def search(
    sizes: Sizes,
    gpu: str,
    gpus: int,
    *,
    count: int = COUNT,
    margin: float = MARGIN,
    vary: Sequence[str] = (),
    price_per_hour: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
    **chosen: Any,
) -> Found:
    """Return the fastest plans that fit, by estimated tokens per second.

    An interruption (Ctrl-C) returns what was found until then.

    Args:
        sizes: The transformer.
        gpu: Name of the GPU.
        gpus: Number of GPUs, in one machine.
        count: How many plans to return; of plans that differ only in the micro-batch, the fastest.
        margin: Part of the memory to leave free.
        vary: Names in `VARIED` to search, too.
        price_per_hour: Price of one GPU, in any currency.
        tell: Called with the progress, in a few words.
        **chosen: Options of `Plan` that are fixed.

    Raises:
        UnsupportedPlan: No plan is possible with these options, or invalid numbers.
    """
    _check(gpus, margin, chosen)
    timed = fleet(sizes, [(gpu, gpus)], chosen, vary)
    if not timed:
        # The leanest plan with these options says what is wrong with them.
        divided = chosen.get("tensor", 1) * chosen.get("pipeline", 1)
        if gpus % divided:
            raise UnsupportedPlan(
                f"{gpus} GPUs cannot be divided into groups of {divided} (tensor x pipeline): "
                f"use a multiple of {divided}"
            )
        options = {"batch": gpus, "data": gpus // divided, **chosen}
        Plan(sizes, gpu, **options)
        raise UnsupportedPlan("no plan is possible with these options: leave out some of them")
    timed.sort(key=lambda one: (-tokens_per_second(*one), about_bytes(one[0])))
    prices = {gpu: price_per_hour}
    return _walk(timed, Found(margin, len(timed)), _family, count, prices, tell)


def search_gpus(
    sizes: Sizes,
    prices: Mapping[str, float | None],
    counts: Sequence[int] = COUNTS,
    *,
    count: int = COUNT,
    margin: float = MARGIN,
    vary: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
    **chosen: Any,
) -> Found:
    """Return the GPUs and counts on which a plan fits, each with its best plan.

    The best costs least for a million tokens, where all GPUs have a price; without prices, it has
    the least memory altogether, and then the most tokens per second.

    Args:
        sizes: The transformer.
        prices: Price of one GPU per hour by its name, or None.
        counts: Numbers of GPUs to try, each in one machine.
        count: How many to return.
        margin: Part of the memory to leave free.
        vary: Names in `VARIED` to search, too.
        tell: Called with the progress, in a few words.
        **chosen: Options of `Plan` that are fixed.

    Raises:
        UnsupportedPlan: No plan is possible with these options, or invalid numbers.
    """
    for gpus in counts:
        _check(gpus, margin, {name: value for name, value in chosen.items() if name != "batch"})
    places = [(gpu, gpus) for gpu in prices for gpus in counts]
    timed = fleet(sizes, places, chosen, vary)
    if not timed:
        raise UnsupportedPlan("no plan is possible with these options: leave out some of them")

    def rank(one: tuple[Plan, StepTime]) -> tuple[float, float, int]:
        plan, time = one
        price = prices[str(plan.gpu)]
        speed = -tokens_per_second(plan, time)
        if price is None:
            return plan.ranks * plan.model.total_bytes, speed, about_bytes(plan)
        return cost_per_million_tokens(plan, time, price), speed, about_bytes(plan)

    timed.sort(key=rank)
    return _walk(timed, Found(margin, len(timed)), _place, count, prices, tell)


def _check(gpus: int, margin: float, chosen: Mapping[str, Any]) -> None:
    if gpus < 1:
        raise UnsupportedPlan(f"invalid number of GPUs {gpus}: use at least 1")
    batch = chosen.get("batch", gpus)
    groups = gpus if not {"tensor", "pipeline"} & chosen.keys() else 1
    if batch < 1 or batch % groups:
        raise UnsupportedPlan(
            f"a batch of {batch} cannot be divided among {gpus} GPUs: choose a multiple of {gpus}"
        )
    if not 0 <= margin < 1:
        raise UnsupportedPlan(f"invalid margin {margin:g}: use a fraction from 0 to below 1")


def _walk(
    timed: Sequence[tuple[Plan, StepTime]],
    found: Found,
    kind: Callable[[Plan], object],
    count: int,
    prices: Mapping[str, float | None],
    tell: Callable[[str], None],
) -> Found:
    """Compute peaks in this order until so many plans of different kinds fit."""
    too_large: dict[object, int] = {}
    listed: set[object] = set()
    try:
        with peaks.Cache() as cache:
            for number, (plan, time) in enumerate(timed, 1):
                if len(found.fitting) == count:
                    break
                if kind(plan) in listed:
                    found.slower += 1
                    continue
                limit, family = found.limit_bytes(plan), _family(plan)
                smallest = too_large.get(family, plan.at_a_time + 1)
                if plan.at_a_time >= smallest or least_bytes(plan) > limit:
                    found.ruled_out.append(plan)
                    continue
                tell(f"candidate {number} of {len(timed)}, {len(found.fitting)} fit")
                peak: Peak = cache.peak(plan)
                if not peak.runs_out and peak.peak_bytes <= limit:
                    price = prices.get(str(plan.gpu))
                    found.fitting.append(Candidate(plan, time, peak.peak_bytes, price))
                    listed.add(kind(plan))
                    continue
                if peak.peak_bytes > limit:
                    too_large[family] = min(smallest, plan.at_a_time)
                runs_out = peak.runs_out and peak.peak_bytes <= limit
                found.rejected.append(Rejected(plan, time, peak.peak_bytes, runs_out))
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
    least = catalogue.find(gpu).total_bytes
    larger = [model for model in catalogue.common() if model.total_bytes > least]
    for model in sorted(larger, key=lambda one: one.total_bytes):
        if _leanest_fits(sizes, model.name, gpus, margin, chosen):
            return model.name
    return None


def _leanest_fits(
    sizes: Sizes, gpu: str, gpus: int, margin: float, chosen: Mapping[str, Any]
) -> bool:
    plans = candidates(sizes, gpu, gpus, chosen)
    plan = min(plans, key=about_bytes, default=None)
    if plan is None:
        return False
    limit = limit_bytes(plan, margin)
    if least_bytes(plan) > limit:
        return False
    with peaks.Cache() as cache:
        peak = cache.peak(plan)
    return not peak.runs_out and peak.peak_bytes <= limit


def _family(plan: Plan) -> object:
    """Return what plans have in common that differ only in the micro-batch.

    Whether gradients are accumulated is part of it: then they are there in the forward pass, too.
    """
    return plan.but(batch=plan.data * plan.pipeline, micro_batch=1), plan.micro_batches > 1


def _place(plan: Plan) -> object:
    return str(plan.gpu), plan.ranks
