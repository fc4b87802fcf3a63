"""Lesson 12: what each parameter takes, in every precision and with every optimizer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.measure import Table
from vramlab.programs.master_weights import MasterWeights
from vramlab.programs.optimizers import OPTIMIZERS
from vramlab.programs.transformer_memory import PRECISIONS, bytes_per_parameter
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected

_WIDTH, _LAYERS = 1024, 8
_COUNT = _LAYERS * _WIDTH * _WIDTH
PARTS = ("weights", "casts", "gradients", "states")


@experiment(
    "bytes-per-parameter",
    lesson="12",
    question="How many bytes does a parameter take, by precision and optimizer?",
    source="001 §2.21 to §2.25, 003, 004",
    conditions=Conditions(gpu="A100-40GB"),
)
def bytes_per_parameter_measured() -> Outcome:
    """Train eight Linear layers of 1024 for a step, with one row: what each stage adds.

    The input has one row, so that activations hardly count; they are predicted all the same.
    """
    trial = Trial("bytes-per-parameter")
    _step("float32", "sgd", trial=None)  # cuBLAS's workspaces come here
    for precision in PRECISIONS.values():
        for optimizer in OPTIMIZERS:
            _step(precision.name, optimizer, trial)
    return trial.outcome()


def _step(precision_name: str, optimizer_name: str, trial: Trial | None) -> None:
    precision = PRECISIONS[precision_name]
    predicted = bytes_per_parameter(precision_name, optimizer_name)
    weights, compute = (getattr(torch, name) for name in (precision.weights, precision.compute))
    # The input's gradient is wanted, or the first layer would not keep a cast of its weight.
    x = torch.zeros(1, _WIDTH, dtype=weights, device="cuda", requires_grad=True)
    row_bytes = block_bytes(compute.itemsize * _WIDTH)
    outputs_bytes = _LAYERS * row_bytes
    context = torch.autocast("cuda", dtype=compute) if precision.autocast else nullcontext()

    def stage(part: str, more_bytes: int = 0) -> AbstractContextManager[object]:
        if trial is None:
            return nullcontext()
        name = stage_name(precision_name, optimizer_name, part)
        return trial.stage(name, expected("growth", predicted[part] * _COUNT + more_bytes))

    with stage("weights"):
        layers = [
            nn.Linear(_WIDTH, _WIDTH, bias=False, device="cuda", dtype=weights)
            for _ in range(_LAYERS)
        ]
        model = nn.Sequential(*layers)
        del layers
        parameters = list(model.parameters())

        def make(updated: list[nn.Parameter]) -> torch.optim.Optimizer:
            return OPTIMIZERS[optimizer_name](updated)

        optimizer = MasterWeights(parameters, make) if precision.master else make(parameters)
    cast_input_bytes = row_bytes if precision.autocast else 0
    with stage("casts", outputs_bytes + cast_input_bytes), context:
        y = model(x)
    gradient = torch.zeros_like(y)
    held_bytes = outputs_bytes - row_bytes + cast_input_bytes + predicted["casts"] * _COUNT
    with stage("gradients", block_bytes(weights.itemsize * _WIDTH) - held_bytes):
        y.backward(gradient)
    with stage("states"):
        optimizer.step()
    del model, parameters, optimizer, y, gradient, x
    if trial is not None:
        torch.cuda.empty_cache()


def stage_name(precision: str, optimizer: str, part: str) -> str:
    """Name of the stage in which a part comes, such as 'float32, adamw: states'."""
    return f"{precision}, {optimizer}: {part}"


def per_parameter_table(outcome: Outcome) -> Table:
    """Return what the experiment measured, in bytes per parameter; precisions alike share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for precision in PRECISIONS:
        for optimizer in OPTIMIZERS:
            growth = {
                part: outcome[stage_name(precision, optimizer, part)].growth_bytes for part in PARTS
            }
            growth["gradients"] += growth["casts"]  # which the backward pass frees
            each = {part: round(size_bytes / _COUNT, 1) for part, size_bytes in growth.items()}
            lasting = each["weights"] + each["gradients"] + each["states"]
            numbers = (*(each[part] for part in PARTS), lasting)
            cells = (optimizer, *(f"{number:g}" for number in numbers))
            alike.setdefault(cells, []).append(precision)
    return Table(
        caption="Bytes per parameter, measured",
        header=(
            "precision",
            "optimizer",
            "weights",
            "casts of weights",
            "gradients",
            "states",
            "all that lasts",
        ),
        rows=tuple(("\n".join(names), *cells) for cells, names in alike.items()),
        notes=("Casts live from the forward pass to the backward pass.",),
    )
