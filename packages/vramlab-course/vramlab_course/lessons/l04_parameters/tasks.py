"""Exercise 04: counting parameters, and what they take with gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import Config, Diagnose, Exercise, Fix, Observation, Predict
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import on_host, parameters_of, require_close, to_host
from vramlab_course.tasks.weight_changes import require_same_training

A100 = GPU("A100-40GB")

Layers = Sequence[Sequence[Any]]
"""Layers as data: ["linear", inputs, outputs, bias], ["conv2d", inputs, outputs, kernel, bias],
["batch_norm", channels], ["embedding", rows, width], ["attention", width, heads], ["relu"],
["dropout"]."""


def _module(kind: str, *sizes: int) -> torch.nn.Module:
    match kind, sizes:
        case "linear", (inputs, outputs, bias):
            return torch.nn.Linear(inputs, outputs, bias=bool(bias))
        case "conv2d", (inputs, outputs, kernel, bias):
            return torch.nn.Conv2d(inputs, outputs, kernel, bias=bool(bias))
        case "batch_norm", (channels,):
            return torch.nn.BatchNorm2d(channels)
        case "embedding", (rows, width):
            return torch.nn.Embedding(rows, width)
        case "attention", (width, heads):
            return torch.nn.MultiheadAttention(width, heads)
        case "relu", ():
            return torch.nn.ReLU()
        case "dropout", ():
            return torch.nn.Dropout()
    raise ValueError(f"no layer {kind!r} with {sizes}")


# parameter_count: layer by layer


def _measure_count(layers: Layers) -> int:
    model = torch.nn.ModuleList(_module(*layer) for layer in layers).to("cuda")
    return sum(parameter.numel() for parameter in model.parameters())


def _count(
    layers: Layers,
    *,
    biases: bool | None = None,
    buffers: bool = False,
    attention_layers: int = 4,
    each_head: bool = False,
    kernel_sides: int = 2,
) -> int:
    """Count as it is right, or with a mistake: for the messages only, never for the truth."""
    total = 0
    for kind, *sizes in layers:
        match kind, sizes:
            case "linear", (inputs, outputs, bias):
                total += inputs * outputs + outputs * (bias if biases is None else biases)
            case "conv2d", (inputs, outputs, kernel, bias):
                total += inputs * outputs * kernel**kernel_sides
                total += outputs * (bias if biases is None else biases)
            case "batch_norm", (channels,):
                total += 2 * channels + (2 * channels + 1) * buffers
            case "embedding", (rows, width):
                total += rows * width
            case "attention", (width, heads):
                one = width * width + width * (biases is not False)
                total += attention_layers * one * (heads if each_head else 1)
    return total


_KINDS: dict[str, Callable[[Random], list[int]]] = {
    "linear": lambda random: [random.randrange(1, 999), random.randrange(1, 999), 1],
    "conv2d": lambda random: [
        random.randrange(1, 99),
        random.randrange(1, 99),
        random.choice((3, 5, 7)),
        1,
    ],
    "batch_norm": lambda random: [random.randrange(1, 999)],
    "embedding": lambda random: [random.randrange(100, 9999), random.randrange(1, 99)],
    "attention": lambda random: [8 * random.randrange(2, 40), random.choice((2, 4, 8))],
    "relu": lambda random: [],
    "dropout": lambda random: [],
}


def _random_layers(random: Random, *kinds: str) -> Config:
    """Layers of some kinds, in any order, so that who knows one kind less errs in its cases."""
    chosen = ["linear", *kinds, *kinds, "relu", "dropout"]
    random.shuffle(chosen)
    return {"layers": [[kind, *_KINDS[kind](random)] for kind in chosen]}


def _without_bias(random: Random) -> Config:
    """Layers of which some have no bias."""
    layers = _random_layers(random, "linear")["layers"]
    size = random.randrange(2, 99)
    return {"layers": [*layers, ["linear", 7 * size, size, 0], ["conv2d", 3, size, 3, 0]]}


COUNT = Predict(
    name="parameter_count",
    points=3,
    minutes=20,
    visible=(
        {"layers": [["linear", 1024, 1024, 1], ["relu"], ["linear", 1024, 10, 0]]},
        {"layers": [["conv2d", 3, 64, 3, 1], ["conv2d", 64, 64, 5, 0], ["batch_norm", 64]]},
        {"layers": [["embedding", 1000, 64], ["attention", 64, 8], ["dropout"]]},
    ),
    hidden=lambda random: [
        _without_bias(random),
        *(
            _random_layers(random, kind)
            for kind in ("conv2d", "batch_norm", "embedding", "attention")
        ),
        _random_layers(random, "batch_norm", "attention"),
    ],
    measure=_measure_count,
    gpu=A100,
    mistakes=of(
        _count,
        ("You left out the biases.", {"biases": False}),
        (
            "You counted a bias for a layer without one: see the last number in its description.",
            {"biases": True},
        ),
        (
            "You counted the buffers of batch norm. They are on the GPU, but they are not "
            "parameters.",
            {"buffers": True},
        ),
        (
            "You counted three Linear layers for attention: query, key and value. The output "
            "projection is the fourth.",
            {"attention_layers": 3},
        ),
        (
            "You counted attention once per head. The heads split the hidden size between them.",
            {"each_head": True},
        ),
        (
            "A kernel of a convolution has K rows and K columns: K * K weights for each pair of "
            "channels.",
            {"kernel_sides": 1},
        ),
    ),
)


# training_bytes: before the first activation

_DTYPES = {"float32": 4, "float16": 2}
_OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}


def _optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    if name == "adam":
        return torch.optim.Adam(parameters)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9 if name == "momentum" else 0)


def _linears(widths: Sequence[int], frozen: int) -> torch.nn.Sequential:
    """Layers without bias, of which the first `frozen` are not trained."""
    layers = [torch.nn.Linear(inputs, outputs, bias=False) for inputs, outputs in pairwise(widths)]
    for layer in layers[:frozen]:
        layer.requires_grad_(False)
    return torch.nn.Sequential(*layers).to("cuda")


def _add_gradients(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)


def _measure_training(widths: Sequence[int], dtype: str, optimizer: str, frozen: int) -> int:
    """Return the bytes of tensors after one step, before rounding; its temporaries are freed."""
    model = _linears(widths, frozen).to(getattr(torch, dtype))
    _add_gradients(model)
    step = _optimizer(optimizer, model)
    step.step()
    return int(torch.cuda.memory_stats()["requested_bytes.all.current"])


def _training(
    widths: Sequence[int],
    dtype: str,
    optimizer: str,
    frozen: int,
    *,
    weights: int = 1,
    gradients: int = 1,
    thaw: bool = False,
    item_bytes: int | None = None,
) -> int:
    """Count as it is right, or with a mistake: for the messages only, never for the truth."""
    sizes = [a * b for a, b in pairwise(widths)]
    trained = sum(sizes) if thaw else sum(sizes[frozen:])
    copies = gradients + _OPTIMIZERS[optimizer]
    return (item_bytes or _DTYPES[dtype]) * (weights * sum(sizes) + copies * trained)


def _case(random: Random, dtype: str, frozen: int) -> Config:
    return {
        "widths": [random.randrange(256, 2048) for _ in range(random.randrange(4, 7))],
        "dtype": dtype,
        "optimizer": random.choice(tuple(_OPTIMIZERS)),
        "frozen": frozen,
    }


TRAINING = Predict(
    name="training_bytes",
    points=3,
    minutes=20,
    visible=(
        {"widths": [1024, 1024, 2048], "dtype": "float32", "optimizer": "adam", "frozen": 0},
        {"widths": [1024, 1024, 2048], "dtype": "float16", "optimizer": "momentum", "frozen": 0},
        {"widths": [1024, 1024, 2048], "dtype": "float32", "optimizer": "sgd", "frozen": 1},
    ),
    hidden=lambda random: [
        _case(random, dtype, frozen)
        for dtype in _DTYPES
        for frozen in (0, 1, random.choice((2, 3)))
    ],
    rule=lambda widths, dtype, optimizer, frozen: (dtype, frozen > 0),
    measure=_measure_training,
    gpu=A100,
    mistakes=of(
        _training,
        ("You left out the gradients.", {"gradients": 0}),
        ("You left out the parameters themselves.", {"weights": 0}),
        (
            "You counted gradients and optimizer states for frozen layers. They have neither.",
            {"thaw": True},
        ),
        (
            "You used 4 bytes everywhere. Gradients and optimizer states have the dtype of their "
            "parameter.",
            {"item_bytes": 4},
        ),
    ),
)


# what_was_trained: from numbers that a run left behind


def _observe_training(optimizer: str, frozen_share: str, width: int) -> Observation:
    """Note what was allocated after each stage; the answer is the optimizer's name."""
    model = _linears([width] * 5, {"none": 0, "half": 2}[frozen_share])
    stages = {"model": torch.cuda.memory_allocated()}
    _add_gradients(model)
    stages["backward"] = torch.cuda.memory_allocated()
    step = _optimizer(optimizer, model)
    step.step()
    stages["step"] = torch.cuda.memory_allocated()
    return Observation({"allocated": stages}, optimizer)


def _which(allocated: Mapping[str, int], unit_bytes: int) -> str:
    copies = (allocated["step"] - allocated["backward"]) // unit_bytes
    return {0: "sgd", 1: "momentum", 2: "adam"}.get(copies, "sgd")


OPTIMIZER = Diagnose(
    name="which_optimizer",
    points=3,
    minutes=20,
    visible=(
        {"optimizer": "adam", "frozen_share": "none", "width": 1024},
        {"optimizer": "momentum", "frozen_share": "none", "width": 1024},
        {"optimizer": "adam", "frozen_share": "half", "width": 1024},
    ),
    hidden=lambda random: [
        {
            "optimizer": optimizer,
            "frozen_share": frozen_share,
            "width": 512 * random.randrange(2, 4),
        }
        for optimizer, frozen_share in (
            ("sgd", "half"),
            ("momentum", "half"),
            ("adam", "half"),
            ("sgd", "none"),
            ("momentum", "none"),
        )
    ],
    rule=lambda frozen_share, **_: frozen_share,
    observe=_observe_training,
    gpu=A100,
    mistakes=(
        Mistake(
            "You compared the optimizer states with all parameters. Frozen parameters have no "
            "states: compare with the gradients.",
            lambda allocated: _which(allocated, allocated["model"]),
        ),
        Mistake(
            "You counted the gradients as optimizer states. They exist before the optimizer's "
            "first step.",
            lambda allocated: {1: "momentum", 2: "adam"}.get(
                (allocated["step"] - allocated["model"])
                // (allocated["backward"] - allocated["model"]),
                "adam",
            ),
        ),
    ),
)


# train_head: unused gradients

STEPS = 3
ROOM_MIB = 72
"""Beside the parameters: the head's gradients and states, workspaces, activations; not as much as
the other layers' gradients."""


def _head_and_data(width: int, depth: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Return Linear layers, of which the last one is trained, inputs and targets: (8, width)."""
    from vramlab_course.programs.unfilled import UnfilledWeights

    with UnfilledWeights():
        layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    values = torch.arange(width * width, dtype=torch.float32).remainder_(7)
    values = values.reshape(width, width).sub_(3).div_(width)
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(values)
            layer.bias.fill_(0.5)
    inputs = 4 * torch.rand(8, width, generator=torch.Generator().manual_seed(depth))
    return torch.nn.Sequential(*layers).to("cuda"), inputs.to("cuda"), inputs.flip(0).to("cuda")


def _train_head(
    model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Run the program as it is given."""
    assert isinstance(model, torch.nn.Sequential)
    head = model[-1]
    assert isinstance(head, torch.nn.Linear)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(STEPS):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return head.weight.detach()


def _how_many_gradients(run: Run) -> str:
    model, _, _ = run.inputs
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return (
        f"It still runs out of memory. {len(gradients)} parameters have a gradient; how many of "
        "them does the optimizer look at?"
    )


def _weights(run: Run, weight: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what it returns, and the weight of the model's head, which it trains."""
    head = list(parameters_of(run.inputs[0]))[-2]
    return on_host(weight, "It fits, but gives no tensor on the GPU any more."), to_host(head)


def _same_weight(run: Run, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    (returned, head), (wanted, _) = run.results, expected
    require_same_training([returned], [wanted])
    message = "It returns the right weight, but the head of the model has another."
    require_close(head, returned, message)


TRAIN_HEAD = Fix(
    name="train_head",
    points=4,
    minutes=20,
    visible=({"width": 1024, "depth": 24},),
    hidden=lambda random: [{"width": 1024, "depth": random.randrange(26, 30)}],
    trial=Repair(
        gpu=A100.but(values=True),
        build=lambda run, width, depth: _head_and_data(width, depth),
        reference=_train_head,
        least_share=0.08,  # computing the body's outputs only once takes a ninth
        limit=lambda own: ROOM_MIB * MIB,
        by_others=True,
        ran_out=_how_many_gradients,
        collect=_weights,
        compare=_same_weight,
        report=lambda run: f"peak {format_bytes(run.peak_bytes)}",
    ),
)

EXERCISE = Exercise(
    name="04_parameters",
    module=__name__,
    tasks=(COUNT, TRAINING, OPTIMIZER, TRAIN_HEAD),
    core=("training_bytes", "train_head"),
)
