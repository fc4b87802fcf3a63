"""Lesson 12's tables: a layer's terms beside the paper's, and which GPU holds a run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import replace

import torch

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.gpu import VirtualGPU
from vramlab.measure import Table
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.measure.environment import gpu_environment
from vramlab.planner import Moment, Plan, UnsupportedPlan, estimate, largest_moments
from vramlab.programs import transformer_memory
from vramlab.programs.transformer_memory import Run, Sizes
from vramlab.units import short_size
from vramlab_course.lessons.l12_estimating_large_models.large_models_experiment import gpu_model
from vramlab_course.lessons.l12_estimating_large_models.transformer_step import (
    TransformerTraining,
    take_steps,
)


def layer_terms_table(sizes: Sizes, runs: Mapping[str, Run]) -> Table:
    """Return what a layer keeps, in bytes for each number of the hidden state or the scores.

    Args:
        sizes: of the model.
        runs: by the heading of their column; all of one batch and length.
    """
    first = next(iter(runs.values()))
    paper = transformer_memory.paper_layer_terms(
        first.batch, first.sequence, sizes.width, sizes.heads
    )
    columns = {
        "paper": paper,
        **{name: transformer_memory.layer_terms(sizes, r) for name, r in runs.items()},
    }
    names = dict.fromkeys(name for terms in columns.values() for name in terms)
    qkv, project, up, down = (rows * columns for rows, columns in sizes.matrices)
    units = {
        "sbh": first.rows * sizes.width,
        "as²b": first.batch * sizes.heads * first.sequence**2,
        "sb": first.rows,
        "weights of attention": qkv + project,
        "weights of feed-forward": up + down,
    }
    rows = []
    for name in names:
        numbers, unit = units[_unit_of(name)], _unit_of(name)
        cells = (f"{terms.get(name, 0) / numbers:.4g}" for terms in columns.values())
        rows.append((name, unit, *cells))
    sums = (f"{sum(terms.values()) / 2**20:,.2f} MiB" for terms in columns.values())
    return Table(
        caption="What one layer keeps: bytes for each number",
        header=("term", "for each of", *columns),
        rows=(*rows, ("all", "", *sums)),
        notes=("s sequence, b batch, h width, a heads.",),
    )


def _unit_of(term: str) -> str:
    if "softmax" in term:
        return "as²b"
    if "statistics" in term:
        return "sb"
    if "casts" in term:
        return f"weights of {term.partition(':')[0]}"
    return "sbh"


def measure_layer(sizes: Sizes, run: Run) -> int:
    """Measure what one more layer keeps on the current GPU: two layers against one."""
    kept = []
    for layers in (1, 2):
        training = TransformerTraining(replace(sizes, layers=layers), run)
        training.forward()  # cuBLAS's workspace comes here
        before_bytes = torch.cuda.memory_allocated() - unsplit_remainder_bytes()
        loss = training.forward()
        kept.append(torch.cuda.memory_allocated() - unsplit_remainder_bytes() - before_bytes)
        del loss, training
    return kept[1] - kept[0]


def gpus_table(sizes: Sizes, run: Run, tried: Collection[str] = ()) -> Table:
    """Return which common GPUs are large enough for a training run; some run two steps of it.

    Args:
        sizes: of the model.
        run: how it is trained.
        tried: names of GPUs to take two steps on, each a fresh virtual one.
    """
    rows = []
    for model in sorted(catalogue.common(), key=lambda gpu: gpu.total_bytes):
        room_bytes = model.total_bytes - model.context_bytes
        try:
            peak_bytes = estimate(Plan.of_run(sizes, run, model.name)).peak_bytes
        except UnsupportedPlan:
            rows.append((model.name, short_size(room_bytes), "", "no kernel", ""))
            continue
        share = peak_bytes / room_bytes
        outcome = _tried(model.name, sizes, run) if model.name in tried else ""
        rows.append(
            (model.name, short_size(room_bytes), short_size(peak_bytes), f"{share:.0%}", outcome)
        )
    return Table(
        caption="Which GPU is large enough",
        header=("GPU", "free after context", "peak", "fraction", "two steps"),
        rows=tuple(rows),
    )


def most_parameters(run: Run, gpu: GPUModel) -> int:
    """Return how many parameters the largest model has that a GPU trains, as planned.

    The models have GPT-2 small's proportions: a hidden size of 64, and one head, for each layer.
    """
    models = [Sizes(width=64 * layers, layers=layers, heads=layers) for layers in range(2, 60, 2)]

    def is_too_large(sizes: Sizes) -> bool:
        return not estimate(Plan.of_run(sizes, run, gpu)).fits

    return models[bisect_left(models, True, key=is_too_large) - 1].parameters()


def _tried(gpu: str, sizes: Sizes, run: Run) -> str:
    with VirtualGPU(gpu):
        try:
            take_steps(sizes, run)
        except torch.OutOfMemoryError:
            return "out of memory"
        return f"fits, {short_size(torch.cuda.max_memory_reserved())} reserved"


def plan_here(sizes: Sizes, run: Run) -> Plan:
    """Return the plan of a run on the attached GPU."""
    return Plan.of_run(sizes, run, gpu_model(gpu_environment()))


def moments_by_stage(sizes: Sizes, run: Run) -> dict[str, dict[str, int]]:
    """Return the planner's largest moment of each stage of a step on the attached GPU.

    Args:
        sizes: of the model.
        run: how it is trained.
    """
    largest: dict[str, Moment] = {}
    for moment in largest_moments(plan_here(sizes, run)).values():
        stage = moment.name.partition(":")[0]
        if stage not in largest or moment.total_bytes > largest[stage].total_bytes:
            largest[stage] = moment
    return {moment.name: dict(moment.bytes_by_category) for moment in largest.values()}
