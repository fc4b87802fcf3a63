"""Exercise 04: counting parameters, and what they take with gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.grading.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    Mistake,
    NotFixed,
    Observation,
    Predict,
)
from vramlab.units import MIB, format_bytes

if TYPE_CHECKING:
    import torch

GPU = "A100-40GB"
"""A grade names its GPU, so that it does not depend on the machine that grades."""

Layers = Sequence[Sequence[Any]]
"""Layers as data: ["linear", inputs, outputs, bias], ["conv2d", inputs, outputs, kernel, bias],
["batch_norm", channels], ["embedding", rows, width], ["attention", width, heads], ["relu"],
["dropout"]."""


def _module(kind: str, *sizes: int) -> torch.nn.Module:
    from torch import nn

    match kind, sizes:
        case "linear", (inputs, outputs, bias):
            return nn.Linear(inputs, outputs, bias=bool(bias))
        case "conv2d", (inputs, outputs, kernel, bias):
            return nn.Conv2d(inputs, outputs, kernel, bias=bool(bias))
        case "batch_norm", (channels,):
            return nn.BatchNorm2d(channels)
        case "embedding", (rows, width):
            return nn.Embedding(rows, width)
        case "attention", (width, heads):
            return nn.MultiheadAttention(width, heads)
        case "relu", ():
            return nn.ReLU()
        case "dropout", ():
            return nn.Dropout()
    raise ValueError(f"no layer {kind!r} with {sizes}")


# parameter_count: layer by layer


def _measure_count(layers: Layers) -> int:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        model = torch.nn.ModuleList(_module(*layer) for layer in layers).to("cuda")
        return sum(parameter.numel() for parameter in model.parameters())


def _count(layers: Layers, *, always_bias: bool = False, buffers: bool = False) -> int:
    """Count as it is right, or with a mistake: for the messages only, never for the truth."""
    total = 0
    for kind, *sizes in layers:
        match kind, sizes:
            case "linear", (inputs, outputs, bias):
                total += inputs * outputs + outputs * (bias or always_bias)
            case "conv2d", (inputs, outputs, kernel, bias):
                total += inputs * outputs * kernel**2 + outputs * (bias or always_bias)
            case "batch_norm", (channels,):
                total += 2 * channels + (2 * channels + 1) * buffers
            case "embedding", (rows, width):
                total += rows * width
            case "attention", (width, _):
                total += 4 * (width * width + width)
    return total


def _without_biases(layers: Layers) -> int:
    biases = {"linear": 2, "conv2d": 2}
    total = _count(layers)
    for kind, *sizes in layers:
        if kind in biases and sizes[-1]:
            total -= sizes[1]
        elif kind == "attention":
            total -= 4 * sizes[0]
    return total


def _three_attention_layers(layers: Layers) -> int:
    widths: list[int] = [layer[1] for layer in layers if layer[0] == "attention"]
    return _count(layers) - sum(width * width + width for width in widths)


def _kernel_once(layers: Layers) -> int:
    convolutions: list[list[int]] = [list(layer[1:4]) for layer in layers if layer[0] == "conv2d"]
    return _count(layers) - sum(
        inputs * outputs * (kernel * kernel - kernel) for inputs, outputs, kernel in convolutions
    )


def _heads_times(layers: Layers) -> int:
    attention: list[list[int]] = [list(layer[1:]) for layer in layers if layer[0] == "attention"]
    return _count(layers) + sum(
        (heads - 1) * 4 * (width * width + width) for width, heads in attention
    )


_KINDS: dict[str, Callable[[Random], list[int]]] = {
    "linear": lambda random: [random.randrange(1, 999), random.randrange(1, 999), 1],
    "conv2d": lambda random: [
        random.randrange(1, 99),
        random.randrange(1, 99),
        random.choice((3, 5, 7)),
        random.randrange(2),
    ],
    "batch_norm": lambda random: [random.randrange(1, 999)],
    "embedding": lambda random: [random.randrange(100, 9999), random.randrange(1, 99)],
    "attention": lambda random: [8 * random.randrange(2, 40), random.choice((2, 4, 8))],
    "relu": lambda random: [],
    "dropout": lambda random: [],
}


def _random_layers(random: Random) -> Config:
    kinds = [*_KINDS, *random.choices(tuple(_KINDS), k=3)]
    random.shuffle(kinds)
    layers = [[kind, *_KINDS[kind](random)] for kind in kinds]
    layers.append(["linear", random.randrange(1, 999), random.randrange(1, 999), 0])
    return {"layers": layers}


COUNT = Predict(
    name="parameter_count",
    points=3,
    minutes=15,
    visible=(
        {"layers": [["linear", 1024, 1024, 1], ["relu"], ["linear", 1024, 10, 0]]},
        {"layers": [["conv2d", 3, 64, 3, 1], ["conv2d", 64, 64, 5, 0], ["batch_norm", 64]]},
        {"layers": [["embedding", 1000, 64], ["attention", 64, 8], ["dropout"]]},
    ),
    hidden=lambda random: [_random_layers(random) for _ in range(5)],
    measure=_measure_count,
    mistakes=(
        Mistake("You leave the biases out.", _without_biases),
        Mistake(
            "You count a bias where the layer has none: the last number of a layer tells.",
            lambda layers: _count(layers, always_bias=True),
        ),
        Mistake(
            "You count the buffers of batch norm. They lie on the GPU, but they are no parameters.",
            lambda layers: _count(layers, buffers=True),
        ),
        Mistake(
            "You count three Linear layers for attention: queries, keys and values. The output "
            "has one, too.",
            _three_attention_layers,
        ),
        Mistake(
            "You count attention once for each head. The heads share the width among them.",
            _heads_times,
        ),
        Mistake(
            "A kernel of a convolution has K rows and K columns: K * K weights for each pair of "
            "channels.",
            _kernel_once,
        ),
    ),
)


# training_bytes: before the first activation

_DTYPES = {"float32": 4, "float16": 2}
_OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}


def _optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    import torch

    parameters = list(model.parameters())
    if name == "adam":
        return torch.optim.Adam(parameters)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9 if name == "momentum" else 0)


def _measure_training(widths: Sequence[int], dtype: str, optimizer: str, frozen: int) -> int:
    """What tensors hold after one step, before blocks round it; nothing of the step is left."""
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        layers = [
            torch.nn.Linear(inputs, outputs, bias=False) for inputs, outputs in pairwise(widths)
        ]
        model = torch.nn.Sequential(*layers).to("cuda", getattr(torch, dtype))
        for layer in layers[:frozen]:
            layer.requires_grad_(False)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
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


def _case(random: Random, frozen: int) -> Config:
    return {
        "widths": [random.randrange(256, 2048) for _ in range(random.randrange(4, 7))],
        "dtype": random.choice(tuple(_DTYPES)),
        "optimizer": random.choice(tuple(_OPTIMIZERS)),
        "frozen": frozen,
    }


TRAINING = Predict(
    name="training_bytes",
    points=3,
    minutes=15,
    visible=(
        {"widths": [1024, 1024, 2048], "dtype": "float32", "optimizer": "adam", "frozen": 0},
        {"widths": [1024, 1024, 2048], "dtype": "float16", "optimizer": "momentum", "frozen": 0},
        {"widths": [1024, 1024, 2048], "dtype": "float32", "optimizer": "sgd", "frozen": 1},
    ),
    hidden=lambda random: [_case(random, frozen) for frozen in (0, 1, 2, 0, 3, 1)],
    measure=_measure_training,
    mistakes=(
        Mistake(
            "You forget the gradients.",
            lambda **config: _training(**config, gradients=0),
        ),
        Mistake(
            "You forget the parameters themselves.",
            lambda **config: _training(**config, weights=0),
        ),
        Mistake(
            "You count gradients and states of frozen layers. They have none.",
            lambda **config: _training(**config, thaw=True),
        ),
        Mistake(
            "You take 4 bytes for everything. Gradients and states have the dtype of their "
            "parameter.",
            lambda **config: _training(**config, item_bytes=4),
        ),
    ),
)


# what_was_trained: from numbers that a run left behind


def _observe_training(optimizer: str, frozen_share: str, width: int) -> Observation:
    """Note what was allocated after each stage; the answer is the optimizer's name."""
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        model = torch.nn.Sequential(
            *(torch.nn.Linear(width, width, bias=False) for _ in range(4))
        ).to("cuda")
        frozen = {"none": 0, "half": 2}[frozen_share]
        for layer in list(model)[:frozen]:
            layer.requires_grad_(False)
        stages = {"model": torch.cuda.memory_allocated()}
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
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
    minutes=15,
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
    observe=_observe_training,
    mistakes=(
        Mistake(
            "You compare the states with all parameters. Frozen parameters have no states: "
            "compare with the gradients.",
            lambda allocated: _which(allocated, allocated["model"]),
        ),
        Mistake(
            "You count the gradients to the optimizer's states. They are there before its first "
            "step.",
            lambda allocated: {1: "momentum", 2: "adam"}.get(
                (allocated["step"] - allocated["model"])
                // (allocated["backward"] - allocated["model"]),
                "adam",
            ),
        ),
    ),
)


# train_head: gradients that nobody needs

STEPS = 3
ROOM_MIB = 72
"""Beside the parameters: the head's gradients and states, workspaces, activations; not as much as
the other layers' gradients."""


def _head_and_data(width: int, depth: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A stack of Linear layers whose last one is to be trained, inputs and targets: (8, width)."""
    import torch

    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    with torch.no_grad():
        for layer in layers:
            values = torch.arange(width * width, dtype=torch.float32).remainder_(7)
            layer.weight.copy_(values.reshape(width, width).sub_(3).div_(width))
            layer.bias.fill_(0.5)
    inputs = torch.arange(8 * width, dtype=torch.float32).remainder_(5).reshape(8, width)
    return torch.nn.Sequential(*layers).to("cuda"), inputs.to("cuda"), inputs.flip(0).to("cuda")


def _train_head(
    model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The program as it is given."""
    import torch

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


def _try_train_head(answer: Any, width: int, depth: int) -> str:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU, values=True):
        expected = _train_head(*_head_and_data(width, depth)).cpu()
    with vramlab.VirtualGPU(GPU, values=True) as gpu:
        model, inputs, targets = _head_and_data(width, depth)
        free_bytes, _ = torch.cuda.mem_get_info()
        gpu.machine.device(0).memory.used_by_others_bytes = free_bytes - ROOM_MIB * MIB
        try:
            weight = answer(model, inputs, targets)
        except torch.cuda.OutOfMemoryError as error:
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            raise NotFixed(
                f"It still runs out of memory. {len(gradients)} parameters have a gradient; how "
                "many of them does the optimizer look at?"
            ) from error
        peak_bytes = torch.cuda.max_memory_allocated()
        if not isinstance(weight, torch.Tensor) or not weight.is_cuda:
            raise NotFixed("It fits, but gives no tensor on the GPU any more.")
        if weight.shape != expected.shape or not torch.equal(weight.detach().cpu(), expected):
            raise NotFixed("It fits, but the head's weight is not the same any more.")
    return f"peak {format_bytes(peak_bytes)}"


TRAIN_HEAD = Fix(
    name="train_head",
    points=4,
    minutes=15,
    visible=({"width": 1024, "depth": 24},),
    hidden=lambda random: [{"width": 1024, "depth": random.randrange(26, 30)}],
    trial=_try_train_head,
)

EXERCISE = Exercise(
    name="04_parameters", module=__name__, tasks=(COUNT, TRAINING, OPTIMIZER, TRAIN_HEAD)
)
