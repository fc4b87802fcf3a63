"""The whole training step of a plan, from short ones: few layers, stages and micro-batches.

What is run is as short as can be, so that a plan is answered in a second. The allocations
of a step of the plan follow event by event (`vramlab.planner.extension`), or the step is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from vramlab.errors import VramlabError
from vramlab.planner.custom import UnusableModel
from vramlab.planner.events import Events
from vramlab.planner.extension import Longer, NotRepeating, extend
from vramlab.planner.plan import Plan

if TYPE_CHECKING:
    from vramlab.planner.tracing import TracedSteps

QUICK_LAYERS = 16
"""So many layers are run in about a second."""


@dataclass(frozen=True)
class TrainingStep:
    """One rank's training step."""

    events: Events
    how: str
    """Which steps were run for it."""
    value_reads: tuple[tuple[str, str], ...] = ()
    """Values that a custom model has read and that do not exist: how and where."""


@dataclass(frozen=True)
class Passes:
    """How few stages and micro-batches are enough for the step of a stage."""

    stages: int
    stage: int
    micro_batches: int
    more_stages: int = 0
    """How many stages are missing, each with a micro-batch more in flight."""
    more_micro_batches: int = 0
    """How many micro-batches are missing that follow each other."""


def passes_of(plan: Plan, stage: int) -> Passes:
    """Return what is run of a stage's passes: its first one, one that repeats it, the last one.

    1F1B has as many forward passes ahead as there are stages from this one on; then backward and
    forward passes follow each other by turns. Source: `Schedule1F1B` in
    torch/distributed/pipelining/schedules.py, PyTorch 2.13.
    """
    count = plan.micro_batches
    if plan.pipeline == 1:
        return Passes(1, 0, min(count, 2))  # the second one finds gradients, as all others do
    last = plan.pipeline - 1
    stages = 2 if stage in (0, last) else 3
    place = stages - 1 if stage == last else min(stage, 1)
    if plan.schedule == "GPipe":
        few = min(count, 2)
        return Passes(stages, place, few, more_micro_batches=count - few)
    ahead, few_ahead = plan.pipeline - stage, stages - place
    by_turns = min(count - ahead, 1)
    return Passes(stages, place, few_ahead + by_turns, ahead - few_ahead, count - ahead - by_turns)


def is_quick(plan: Plan) -> bool:
    """Return whether a step is known in about a second.

    DTensor and pipelines take longer, and shards on the host are updated there, with values.
    """
    if plan.tensor > 1 or plan.pipeline > 1 or (plan.optimizer_on_host and plan.zero >= 2):
        return False
    few = plan.is_custom or plan.transformer.layers <= QUICK_LAYERS
    return few or not _why_layers_differ(plan)


@lru_cache(maxsize=32)
def step_of(plan: Plan, stage: int = 0) -> TrainingStep:
    """Return the steps of the first rank of a stage.

    Layers are extended from two and three, or from three and four; where these do not do the same,
    all are run.
    """
    if plan.is_custom:
        return _step_of_custom(plan)
    layers, period = plan.stage_sizes(stage).layers, plan.checkpoint_every
    fewest = _fewest_layers(plan) + period - 1
    fewest += (layers - fewest) % period
    why = _why_layers_differ(plan)
    for few in (fewest, fewest + period):
        if not why and few + period < layers:
            try:
                events = _extended(plan, stage, few)
            except NotRepeating:
                continue
            return TrainingStep(
                events, f"run with {few} and {few + period} layers, and extended to {layers}"
            )
    how = f"run with all {layers} layers" + (f": {why}" if why else "")
    try:
        return TrainingStep(_extended(plan, stage, layers), how)
    except NotRepeating:
        return TrainingStep(_run(plan, stage).events, how)


def _step_of_custom(plan: Plan) -> TrainingStep:
    """Return a custom model's step, with shortened layer lists if a third depth confirms it."""
    from vramlab.planner.custom_training import make_model
    from vramlab.planner.layers import layer_lists

    fewest = _fewest_layers(plan)
    lists = layer_lists(make_model(plan.custom), fewest + 2)
    why = _why_layers_differ(plan) if lists else "no list of its layers repeats itself often enough"

    reads: dict[tuple[str, str], None] = {}

    def run_all(plan: Plan) -> Events:
        traced = _run(plan, 0, min(plan.micro_batches, 2))
        reads.update(dict.fromkeys(traced.value_reads))
        return traced.events

    def run(patterns: dict[str, int]) -> Events:
        kept = {each.path: each.kept(fewest + patterns.get(each.path, 0)) for each in lists}
        return run_all(plan.but(sizes=plan.custom.cut(kept)))

    def extended(patterns: dict[str, int]) -> Events:
        """Extend by so many patterns more in each list."""
        return extend(run({}), [Longer(run({path: 1}), more) for path, more in patterns.items()])

    if not why:
        try:
            third = {each.path: 2 for each in lists}
            if extended(third) == run(third):
                events = extended({each.path: each.patterns - fewest for each in lists})
                kept = " and ".join(str(each.kept(fewest)) for each in lists)
                total = " and ".join(str(each.length) for each in lists)
                how = f"run with {kept} layers and more, and extended to {total}"
                return TrainingStep(events, how, tuple(reads))
            why = "a third depth was not what two others had led to expect"
        except NotRepeating as error:
            why = str(error)
        except VramlabError:
            raise
        except Exception:  # the model does not run with fewer layers: perhaps with all
            why = "it does not run with fewer of its layers"
    try:
        events = run_all(plan)
        return TrainingStep(events, f"run with all layers: {why}", tuple(reads))
    except VramlabError:
        raise
    except Exception as error:
        raise UnusableModel(
            f"{plan.custom.name} cannot be trained: {type(error).__name__}: {error}"
        ) from error


def _fewest_layers(plan: Plan) -> int:
    return 3 if plan.zero >= 2 else 2  # FSDP2 gathers the next layer, and scatters the last one


def _why_layers_differ(plan: Plan) -> str:
    """Why a layer more does not do what the one before did; '' if nothing is known against it."""
    if plan.data > 1 and plan.zero == 0:
        return "DDP's buckets end where they are full, and not where layers do"
    if plan.zero == 1:
        return "ZeRO-1 deals out whole parameters, so that a rank has others of each layer"
    return ""


def _extended(plan: Plan, stage: int, few: int) -> Events:
    """Return a step run with a few layers, and with one more, a stage more, a micro-batch more.

    Raises:
        NotRepeating: one of these does something else than a repetition.
    """
    passes = passes_of(plan, stage)
    period = plan.checkpoint_every
    missing = (plan.stage_sizes(stage).layers - few) // period

    def run(more_layers: int = 0, more_stages: int = 0, more_micro_batches: int = 0) -> Events:
        return _run(
            plan.cut(few + more_layers, passes.stages + more_stages),
            passes.stage,
            passes.micro_batches + more_stages + more_micro_batches,
        ).events

    return extend(
        run(),
        [Longer(run(more_layers=period), missing)] if missing else [],
        [
            Longer(run(more_stages=stages, more_micro_batches=micro_batches), times)
            for stages, micro_batches, times in (
                (1, 0, passes.more_stages),
                (0, 1, passes.more_micro_batches),
            )
            if times
        ],
    )


@lru_cache(maxsize=16)
def _run(plan: Plan, stage: int, micro_batches: int | None = None) -> TracedSteps:
    """Run a step as it is; imports torch."""
    from vramlab.planner.tracing import trace

    return trace(plan, stage, micro_batches)
