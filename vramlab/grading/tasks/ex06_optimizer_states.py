"""Exercise 06: what optimizers keep, what step() takes, and how to need less of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.formulas.storage import block_bytes
from vramlab.grading.deep_chain import try_training
from vramlab.grading.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    Mistake,
    Observation,
    Predict,
)
from vramlab.units import MIB

if TYPE_CHECKING:
    import torch

GPU = "T4"
"""A grade names its GPU, so that it does not depend on the machine that grades."""

Shapes = Sequence[Sequence[int]]

STATES = {"SGD": 0, "SGD with momentum": 1, "Adam": 2, "AdamW": 2}
"""Tensors of a parameter's size that an optimizer keeps: for naming mistakes, not for grading."""

WAYS: Mapping[str, Mapping[str, bool]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def _optimizer(
    name: str, parameters: Sequence[torch.nn.Parameter], **way: Any
) -> torch.optim.Optimizer:
    import torch

    if name.startswith("SGD"):
        momentum = 0.9 if name == "SGD with momentum" else 0.0
        return torch.optim.SGD(parameters, lr=0.1, momentum=momentum, **way)
    if name == "Adam":
        return torch.optim.Adam(parameters, **way)
    return torch.optim.AdamW(parameters, **way)


def _parameters(shapes: Shapes) -> list[torch.nn.Parameter]:
    """Parameters with gradients; all parameters first, then all gradients."""
    import torch

    parameters = [torch.nn.Parameter(torch.zeros(*shape, device="cuda")) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return parameters


def _blocks(shapes: Shapes) -> list[int]:
    return [block_bytes(4 * prod(shape)) for shape in shapes]


# Sizes are so chosen that no block keeps a rest: lesson 02 is about those. A size is at most 1 MiB,
# or a multiple of 2 MiB.


def _shapes(random: Random, count: int) -> list[list[int]]:
    """Weights of a multiple of 2 MiB, and biases."""
    shapes = []
    for _ in range(count):
        outputs = 512 * random.randrange(1, 6)
        shapes += [[outputs, 1024 * random.randrange(1, 4)], [outputs]]
    return shapes


def _odd_shapes(random: Random, count: int) -> list[list[int]]:
    """Small parameters of any size."""
    return [[random.randrange(1, 500), random.randrange(1, 500)] for _ in range(count)]


# state_bytes: what the first step() leaves behind


def _measure_states(optimizer: str, fused: bool, shapes: Shapes) -> int:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        parameters = _parameters(shapes)
        before_bytes = torch.cuda.memory_allocated()
        instance = _optimizer(optimizer, parameters, **({"fused": True} if fused else {}))
        instance.step()
        growth_bytes = torch.cuda.memory_allocated() - before_bytes
        del parameters, instance
    return growth_bytes


def _states(optimizer: str, fused: bool, shapes: Shapes, states: Mapping[str, int]) -> int:
    counters_bytes = 512 * len(shapes) if fused and optimizer.startswith("Adam") else 0
    return states[optimizer] * sum(_blocks(shapes)) + counters_bytes


_CHAIN = [[1024, 1024], [1024], [2048, 1024], [2048]]

STATE = Predict(
    name="state_bytes",
    points=3,
    minutes=10,
    visible=(
        {"optimizer": "SGD", "fused": False, "shapes": _CHAIN},
        {"optimizer": "SGD with momentum", "fused": False, "shapes": _CHAIN},
        {"optimizer": "AdamW", "fused": False, "shapes": _CHAIN},
        {"optimizer": "AdamW", "fused": True, "shapes": _CHAIN},
        {"optimizer": "Adam", "fused": False, "shapes": [[3], [10, 10]]},
    ),
    hidden=lambda random: [
        *(
            {"optimizer": name, "fused": fused, "shapes": _shapes(random, 3)}
            for name in STATES
            for fused in (False, True)
        ),
        {"optimizer": "AdamW", "fused": True, "shapes": _odd_shapes(random, 7)},
    ],
    measure=_measure_states,
    mistakes=(
        Mistake(
            "You gave plain SGD a state. It keeps nothing; its momentum would be one.",
            lambda optimizer, fused, shapes: _states(
                optimizer, fused, shapes, {**STATES, "SGD": 1}
            ),
        ),
        Mistake(
            "You gave momentum two states. It keeps one: the running mean of the gradient.",
            lambda optimizer, fused, shapes: _states(
                optimizer, fused, shapes, {**STATES, "SGD with momentum": 2}
            ),
        ),
        Mistake(
            "You counted the gradients. They were there before the step.",
            lambda optimizer, fused, shapes: (
                _states(optimizer, fused, shapes, STATES) + sum(_blocks(shapes))
            ),
        ),
        Mistake(
            "You forgot the counters of fused Adam: one number for each parameter tensor, on the "
            "GPU.",
            lambda optimizer, fused, shapes: _states(optimizer, False, shapes, STATES),
        ),
        Mistake(
            "You put the step counters on the GPU in every case. Only the fused implementation "
            "has them there.",
            lambda optimizer, fused, shapes: _states(optimizer, True, shapes, STATES),
        ),
        Mistake(
            "You gave fused SGD step counters. SGD does not count its steps.",
            lambda optimizer, fused, shapes: (
                _states(optimizer, False, shapes, STATES) + (512 * len(shapes) if fused else 0)
            ),
        ),
        Mistake(
            "You forgot that blocks come in steps of 512 bytes.",
            lambda optimizer, fused, shapes: (
                STATES[optimizer] * sum(4 * prod(shape) for shape in shapes)
                + (512 * len(shapes) if fused and optimizer.startswith("Adam") else 0)
            ),
        ),
    ),
)


# step_extra_bytes: what AdamW's step() takes for a while


def _measure_step_extra(way: str, shapes: Shapes) -> int:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        parameters = _parameters(shapes)
        optimizer = _optimizer("AdamW", parameters, **WAYS[way])
        optimizer.step()
        before_bytes = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        extra_bytes = torch.cuda.max_memory_allocated() - before_bytes
        del parameters, optimizer
    return extra_bytes


def _loop_extra(sizes: Sequence[int], before: int, own: int) -> int:
    """The most of `own` times a parameter and `before` times the one before it."""
    pairs = zip([0, *sizes], sizes, strict=False)
    return max(before * previous + own * size for previous, size in pairs)


def _extra(way: str, shapes: Shapes, before: int = 1, own: int = 2, roots: int = 1) -> int:
    sizes = _blocks(shapes)
    if way == "loop":
        return _loop_extra(sizes, before, own)
    return roots * sum(sizes) if way == "foreach" else 0


def _layers(*sizes_mib: int) -> list[list[int]]:
    return [[256 * size, 1024] for size in sizes_mib]


EXTRA = Predict(
    name="step_extra_bytes",
    points=4,
    minutes=20,
    visible=(
        {"way": "loop", "shapes": _layers(4)},
        {"way": "loop", "shapes": _layers(8, 4, 2)},
        {"way": "loop", "shapes": _layers(4, 4, 4)},
        {"way": "foreach", "shapes": _layers(4, 4, 4)},
        {"way": "fused", "shapes": _layers(4, 4, 4)},
    ),
    hidden=lambda random: [
        {"way": way, "shapes": _layers(*(2 * random.randrange(1, 12) for _ in range(count)))}
        for way, count in (
            ("loop", 2),
            ("loop", 5),
            ("loop", 9),
            ("foreach", 4),
            ("foreach", 9),
            ("fused", 5),
        )
    ],
    measure=_measure_step_extra,
    mistakes=(
        Mistake(
            "You took the loop for twice the largest parameter. While it computes root and "
            "quotient of a parameter, the quotient of the one before still has its name.",
            lambda way, shapes: _extra(way, shapes, before=0),
        ),
        Mistake(
            "You took the loop for three times the largest parameter. The third is the quotient "
            "of the parameter before, which has that one's size; the first has none before it.",
            lambda way, shapes: 3 * max(_blocks(shapes)) if way == "loop" else _extra(way, shapes),
        ),
        Mistake(
            "You took foreach for twice all parameters. It needs the roots only; the rest "
            "happens in place.",
            lambda way, shapes: _extra(way, shapes, roots=2),
        ),
        Mistake(
            "You took all ways for the same. They differ in what they hold at once: a parameter "
            "at a time, all of them, or nothing.",
            lambda way, shapes: _extra("foreach", shapes),
        ),
        Mistake(
            "You gave the fused step something. Its kernel keeps what it needs in registers.",
            lambda way, shapes: _extra("foreach" if way == "fused" else way, shapes),
        ),
    ),
)


# which_optimizer: told from what was allocated


ANSWERS = ("SGD", "SGD with momentum", "AdamW loop", "AdamW foreach", "AdamW fused")


def _observe_optimizer(optimizer: str, width: int, layers: int) -> Observation:
    """Take two steps on a stack of weights, and read the allocated bytes after each stage.

    Args:
        optimizer: one of `ANSWERS`.
        width: each weight is (width, width).
        layers: how many weights; four or more, so that loop and foreach differ.
    """
    import torch

    import vramlab

    readings = {}
    name, _, way = optimizer.partition(" ") if optimizer in ANSWERS[2:] else (optimizer, "", "")
    with vramlab.VirtualGPU(GPU):
        weights = [
            torch.nn.Parameter(torch.zeros(width, width, device="cuda")) for _ in range(layers)
        ]
        readings["model"] = torch.cuda.memory_allocated()
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        readings["gradients"] = torch.cuda.memory_allocated()
        instance = _optimizer(name, weights, **(WAYS[way] if way else {}))
        instance.step()
        readings["first step"] = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        instance.step()
        readings["peak of second step"] = torch.cuda.max_memory_allocated()
        del weights, weight, instance
    return Observation({"readings": readings}, optimizer)


def _kept(readings: Mapping[str, int]) -> float:
    """How many times the model the states are."""
    return (readings["first step"] - readings["gradients"]) / readings["model"]


def _by_states_alone(readings: Mapping[str, int], adam: str) -> str:
    kept = _kept(readings)
    return adam if kept > 1.5 else "SGD with momentum" if kept > 0.5 else "SGD"


WHICH = Diagnose(
    name="which_optimizer",
    points=4,
    minutes=15,
    visible=(
        {"optimizer": "AdamW foreach", "width": 1024, "layers": 8},
        {"optimizer": "AdamW fused", "width": 1024, "layers": 8},
        {"optimizer": "SGD with momentum", "width": 2048, "layers": 4},
    ),
    hidden=lambda random: [
        {
            "optimizer": optimizer,
            "width": 1024 * random.randrange(1, 3),
            "layers": random.randrange(4, 13),
        }
        for optimizer in ANSWERS
    ],
    observe=_observe_optimizer,
    mistakes=(
        Mistake(
            "You told it from the states alone, and took the default way. The peak of the second "
            "step tells how step() works.",
            lambda readings: _by_states_alone(readings, "AdamW foreach"),
        ),
        Mistake(
            "You told it from the states alone. The peak of the second step tells how step() "
            "works.",
            lambda readings: _by_states_alone(readings, "AdamW loop"),
        ),
        Mistake(
            "You took loop and foreach for each other. Compare what the step takes with the whole "
            "model: foreach holds the roots of all parameters.",
            lambda readings: _swapped(readings),
        ),
    ),
)


def _swapped(readings: Mapping[str, int]) -> str:
    extra_bytes = readings["peak of second step"] - readings["first step"]
    if not extra_bytes:
        return _by_states_alone(readings, "AdamW fused")
    return "AdamW loop" if extra_bytes == readings["model"] else "AdamW foreach"


# train: warm up with SGD, go on with AdamW

ROOM_BYTES = 6 * MIB
"""More than the loop takes for a while (three weights), less than foreach (all of them)."""

SAME = 1e-4
"""Ways to run step() differ in the last bits; one step of AdamW moves a weight by 1e-3."""


def _train(model: torch.nn.Module, load: Callable[[int], torch.Tensor], steps: int) -> None:
    import torch

    def learn(optimizer: torch.optim.Optimizer, step: int) -> None:
        model(load(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    warm_up = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        learn(warm_up, step)
    del warm_up
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(steps, 2 * steps):
        learn(optimizer, step)


def _try_train(answer: Any, layers: int, steps: int) -> str:
    return try_training(
        answer,
        _train,
        layers=layers,
        steps=steps,
        batches=2 * steps,
        room_bytes=ROOM_BYTES,
        same=SAME,
        question="Which tensors of their size does that step need, and which belong to somebody "
        "who is done?",
    )


def _hidden_train(random: Random) -> list[Config]:
    return [{"layers": random.randrange(16, 25), "steps": 2}]


TRAIN = Fix(
    name="train",
    points=4,
    minutes=20,
    visible=({"layers": 16, "steps": 2},),
    hidden=_hidden_train,
    trial=_try_train,
)

EXERCISE = Exercise(
    name="06_optimizer_states",
    module=__name__,
    tasks=(STATE, EXTRA, WHICH, TRAIN),
)
