"""The repair of a training whose memory is in its weights: a deep chain, and small batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_course.tasks.batches import check_order, numbered_batch
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import parameters_of, to_host
from vramlab_course.tasks.weight_changes import require_same_training

WIDTH = 512
WEIGHT_BYTES = 4 * WIDTH * WIDTH

ROWS = 8
"""Of a batch: its activations are next to nothing beside a weight."""

Train = Callable[["torch.nn.Module", Callable[[int], "torch.Tensor"], int], object]
"""Trains a model, on batches from a function that loads them, for so many steps."""


def training(own: Train, *, room_bytes: int, question: str, batches_per_step: int = 1) -> Repair:
    """Make the repair of such a training; its cases say how many `layers` and `steps`.

    Args:
        own: gives the weights that are right, and the limit.
        room_bytes: what may be reserved beyond what our own program does.
        question: for a reader whose program has run out of memory.
        batches_per_step: how many programs have to load for each of their `steps`.
    """

    def batches(run: Run) -> int:
        return int(batches_per_step * run.case["steps"])

    def where_it_ended(run: Run) -> str:
        times = run.peak_bytes / (run.case["layers"] * WEIGHT_BYTES)
        return (
            f"{run.ran_out} in step {len(run.noted)} of {batches(run)}, with "
            f"{format_bytes(run.peak_bytes)} allocated: {times:.1f} times the weights. {question}"
        )

    def same_weights(run: Run, expected: torch.Tensor) -> None:
        check_order(run.noted, batches(run))
        require_same_training(run.results, expected)

    return Repair(
        gpu=GPU("T4", values=True),
        build=_model_and_batches,
        reference=own,
        limit=room(room_bytes),
        ran_out=where_it_ended,
        collect=_weights,
        compare=same_weights,
    )


def _model_and_batches(run: Run, layers: int, steps: int) -> tuple[Any, ...]:
    load = run.noting(lambda index: numbered_batch(index, ROWS, WIDTH))
    return _chain(layers), load, steps


def _weights(run: Run, returned: object) -> torch.Tensor:
    """Return the weights of the chain that was trained: (layers, width, width)."""
    model = run.inputs[0]
    return torch.stack([to_host(weight) for weight in parameters_of(model)])


def _chain(layers: int) -> torch.nn.Sequential:
    torch.manual_seed(layers)
    linears = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)]
    model = torch.nn.Sequential(*linears).to("cuda")
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3**0.5)  # so that outputs neither vanish nor explode over many layers
    return model
