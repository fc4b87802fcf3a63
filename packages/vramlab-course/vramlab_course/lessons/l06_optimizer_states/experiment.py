"""Lesson 06: what optimizers keep, from when on, and what step() takes besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import torch
from torch import nn

from vramlab.cuda_rules.sizes import tensor_bytes
from vramlab.programs.optimizer_states import Implementation, adam_step_extra_bytes, state_bytes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas import vgg16
from vramlab_course.formulas.packing import packed
from vramlab_course.formulas.per_parameter import GRADIENTS, OPTIMIZERS, WEIGHTS, ZERO_MIXED_ADAM
from vramlab_course.programs.documents import VGG16
from vramlab_course.programs.unfilled import UnfilledWeights

_WIDTH = 4096
_PARAMETERS = _WIDTH * _WIDTH


@dataclass(frozen=True)
class Optimizer:
    """An optimizer with what it is called here."""

    name: str
    """In the experiment's stages."""
    kind: str
    """In vramlab.programs.optimizer_states.STATES."""
    make: Callable[..., torch.optim.Optimizer]
    """Makes it from parameters."""


def _with(make: Callable[..., torch.optim.Optimizer], **options: Any) -> Callable[..., Any]:
    return lambda parameters: make(parameters, **options)


OPTIMIZERS_COMPARED = (
    Optimizer("SGD", "sgd", _with(torch.optim.SGD, lr=0.1)),
    Optimizer(
        "SGD with momentum", "sgd with momentum", _with(torch.optim.SGD, lr=0.1, momentum=0.9)
    ),
    Optimizer("Adam", "adam", _with(torch.optim.Adam)),
    Optimizer("AdamW", "adamw", _with(torch.optim.AdamW)),
)


@experiment(
    "optimizer-states",
    lesson="06",
    question="How many bytes does each parameter take: itself, its gradient, the optimizer?",
    source="001 §2.21 to §2.25, 003",
    figures=("bytes-per-param",),
)
def optimizer_states() -> Outcome:
    """Train one weight of 4096 x 4096 with each optimizer; states appear in the first step()."""
    trial = Trial("optimizer-states")
    weight_bytes = WEIGHTS["float32"] * _PARAMETERS
    per_parameter: dict[str, int] = {}
    with trial.stage("weight", expected("growth", weight_bytes)) as weight:
        model = nn.Linear(_WIDTH, _WIDTH, bias=False).to("cuda")
    with trial.stage("gradient", expected("growth", GRADIENTS * _PARAMETERS)) as gradient:
        model.weight.grad = torch.zeros_like(model.weight)
    for optimizer in OPTIMIZERS_COMPARED:
        with trial.stage(f"{optimizer.name}: made", expected("growth", 0)):
            instance = optimizer.make(model.parameters())
        kept_bytes = state_bytes(optimizer.kind, [weight_bytes])
        with trial.stage(f"{optimizer.name}: first step", expected("growth", kept_bytes)) as first:
            instance.step()
        with trial.stage(f"{optimizer.name}: second step", expected("growth", 0)):
            instance.step()
        per_parameter[optimizer.name] = first.measurement.growth_bytes // _PARAMETERS
        del instance
        torch.cuda.empty_cache()
    with trial.stage(
        "float16 copy", expected("growth", (WEIGHTS["mixed precision"] - 4) * _PARAMETERS)
    ) as copy:
        half = model.weight.detach().half()
    del model, half
    torch.cuda.empty_cache()
    with trial.stage(
        "ZeRO's mixed-precision Adam",
        expected("growth", sum(ZERO_MIXED_ADAM.values()) * _PARAMETERS),
    ) as mixed:
        kept = _mixed_precision_adam()
    del kept

    def found(stage_bytes: int) -> int:
        return stage_bytes // _PARAMETERS

    weights = found(weight.measurement.growth_bytes)
    _find(trial, 0, "weights, float32", weights, WEIGHTS["float32"])
    _find(
        trial,
        1,
        "weights, mixed precision",
        weights + found(copy.measurement.growth_bytes),
        WEIGHTS["mixed precision"],
    )
    _find(trial, 2, "AdamW", per_parameter["AdamW"], OPTIMIZERS["adamw"])
    trial.find(
        "bytes-per-param",
        None,
        predicted=OPTIMIZERS["8-bit adamw"],
        index=3,
        part="8-bit AdamW",
        note="one byte for each of two states; kernels of another library (bitsandbytes)",
        quoted=True,
    )
    momentum = per_parameter["SGD with momentum"]
    _find(trial, 4, "SGD with momentum", momentum, OPTIMIZERS["sgd with momentum"])
    plain = Difference(
        OPTIMIZERS["sgd"] - OPTIMIZERS["sgd with momentum"],
        "document 001 says SGD takes as much as the weights; that is its momentum, and plain SGD "
        "keeps nothing",
        "torch/optim/sgd.py",
    )
    trial.find(
        "bytes-per-param",
        per_parameter["SGD"],
        predicted=OPTIMIZERS["sgd"],
        index=4,
        part="SGD, in document 001",
        differences=[plain],
    )
    _find(trial, 5, "gradients", found(gradient.measurement.growth_bytes), GRADIENTS)
    _find(
        trial,
        6,
        "mixed-precision Adam, all",
        found(mixed.measurement.growth_bytes),
        sum(ZERO_MIXED_ADAM.values()),
    )
    return trial.outcome()


def _find(trial: Trial, index: int, part: str, measured: int, predicted: int) -> None:
    trial.find("bytes-per-param", measured, predicted=predicted, index=index, part=part)


def _mixed_precision_adam() -> list[torch.Tensor]:
    """Return what the ZeRO paper counts, for one weight: everything that stays after a step."""
    working = torch.zeros(_WIDTH, _WIDTH, dtype=torch.float16, device="cuda")
    gradient = torch.zeros_like(working)
    master = nn.Parameter(working.float())
    master.grad = gradient.float()
    optimizer = torch.optim.Adam([master])
    optimizer.step()
    master.grad = None
    state = optimizer.state[master]
    return [working, gradient, master, state["exp_avg"], state["exp_avg_sq"]]


@experiment(
    "optimizer-step-peak",
    lesson="06",
    question="What does AdamW's step() take while it runs: loop, foreach, fused?",
    source="003",
    figures=("adamw-step-extra",),
)
def optimizer_step_peak(widths: tuple[int, ...] = (2048, 2048)) -> Outcome:
    """Step AdamW over a chain of Linear layers without bias, in its three implementations.

    Args:
        widths: of the chain. Document 003 speaks of one layer; with several the loop takes up to
            three times a layer, and foreach as much as all layers together.
    """
    trial = Trial("optimizer-step-peak", widths=list(widths))
    pairs = list(pairwise(widths))
    sizes_bytes = [tensor_bytes(pair) for pair in pairs]
    extra: dict[str, float] = {}
    implementations: tuple[Implementation, ...] = get_args(Implementation)
    for implementation in implementations:
        weights = [nn.Parameter(torch.zeros(pair, device="cuda")) for pair in pairs]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        before_bytes = torch.cuda.memory_allocated()
        optimizer = torch.optim.AdamW(
            weights, foreach=implementation == "foreach", fused=implementation == "fused"
        )
        states_bytes = state_bytes("adamw", sizes_bytes, implementation)
        with trial.stage(f"{implementation}: first step", expected("growth", states_bytes)):
            optimizer.step()
        held_bytes = before_bytes + states_bytes
        extra_bytes = adam_step_extra_bytes(sizes_bytes, implementation)
        with trial.stage(
            f"{implementation}: second step",
            expected("growth", 0),
            expected("peak", held_bytes + extra_bytes),
        ) as second:
            optimizer.step()
        measured = second.measurement
        extra[implementation] = (
            measured.peak_allocated_bytes - measured.allocated_after_bytes
        ) / max(sizes_bytes)
        del optimizer, weights, weight
        torch.cuda.empty_cache()
    claimed = 2
    for implementation in implementations:
        predicted = adam_step_extra_bytes(sizes_bytes, implementation) / max(sizes_bytes)
        trial.find(
            "adamw-step-extra",
            extra[implementation],
            predicted=predicted,
            part=implementation,
            differences=[
                Difference(predicted - claimed, _WHY[implementation], "torch/optim/adam.py")
            ],
        )
    return trial.outcome()


_WHY: dict[Implementation, str] = {
    "loop": "with several layers the quotient of the layer before is still there",
    "foreach": "the square roots of all parameters at once, and nothing else: today's default",
    "fused": "one kernel updates everything, and keeps the rest in registers",
}


@experiment(
    "vgg16-optimizers",
    lesson="06",
    question="What do SGD and Adam add to VGG16's 528 MiB?",
    source="003",
    figures=("vgg16-sgd", "vgg16-adam"),
)
def vgg16_optimizers() -> Outcome:
    """Make VGG16's gradients, then a step of plain SGD, then one of Adam.

    The gradients are what both need; the document counts them with each. They are made directly, as
    a backward pass makes them, so that nothing but the parameters decides the figure.
    """
    trial = Trial("vgg16-optimizers")
    sizes_bytes = [tensor_bytes((elements,)) for elements in vgg16.parameter_counts()]
    parameters_bytes = sum(sizes_bytes)
    # In the order in which they are asked for: parameters, gradients, two states of each.
    model_bytes, _ = packed(sizes_bytes)
    gradients_bytes = packed(2 * sizes_bytes)[0] - model_bytes
    pairs_bytes = [size_bytes for size_bytes in sizes_bytes for _ in range(2)]
    all_bytes, _ = packed([*sizes_bytes, *sizes_bytes, *pairs_bytes])
    states_bytes = all_bytes - model_bytes - gradients_bytes

    with trial.stage("parameters", expected("growth", model_bytes)):
        with UnfilledWeights():
            model = VGG16()
        model.to("cuda")
    with trial.stage(
        "gradients",
        expected(
            "growth",
            gradients_bytes,
            "vgg16-sgd",
            differences=[_in_blocks(gradients_bytes - parameters_bytes)],
        ),
    ) as gradients:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    with trial.stage("SGD's step", expected("growth", 0)):
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    with trial.stage("Adam's step", expected("growth", states_bytes)) as states:
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
    del optimizer
    trial.find(
        "vgg16-adam",
        gradients.measurement.growth_bytes + states.measurement.growth_bytes,
        predicted=gradients_bytes + states_bytes,
        differences=[
            _in_blocks(gradients_bytes + states_bytes - 3 * parameters_bytes),
            Difference(
                3 * (parameters_bytes - figure("vgg16-params").nearest_bytes()),
                "the document rounds to 528 before it multiplies by 3",
            ),
        ],
    )
    return trial.outcome()


def _in_blocks(size_bytes: int) -> Difference:
    return Difference(
        size_bytes,
        "blocks: multiples of 512 B, and unsplit remainders of at most 1 MiB",
        "c10/cuda/CUDACachingAllocator.cpp, should_split",
    )
