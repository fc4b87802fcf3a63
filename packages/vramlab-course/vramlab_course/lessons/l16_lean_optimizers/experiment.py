"""Lesson 16: optimizers that keep less than AdamW, and steps taken in the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l16_lean_optimizers.formulas import (
    CODEBOOKS_BYTES,
    Shape,
    adafactor_bytes,
    blockwise_bytes,
    gpt2_shapes,
)
from vramlab_course.lessons.l16_lean_optimizers.sign_sgd import SignSGD
from vramlab_course.lessons.l16_lean_optimizers.step_in_backward import step_in_backward
from vramlab_course.programs.blockwise_adam import BlockwiseAdamW
from vramlab_course.programs.chains import linear_chain


def adafactor_with_momentum(params: Iterable[Any], lr: float = 1e-3) -> torch.optim.Optimizer:
    """Make transformers' Adafactor with beta1, which PyTorch's own has not; at a learning rate."""
    from transformers.optimization import Adafactor

    make: Callable[..., torch.optim.Optimizer] = Adafactor
    return make(params, lr=lr, beta1=0.9, scale_parameter=False, relative_step=False)


@dataclass(frozen=True)
class LeanOptimizer:
    """An optimizer, and what it is known to keep."""

    make: Callable[..., torch.optim.Optimizer]
    """Makes it from parameters."""
    state_bytes: Callable[[Shape], int]
    """What it keeps for a float32 parameter of a shape, in blocks."""
    once_bytes: int = 0
    """What it keeps once for all parameters."""
    matrices_only: bool = False
    """It takes no vectors."""


def _whole(states: int) -> Callable[[Shape], int]:
    return lambda shape: states * block_bytes(tensor_bytes(shape))


LEAN_OPTIMIZERS = {
    "SGD": LeanOptimizer(lambda params: torch.optim.SGD(params, lr=0.1), _whole(0)),
    "sign-SGD": LeanOptimizer(SignSGD, _whole(0)),
    "Adafactor": LeanOptimizer(
        lambda params: torch.optim.Adafactor(params, foreach=False), adafactor_bytes
    ),
    "8-bit AdamW": LeanOptimizer(BlockwiseAdamW, blockwise_bytes, CODEBOOKS_BYTES),
    "SGD with momentum": LeanOptimizer(
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), _whole(1)
    ),
    "Muon": LeanOptimizer(torch.optim.Muon, _whole(1), matrices_only=True),
    "Adafactor with momentum": LeanOptimizer(
        adafactor_with_momentum,
        lambda shape: adafactor_bytes(shape, momentum=True, root_mean_square=True),
    ),
    "AdamW": LeanOptimizer(lambda params: torch.optim.AdamW(params), _whole(2)),
}
"""From what keeps least to what keeps most, for a large matrix."""


def _meet_cublas() -> None:
    """Have this thread's workspace: Adafactor multiplies rows by columns."""
    small = torch.zeros(8, 8, device="cuda")
    small @ small


def _parameters(shapes: Iterable[Shape]) -> list[nn.Parameter]:
    """Parameters with gradients: all parameters first, then all gradients."""
    parameters = [nn.Parameter(torch.zeros(*shape, device="cuda")) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return parameters


@experiment(
    "lean-optimizers",
    lesson="16",
    question="What do optimizers keep that keep less than AdamW?",
    source="001 §4.4, 000 §5.4",
    conditions=Conditions(why="what tensors take is the same on every GPU"),
)
def lean_optimizers(rows: int = 4096, columns: int = 1024) -> Outcome:
    """Train one matrix with each optimizer: what its first step leaves behind."""
    trial = Trial("lean-optimizers", rows=rows, columns=columns)
    shape = (rows, columns)
    _meet_cublas()
    for name, lean in LEAN_OPTIMIZERS.items():
        torch.cuda.empty_cache()
        parameters = _parameters([shape])
        optimizer = lean.make(parameters)
        remainder_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as first:
            optimizer.step()
        kept = lean.state_bytes(shape) + lean.once_bytes
        first.expect(expected("growth", kept + unsplit_remainder_bytes() - remainder_bytes))
        del optimizer, parameters
    return trial.outcome()


LAYERS_3B, WIDTH_3B = 36, 2560
"""A GPT-2 of these sizes has 2.96 billion parameters."""
_NOMINAL = 3 * 10**9


@experiment(
    "optimizers-3b",
    lesson="16",
    question="How much do optimizers keep for a model of 3 billion parameters?",
    source="003",
    figures=("optimizers-3b",),
    conditions=Conditions(gpu="A100-80GB", why="weights, gradients and AdamW's states are 48 GB"),
)
def optimizers_3b(layers: int = LAYERS_3B, width: int = WIDTH_3B) -> Outcome:
    """Run a GPT-2 of nearly 3 billion parameters in float32, one step with each optimizer.

    What is measured for its parameters is scaled to 3 billion, as the document rounds them.
    """
    trial = Trial("optimizers-3b", layers=layers, width=width)
    shapes = gpt2_shapes(layers, width)
    count = sum(math.prod(shape) for shape in shapes)
    _meet_cublas()
    with trial.stage("parameters") as made:
        parameters = [nn.Parameter(torch.empty(*shape, device="cuda")) for shape in shapes]
    blocks_bytes = sum(block_bytes(tensor_bytes(shape)) for shape in shapes)
    remainder_bytes = unsplit_remainder_bytes()
    made.expect(expected("growth", blocks_bytes + remainder_bytes))
    with trial.stage("gradients") as gradients:
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
    gradients.expect(expected("growth", blocks_bytes + unsplit_remainder_bytes() - remainder_bytes))
    measured: dict[str, int] = {}
    predicted: dict[str, int] = {}
    for name in ("SGD", "Adafactor", "8-bit AdamW", "Adafactor with momentum", "AdamW"):
        torch.cuda.empty_cache()
        lean = LEAN_OPTIMIZERS[name]
        optimizer = lean.make(parameters)
        remainder_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as step:
            optimizer.step()
        kept = sum(map(lean.state_bytes, shapes)) + lean.once_bytes
        step.expect(expected("growth", kept + unsplit_remainder_bytes() - remainder_bytes))
        measured[name] = step.measurement.growth_bytes * _NOMINAL // count
        predicted[name] = kept * _NOMINAL // count
        del optimizer

    def find(index: int, name: str, part: str, differences: Iterable[Difference] = ()) -> None:
        trial.find(
            "optimizers-3b",
            measured[name],
            predicted=predicted[name],
            index=index,
            part=part,
            differences=differences,
        )

    find(0, "AdamW", "AdamW")
    find(1, "Adafactor with momentum", "Adafactor, with momentum")
    published_bytes = figure("optimizers-3b").nearest_bytes(1)
    find(
        1,
        "Adafactor",
        "Adafactor, PyTorch's",
        [
            Difference(
                measured["Adafactor"] - published_bytes,
                "it keeps no first moment, and of the second only means of rows and columns",
                "torch/optim/_adafactor.py",
            )
        ],
    )
    find(2, "8-bit AdamW", "8-bit AdamW, the course's own")
    return trial.outcome()


# ---- Steps in the backward pass ----


@experiment(
    "step-in-backward",
    lesson="16",
    question="How much does it save never to have all gradients at once?",
    source="000 §5.4",
    conditions=Conditions(why="what tensors take is the same on every GPU"),
)
def steps_in_backward(layers: int = 8, width: int = 2048, batch: int = 32) -> Outcome:
    """Run a chain's second step with fused AdamW: after backward, and within it.

    Beyond what stays from step to step, a step after the backward pass has all gradients at its
    peak, and three tensors of the batch: the output, its gradient and that of the first layer's
    output. In the backward pass it has one gradient, first of the last layer, when all outputs are
    still there, with the gradients of the last and of its input.
    """
    trial = Trial("step-in-backward", layers=layers, width=width, batch=batch)
    weight_bytes = block_bytes(tensor_bytes((width, width)))
    rows_bytes = block_bytes(tensor_bytes((batch, width)))
    x = torch.zeros(batch, width, device="cuda")
    for name, extra_bytes in (
        ("step after backward", layers * weight_bytes + 3 * rows_bytes),
        ("step in backward", weight_bytes + (layers + 2) * rows_bytes),
    ):
        torch.cuda.empty_cache()
        model = linear_chain(layers, width, device="cuda")
        if name == "step after backward":
            optimizers = [_fused_adamw(model.parameters())]
        else:
            optimizers = step_in_backward(model.parameters(), _fused_adamw)
        for number in ("first", "second"):
            held_bytes = torch.cuda.memory_allocated()
            with trial.stage(f"{name}, {number}") as stage:
                model(x).backward(torch.ones(batch, width, device="cuda"))
                if name == "step after backward":
                    optimizers[0].step()
                    optimizers[0].zero_grad()
        stage.expect(expected("growth", 0), expected("peak", held_bytes + extra_bytes))
        del model, optimizers
    return trial.outcome()


def _fused_adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, fused=True)
