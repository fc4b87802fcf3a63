"""Exercise 06: what optimizers keep, what step() takes, and how to need less of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from random import Random
from typing import Any

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.units import MIB
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, Observation, Predict
from vramlab_course.tasks.deep_chain import training
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.readings import peak_growth_bytes

T4 = GPU("T4")

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
    if name.startswith("SGD"):
        momentum = 0.9 if name == "SGD with momentum" else 0.0
        return torch.optim.SGD(parameters, lr=0.1, momentum=momentum, **way)
    if name == "Adam":
        return torch.optim.Adam(parameters, **way)
    return torch.optim.AdamW(parameters, **way)


def _parameters(shapes: Shapes) -> list[torch.nn.Parameter]:
    """Parameters with gradients; all parameters first, then all gradients."""
    parameters = [torch.nn.Parameter(torch.zeros(*shape, device="cuda")) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return parameters


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
    parameters = _parameters(shapes)
    before_bytes = torch.cuda.memory_allocated()
    instance = _optimizer(optimizer, parameters, **({"fused": True} if fused else {}))
    instance.step()
    return torch.cuda.memory_allocated() - before_bytes


def _states(
    optimizer: str,
    fused: bool,
    shapes: Shapes,
    *,
    states: Mapping[str, int] = STATES,
    gradients: int = 0,
    counting: str = "Adam",
    block: Callable[[int], int] = block_bytes,
) -> int:
    """Return the answer or a mistaken one: `counting` optimizers have counters, if fused."""
    sizes_bytes = sum(block(4 * prod(shape)) for shape in shapes)
    counters_bytes = 512 * len(shapes) if fused and optimizer.startswith(counting) else 0
    return (states[optimizer] + gradients) * sizes_bytes + counters_bytes


_CHAIN = [[1024, 1024], [1024], [2048, 1024], [2048]]

STATE = Predict(
    name="state_bytes",
    points=3,
    minutes=10,
    visible=(
        {"optimizer": "SGD", "fused": False, "shapes": _CHAIN},
        {"optimizer": "SGD", "fused": True, "shapes": _CHAIN},
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
    gpu=T4,
    mistakes=of(
        _states,
        (
            "You gave plain SGD a state. It has none; only momentum adds one.",
            {"states": {**STATES, "SGD": 1}},
        ),
        (
            "You gave momentum two states. It has one, the momentum buffer.",
            {"states": {**STATES, "SGD with momentum": 2}},
        ),
        ("You counted the gradients. They were there before the step.", {"gradients": 1}),
        (
            "You forgot the counters of fused Adam: one number for each parameter tensor, on the "
            "GPU.",
            {"fused": False},
        ),
        (
            "You put the step counters on the GPU in every case. Only the fused implementation "
            "has them there.",
            {"fused": True},
        ),
        ("You gave fused SGD step counters. SGD does not count its steps.", {"counting": ""}),
        ("You left out the rounding: block sizes are multiples of 512 bytes.", {"block": int}),
    ),
)


# step_extra_bytes: what AdamW's step() takes for a while


def _measure_step_extra(way: str, shapes: Shapes) -> int:
    parameters = _parameters(shapes)
    optimizer = _optimizer("AdamW", parameters, **WAYS[way])
    optimizer.step()
    return peak_growth_bytes(optimizer.step)


def _extra(
    way: str, shapes: Shapes, *, before: int = 1, own: int = 2, roots: int = 1, fused: int = 0
) -> int:
    """Return the answer or a mistaken one: how many times which parameters each way takes."""
    sizes = [block_bytes(4 * prod(shape)) for shape in shapes]
    if way == "loop":
        pairs = zip([0, *sizes], sizes, strict=False)
        return max(before * previous + own * size for previous, size in pairs)
    return (roots if way == "foreach" else fused) * sum(sizes)


def _layers(*sizes_mib: int) -> list[list[int]]:
    return [[256 * size, 1024] for size in sizes_mib]


EXTRA = Predict(
    name="step_extra_bytes",
    points=4,
    minutes=25,
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
    gpu=T4,
    mistakes=of(
        _extra,
        (
            "You took the loop for twice the largest parameter. While it computes root and "
            "quotient of a parameter, the quotient of the one before still has its name.",
            {"before": 0},
        ),
        (
            "You took the loop for three times the largest parameter. The third is the quotient "
            "of the parameter before, which has that one's size; the first has none before it.",
            {"before": 0, "own": 3},
        ),
        (
            "You took foreach for twice all parameters. It needs the roots only; the rest "
            "happens in place.",
            {"roots": 2},
        ),
        (
            "You took all ways for the same. They differ in what they hold at once: a parameter "
            "at a time, all of them, or nothing.",
            {"way": "foreach"},
        ),
        (
            "You gave the fused step temporary memory. Its kernel keeps intermediate values in "
            "registers.",
            {"fused": 1},
        ),
    ),
)


# which_optimizer: told from what was allocated


ANSWERS = ("SGD", "SGD with momentum", "AdamW loop", "AdamW foreach", "AdamW fused")

_LOOKED_AT = dict(zip(ANSWERS, ("states", "states", "peak", "peak", "no peak"), strict=True))
"""What tells an optimizer from the others."""


def _observe_optimizer(optimizer: str, width: int, layers: int) -> Observation:
    """Take two steps on a stack of weights, and read the allocated bytes after each stage.

    Args:
        optimizer: one of `ANSWERS`.
        width: each weight is (width, width).
        layers: how many weights; four or more, so that loop and foreach differ.
    """
    readings = {}
    name, _, way = optimizer.partition(" ") if optimizer in ANSWERS[2:] else (optimizer, "", "")
    weights = [torch.nn.Parameter(torch.zeros(width, width, device="cuda")) for _ in range(layers)]
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
    return Observation({"readings": readings}, optimizer)


def _by_states_alone(readings: Mapping[str, int], adam: str) -> str:
    kept = (readings["first step"] - readings["gradients"]) / readings["model"]
    return adam if kept > 1.5 else "SGD with momentum" if kept > 0.5 else "SGD"


def _swapped(readings: Mapping[str, int]) -> str:
    extra_bytes = readings["peak of second step"] - readings["first step"]
    if not extra_bytes:
        return _by_states_alone(readings, "AdamW fused")
    return "AdamW loop" if extra_bytes == readings["model"] else "AdamW foreach"


WHICH = Diagnose(
    name="which_optimizer",
    points=4,
    minutes=20,
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
    rule=lambda optimizer, **_: _LOOKED_AT[optimizer],
    observe=_observe_optimizer,
    gpu=T4,
    mistakes=of(
        _by_states_alone,
        (
            "You looked only at the states, and assumed the default. The peak of the second step "
            "shows how step() works.",
            {"adam": "AdamW foreach"},
        ),
        (
            "You looked only at the states. The peak of the second step shows which "
            "implementation runs.",
            {"adam": "AdamW loop"},
        ),
        Mistake(
            "You swapped loop and foreach. Compare the step's temporary memory with the whole "
            "model: foreach allocates the roots of all parameters at the same time.",
            _swapped,
        ),
    ),
)


# train: warm up with SGD, go on with AdamW

ROOM_BYTES = 6 * MIB
"""More than the loop takes for a while (three weights), less than foreach (all of them)."""


def _train(model: torch.nn.Module, load: Callable[[int], torch.Tensor], steps: int) -> None:
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


TRAIN = Fix(
    name="train",
    points=4,
    minutes=25,
    visible=({"layers": 16, "steps": 2},),
    hidden=lambda random: [{"layers": random.randrange(16, 25), "steps": 2}],
    trial=training(
        _train,
        batches_per_step=2,
        room_bytes=ROOM_BYTES,
        question="Which tensors of their size does that step need, and which are left "
        "from work that is done?",
    ),
)

EXERCISE = Exercise(
    name="06_optimizer_states",
    module=__name__,
    tasks=(STATE, EXTRA, WHICH, TRAIN),
    core=("state_bytes", "train"),
)
