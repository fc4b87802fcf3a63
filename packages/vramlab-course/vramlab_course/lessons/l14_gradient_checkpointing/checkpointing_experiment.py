"""Lesson 14: what checkpointing a chain saves, and what it costs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    checkpoint_sequential,
)

from vramlab.measure.flops import count_flops
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.training import SCALAR_BYTES
from vramlab_course.lessons.l14_gradient_checkpointing import checkpointing_formulas as formulas
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import (
    Schedule,
    recompute_all,
    revolve,
    segments,
    simulate,
    store_all,
)
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.execute import execute
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_formulas import ChainSizes
from vramlab_course.lessons.l14_gradient_checkpointing.torch_checkpointing import (
    each_step,
    selective,
)
from vramlab_course.programs.chains import Forward, linear_chain, mlp_chain, prepared, train

STEPS, BATCH, WIDTH = 16, 8192, 256
"""The chain of the lesson: 16 steps over (8192, 256), so that a state has 8 MiB."""


# ---- The strategies, memory and FLOPs ----


@dataclass(frozen=True)
class Exchange:
    """What a strategy saves and costs: one point of the chart."""

    strategy: str
    """What it is called."""
    by_torch: bool
    """Whether torch.utils.checkpoint does it, or a schedule of
    vramlab_course.lessons.l14_gradient_checkpointing.checkpointing."""
    predicted_peak_bytes: int
    """Peak beyond parameters, input and workspaces, from a closed form."""
    peak_bytes: int
    """The same, measured."""
    predicted_flops: int
    """Of one training step's matrix products, from a closed form."""
    flops: int
    """The same, counted."""


def exchanges(steps: int = STEPS, batch: int = BATCH, width: int = WIDTH) -> tuple[Exchange, ...]:
    """Measure one training step of an MLP chain under each strategy, on the current GPU.

    FLOPs are counted in a step of its own: torch's counter holds on to tensors, which would change
    the peak.
    """
    root = isqrt(steps)
    sizes = formulas.mlp_sizes(batch, width)
    flops = formulas.mlp_flops(batch, width)
    x = torch.zeros(batch, width, device="cuda")
    chain = prepared(mlp_chain(steps, width), x)
    points = []
    schedules = [
        store_all(steps),
        *(segments(steps, count) for count in (root, steps)),
        *(revolve(steps, slots) for slots in (2, 3, root, 2 * root)),
        recompute_all(steps),
    ]
    for schedule in schedules:
        run: Callable[[], object] = functools.partial(execute, schedule, chain, x, torch.sum)
        peak_bytes, counted = _measure(chain, run)
        points.append(
            Exchange(
                strategy=schedule.name,
                by_torch=False,
                predicted_peak_bytes=formulas.peak_bytes(schedule, sizes),
                peak_bytes=peak_bytes,
                predicted_flops=flops.step(steps, simulate(schedule).forwards),
                flops=counted,
            )
        )
    # checkpoint() of every step runs all of them again, the last included; it stops each before its
    # last product, which nothing in the backward pass reads.
    stopped = flops.step(steps, 2 * steps) - steps * flops.last_product
    each_bytes = formulas.peak_bytes(segments(steps, steps), sizes) + SCALAR_BYTES
    by_torch: list[tuple[str, Forward, int, int]] = [
        ("checkpoint, each step", each_step, each_bytes, stopped),
        (
            "selective: products kept",
            selective,
            formulas.selective_bytes(steps, sizes),
            flops.step(steps, steps),
        ),
    ]
    for name, forward, predicted_bytes, predicted_flops in by_torch:
        peak_bytes, counted = _measure(chain, functools.partial(train, forward, chain, x))
        points.append(Exchange(name, True, predicted_bytes, peak_bytes, predicted_flops, counted))
    return tuple(points)


def _measure(chain: nn.Module, train: Callable[[], object]) -> tuple[int, int]:
    """Peak bytes beyond what was there, and FLOPs, of a training step each."""
    before_bytes = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    train()
    peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
    chain.zero_grad()
    counter = count_flops()
    with counter:
        train()
    chain.zero_grad()
    return peak_bytes, counter.get_total_flops()


@experiment(
    "checkpoint-strategies",
    lesson="14",
    question="What does each strategy hold at its peak?",
    source="000 §5.3, 001 §4.2, 004",
)
def checkpoint_strategies(steps: int = STEPS, batch: int = BATCH, width: int = WIDTH) -> Outcome:
    """Run a chain of MLP steps under every schedule, as executed with real recomputation.

    Args:
        steps: length of the chain.
        batch: rows of a state.
        width: columns of a state.
    """
    trial = Trial("checkpoint-strategies", steps=steps, batch=batch, width=width)
    sizes = formulas.mlp_sizes(batch, width)
    x = torch.zeros(batch, width, device="cuda")
    with trial.stage("parameters, workspaces"):
        chain = prepared(mlp_chain(steps, width), x)
    root = isqrt(steps)
    schedules = [
        store_all(steps),
        segments(steps, root),
        segments(steps, steps),
        revolve(steps, 2),
        revolve(steps, root),
        recompute_all(steps),
    ]
    for schedule in schedules:
        _scheduled_stage(trial, schedule, chain, x, sizes)
    return trial.outcome()


def _scheduled_stage(
    trial: Trial, schedule: Schedule, chain: nn.Sequential, x: Tensor, sizes: ChainSizes
) -> None:
    """Run a schedule as a stage."""
    before_bytes = torch.cuda.memory_allocated()
    predicted_bytes = before_bytes + formulas.peak_bytes(schedule, sizes)
    with trial.stage(schedule.name, expected("peak", predicted_bytes)):
        execute(schedule, chain, x, torch.sum)
    chain.zero_grad()


@experiment(
    "checkpoint-sqrt",
    lesson="14",
    question="Does memory grow with the square root of the depth?",
    source="001 §4.2, 004",
)
def checkpoint_sqrt(
    roots: Sequence[int] = (2, 4, 6, 8, 10), batch: int = BATCH, width: int = WIDTH
) -> Outcome:
    """Train chains of Linear steps, each state a node: all stored, and in sqrt(n) segments.

    Args:
        roots: of the depths.
        batch: rows of a state.
        width: columns of a state.
    """
    trial = Trial("checkpoint-sqrt", roots=list(roots), batch=batch, width=width)
    sizes = formulas.linear_sizes(batch, width)
    x = torch.zeros(batch, width, device="cuda")
    for root in roots:
        steps = root * root
        chain = prepared(linear_chain(steps, width), x)
        for schedule in (store_all(steps), segments(steps, root)):
            before_bytes = torch.cuda.memory_allocated()
            peak_bytes = formulas.peak_bytes(schedule, sizes)
            name = f"{steps} steps, {schedule.name}"
            with trial.stage(name, expected("peak", before_bytes + peak_bytes)):
                execute(schedule, chain, x, torch.sum)
            chain.zero_grad()
    return trial.outcome()


@experiment(
    "checkpoint-sequential",
    lesson="14",
    question="What does torch's checkpoint_sequential hold, reentrant and not?",
    source="000 §5.3",
)
def checkpoint_sequential_both(
    steps: int = 12, counts: Sequence[int] = (3, 4, 12), batch: int = BATCH, width: int = WIDTH
) -> Outcome:
    """Run a chain of MLP steps through torch's own checkpointing, forward and backward.

    Args:
        steps: length of the chain.
        counts: numbers of segments.
        batch: rows of a state.
        width: columns of a state.
    """
    trial = Trial(
        "checkpoint-sequential", steps=steps, counts=list(counts), batch=batch, width=width
    )
    sizes = formulas.mlp_sizes(batch, width)
    for reentrant in (False, True):
        # Reentrant checkpoints need an input that requires a gradient.
        x = torch.zeros(batch, width, device="cuda", requires_grad=reentrant)
        chain = prepared(mlp_chain(steps, width), x)
        x.grad = None
        for count in counts:
            before_bytes = torch.cuda.memory_allocated()
            name = f"{count} segments, {'reentrant' if reentrant else 'not reentrant'}"
            held_bytes = formulas.segments_held_bytes(steps, count, sizes)
            with trial.stage(f"{name}: forward", expected("growth", held_bytes)):
                y = checkpoint_sequential(chain, count, x, use_reentrant=reentrant)
            schedule = segments(steps, count)
            peak_bytes = (
                formulas.reentrant_segments_bytes(steps, count, sizes)
                if reentrant
                else formulas.peak_bytes(schedule, sizes)
            )
            with trial.stage(
                f"{name}: backward", expected("peak", before_bytes + peak_bytes + SCALAR_BYTES)
            ):
                loss = y.sum()
                del y
                loss.backward()
            chain.zero_grad()
            del loss
            x.grad = None
    return trial.outcome()
