"""Exercise 08: what operators keep for backward, and how to let them keep less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import is_plain, require_close, to_host

T4 = GPU("T4")

# Sizes are so chosen that no block keeps a rest: lesson 02 is about those. A size is at most 1 MiB,
# or a multiple of 2 MiB.


# block_growth: the MLP block with its options

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
KEEPS_INPUT = ("gelu", "silu")
"""The other activation functions keep their output. For naming mistakes, not for grading."""


ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "gelu": "GELU", "silu": "SiLU"}


def _measure_block(
    rows: int,
    width: int,
    factor: int,
    activation: str,
    dropout: bool,
    residual: bool,
    dtype: str,
) -> int:
    item = getattr(torch, dtype)
    with torch.device("cuda"):
        widen = torch.nn.Linear(width, factor * width, dtype=item)
        narrow = torch.nn.Linear(factor * width, width, dtype=item)
        drop = torch.nn.Dropout(0.1 if dropout else 0.0)
        layers = torch.nn.Sequential(
            widen, getattr(torch.nn, ACTIVATIONS[activation])(), narrow, drop
        )
        del widen, narrow, drop
        x = torch.zeros(rows, width, dtype=item, requires_grad=True)
        with torch.no_grad():
            layers(x)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        return growth_bytes(lambda: x + layers(x) if residual else layers(x))


def _block(
    rows: int,
    width: int,
    factor: int,
    activation: str,
    dropout: bool,
    residual: bool,
    dtype: str,
    *,
    middles: int | None = None,
    outer: int = 1,
    sums: int = 0,
    mask_bytes: int | None = 1,
) -> int:
    """Return the answer or a mistaken one: `middles` and `outer` count the tensors of the middle's
    size, and of x's; `sums` what a sum keeps."""
    elements, item_bytes = rows * width, ITEM_BYTES[dtype]
    if middles is None:
        middles = 2 if activation in KEEPS_INPUT else 1
    tensors = outer + sums * residual + middles * factor
    mask_bytes = item_bytes if mask_bytes is None else mask_bytes
    return tensors * item_bytes * elements + mask_bytes * elements * dropout


def _options(random: Random, activation: str, dtype: str, dropout: bool) -> Config:
    return {
        "rows": 2048 * random.randrange(1, 4),
        "width": 1024 * random.randrange(1, 3),
        "factor": random.randrange(2, 5),
        "activation": activation,
        "dropout": dropout,
        "residual": not dropout or random.random() < 0.5,
        "dtype": dtype,
    }


_USUAL: Config = {"rows": 4096, "width": 1024, "factor": 4, "residual": True}

BLOCK = Predict(
    name="block_growth",
    points=4,
    minutes=20,
    visible=(
        {**_USUAL, "activation": "gelu", "dropout": True, "dtype": "float32"},
        {**_USUAL, "activation": "gelu", "dropout": True, "dtype": "float16"},
        {**_USUAL, "activation": "relu", "dropout": True, "dtype": "float32"},
        {**_USUAL, "activation": "tanh", "dropout": False, "dtype": "bfloat16", "residual": False},
        {**_USUAL, "activation": "silu", "dropout": True, "dtype": "float32", "factor": 3},
    ),
    hidden=lambda random: [
        _options(random, activation, dtype, dropout)
        for activation in ACTIVATIONS
        for dtype, dropout in (("float16", True), ("float32", activation in KEEPS_INPUT))
    ],
    rule=lambda activation, dropout, **sizes: (activation, dropout),
    measure=_measure_block,
    gpu=T4,
    mistakes=of(
        _block,
        (
            "You let every activation function keep its input. ReLU and tanh keep their output, "
            "which is the second layer's input: one tensor, not two.",
            {"middles": 2},
        ),
        (
            "You left out what activation functions save. GELU and SiLU save their input, which "
            "no other operator saves.",
            {"middles": 1},
        ),
        ("You counted x. It was there before the forward pass.", {"outer": 2}),
        ("You left out the output. The caller still references it.", {"outer": 0}),
        ("You left out what dropout saves.", {"mask_bytes": 0}),
        (
            "You counted dropout's mask as floats. It is one bool per element, for every dtype.",
            {"mask_bytes": None},
        ),
        ("You let the sum save a tensor. An addition saves neither of its inputs.", {"sums": 1}),
    ),
)


# which_function: told from what it keeps between different neighbours

FUNCTIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "2 * x": lambda x: 2 * x,
    "relu": lambda x: torch.relu(x),
    "gelu": lambda x: torch.nn.functional.gelu(x),
    "dropout": lambda x: torch.nn.functional.dropout(x),
    "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
}


def _observe_function(function: str, rows: int, width: int) -> Observation:
    """Read what a forward pass leaves, with the function between two products, and two sums.

    Args:
        function: one of `FUNCTIONS`.
        rows, width: of every activation.
    """
    f = FUNCTIONS[function]
    with torch.device("cuda"):
        x = torch.zeros(rows, width, requires_grad=True)
        first, second = (torch.zeros(width, width, requires_grad=True) for _ in range(2))
        with torch.no_grad():
            x @ first  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        readings = {
            "activation": x.nbytes,
            "between products": growth_bytes(lambda: f(x @ first) @ second),
        }
        torch.cuda.empty_cache()
        readings["between sums"] = growth_bytes(lambda: f(x + 1) + 1)
    return Observation({"readings": readings}, function)


def _by_products(readings: Mapping[str, int], two: str) -> str:
    """Classify by the first reading alone; return `two` if it is two activations."""
    unit_bytes = readings["activation"]
    answers = {8: two, 9: "dropout", 12: "gelu", 16: "x * sigmoid(x)"}
    return answers[4 * readings["between products"] // unit_bytes]


def _by_sums(readings: Mapping[str, int], two: str) -> str:
    """Classify by the second reading alone; return `two` if it is two activations."""
    unit_bytes = readings["activation"]
    answers = {4: "2 * x", 5: "dropout", 8: two, 12: "x * sigmoid(x)"}
    return answers[4 * readings["between sums"] // unit_bytes]


WHICH = Diagnose(
    name="which_function",
    points=4,
    minutes=20,
    visible=(
        {"function": "gelu", "rows": 4096, "width": 1024},
        {"function": "relu", "rows": 4096, "width": 1024},
        {"function": "2 * x", "rows": 4096, "width": 1024},
    ),
    hidden=lambda random: [
        {"function": function, "rows": 2048 * random.randrange(1, 4), "width": 1024}
        for function in FUNCTIONS
    ],
    observe=_observe_function,
    gpu=T4,
    mistakes=(
        *of(
            _by_products,
            *(
                (
                    "You told it from the reading between products alone. There the second product "
                    "keeps the function's output, whether the function needs it or not.",
                    {"two": two},
                )
                for two in ("relu", "2 * x")
            ),
        ),
        *of(
            _by_sums,
            *(
                (
                    "You told it from the reading between sums alone. There, keeping the input "
                    "costs as much as keeping the output.",
                    {"two": two},
                )
                for two in ("relu", "gelu")
            ),
        ),
    ),
)


# What both repairs need

WIDTH = 64
ROWS = 8192
UNIT_BYTES = 4 * ROWS * WIDTH
"""An activation: 2 MiB."""
EPS = 1e-5


def _repair(
    own: Any,
    build: Callable[..., list[torch.Tensor]],
    forward: Callable[[Run], torch.Tensor],
    room_bytes: int,
    question: str,
) -> Repair:
    """Return the repair of a function that is called in each of some `layers`.

    Args:
        own: the function that is right, and decides the limit.
        build: makes the input of the first layer, and the weights of all.
        forward: calls the function that is tried, layer by layer.
        room_bytes: what may be reserved beyond what our own function does.
        question: for a program that ran out of memory, with a place for the number of layers.
    """

    def where_it_ended(run: Run) -> str:
        held = run.peak_bytes / UNIT_BYTES
        return (
            f"{run.ran_out} where it holds {held:.0f} tensors of an activation's size. "
            f"{question.format(**run.case)}"
        )

    return Repair(
        gpu=T4.but(values=True),
        build=build,
        call=lambda run: _step_on_the_gpu(run, forward),
        reference=own,
        limit=room(room_bytes),
        ran_out=where_it_ended,
        collect=_with_gradients,
        compare=_same_step,
    )


def _input() -> torch.Tensor:
    values = torch.arange(ROWS * WIDTH, dtype=torch.float32, device="cuda")
    x = values.mul_(0.7).sin_().reshape(ROWS, WIDTH)
    return x.requires_grad_()


def _required_tensor(y: object) -> torch.Tensor:
    if not is_plain(y):
        raise NotFixed(f"It has to return a tensor, and gives a {type(y).__name__}.")
    return y


def _step_on_the_gpu(run: Run, forward: Callable[[Run], torch.Tensor]) -> torch.Tensor:
    """Train a step, and require that what it saves for backward does not wait on the host."""
    loss = _step(run, forward(run))
    run.require_stayed(UNIT_BYTES, "What is saved for the backward pass counts there, too.")
    return loss


def _step(run: Run, y: torch.Tensor) -> torch.Tensor:
    """Train a step; give its loss."""
    x = run.inputs[0]
    run.require_intact()
    if y.shape != x.shape:
        raise NotFixed(f"The result has the shape {tuple(y.shape)}, not {tuple(x.shape)}.")
    loss = y.square().mean()
    loss.backward()
    return loss.detach()


def _with_gradients(run: Run, loss: torch.Tensor) -> list[torch.Tensor]:
    if any(tensor.grad is None for tensor in run.inputs):
        raise NotFixed("It fits, but no gradient arrives at its input and its weights.")
    return [loss.cpu(), *(to_host(tensor.grad) for tensor in run.inputs)]


def _same_step(run: Run, expected: list[torch.Tensor]) -> None:
    message = "It fits, but computes something else: the loss has changed."
    require_close(run.results[0], expected[0], message)
    for gradient, wanted in zip(run.results[1:], expected[1:], strict=True):
        message = "It fits, and the loss is the same, but the gradients are not."
        require_close(gradient, wanted, message)


# block: a block written by hand


def _own_block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    normal = torch.nn.functional.layer_norm(x, (x.shape[-1],), eps=EPS)
    y: torch.Tensor = torch.nn.functional.silu(normal) @ weight
    return y


def _input_and_weights(run: Run, layers: int) -> list[torch.Tensor]:
    torch.manual_seed(8)
    weights: list[torch.Tensor] = [
        (2 * torch.randn(WIDTH, WIDTH) / WIDTH**0.5).to("cuda").requires_grad_()
        for _ in range(layers)
    ]
    return [_input(), *weights]


def _stack(run: Run) -> torch.Tensor:
    """Several blocks, one on the other."""
    y: torch.Tensor
    y, *weights = run.inputs
    for weight in weights:
        run.note_given([y])
        y = _required_tensor(run.program(y, weight))
    return y


FIX_BLOCK = Fix(
    name="block",
    points=4,
    minutes=20,
    visible=({"layers": 4},),
    hidden=lambda random: [{"layers": random.randrange(5, 9)}],
    trial=_repair(
        _own_block,
        _input_and_weights,
        _stack,
        UNIT_BYTES,
        "For {layers} blocks that is too many: three each are enough, the inputs of the "
        "normalization, of the activation function and of the product. Which operator of yours "
        "keeps another one?",
    ),
)


# quick_gelu: a function that PyTorch does not have


def _own_quick_gelu(x: torch.Tensor) -> torch.Tensor:
    class QuickGELU(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            y: torch.Tensor = x * torch.sigmoid(1.702 * x)
            return y

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            gate = torch.sigmoid(1.702 * x)
            derivative: torch.Tensor = gate + 1.702 * x * gate * (1 - gate)
            return gradients[0] * derivative

    y: torch.Tensor = QuickGELU.apply(x)  # type: ignore[no-untyped-call]
    return y


def _chain(run: Run) -> torch.Tensor:
    """Products and calls by turns: only the function keeps anything."""
    y: torch.Tensor = run.inputs[0]
    for _ in range(run.case["layers"]):
        x = 1.5 * y
        run.note_given([x])
        y = _required_tensor(run.program(x))
    return y


QUICK_GELU = Fix(
    name="quick_gelu",
    points=4,
    minutes=30,
    visible=({"layers": 10},),
    hidden=lambda random: [{"layers": random.randrange(11, 16)}],
    trial=_repair(
        _own_quick_gelu,
        lambda run, layers: [_input()],
        _chain,
        3 * UNIT_BYTES,
        "The function is called {layers} times. Its input is all that its derivative needs; what "
        "else does each call keep?",
    ),
)

EXERCISE = Exercise(
    name="08_what_operators_save",
    module=__name__,
    tasks=(BLOCK, WHICH, FIX_BLOCK, QUICK_GELU),
    core=("block_growth", "block"),
)
