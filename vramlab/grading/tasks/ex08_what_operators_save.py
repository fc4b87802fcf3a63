"""Exercise 08: what operators keep for backward, and how to let them keep less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.grading.limits import limited, peak_report
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

if TYPE_CHECKING:
    import torch

GPU = "T4"
"""A grade names its GPU, so that it does not depend on the machine that grades."""

# Sizes are so chosen that no block keeps a rest: lesson 02 is about those. A size is at most 1 MiB,
# or a multiple of 2 MiB.


# block_growth: the MLP block with its options

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
KEEPS_INPUT = ("gelu", "silu")
"""The other activation functions keep their output. For naming mistakes, not for grading."""


def _activation(name: str) -> torch.nn.Module:
    import torch

    modules: dict[str, Callable[[], torch.nn.Module]] = {
        "relu": torch.nn.ReLU,
        "tanh": torch.nn.Tanh,
        "gelu": torch.nn.GELU,
        "silu": torch.nn.SiLU,
    }
    return modules[name]()


def _measure_block(
    rows: int,
    width: int,
    factor: int,
    activation: str,
    dropout: bool,
    residual: bool,
    dtype: str,
) -> int:
    import torch

    import vramlab

    item = getattr(torch, dtype)
    with vramlab.VirtualGPU(GPU), torch.device("cuda"):
        widen = torch.nn.Linear(width, factor * width, dtype=item)
        narrow = torch.nn.Linear(factor * width, width, dtype=item)
        drop = torch.nn.Dropout(0.1 if dropout else 0.0)
        layers = torch.nn.Sequential(widen, _activation(activation), narrow, drop)
        del widen, narrow, drop
        x = torch.zeros(rows, width, dtype=item, requires_grad=True)
        with torch.no_grad():
            layers(x)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        before_bytes = torch.cuda.memory_allocated()
        y = x + layers(x) if residual else layers(x)
        growth_bytes = torch.cuda.memory_allocated() - before_bytes
        del layers, x, y
    return growth_bytes


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
    mask_bytes: int = 1,
) -> int:
    """`middles` and `outer` count the tensors of the middle's size, and of x's."""
    elements, item_bytes = rows * width, ITEM_BYTES[dtype]
    if middles is None:
        middles = 2 if activation in KEEPS_INPUT else 1
    masks_bytes = mask_bytes * elements if dropout else 0
    return (outer + middles * factor) * item_bytes * elements + masks_bytes


def _options(random: Random, activation: str, dtype: str) -> Config:
    return {
        "rows": 2048 * random.randrange(1, 4),
        "width": 1024 * random.randrange(1, 3),
        "factor": random.randrange(2, 5),
        "activation": activation,
        "dropout": random.random() < 0.7,
        "residual": random.random() < 0.5,
        "dtype": dtype,
    }


_USUAL: Config = {"rows": 4096, "width": 1024, "factor": 4, "residual": True}

BLOCK = Predict(
    name="block_growth",
    points=4,
    minutes=15,
    visible=(
        {**_USUAL, "activation": "gelu", "dropout": True, "dtype": "float32"},
        {**_USUAL, "activation": "gelu", "dropout": True, "dtype": "float16"},
        {**_USUAL, "activation": "relu", "dropout": True, "dtype": "float32"},
        {**_USUAL, "activation": "tanh", "dropout": False, "dtype": "bfloat16", "residual": False},
        {**_USUAL, "activation": "silu", "dropout": True, "dtype": "float32", "factor": 3},
    ),
    hidden=lambda random: [
        _options(random, activation, dtype)
        for activation in ("relu", "tanh", "gelu", "silu")
        for dtype in ("float16", "float32")
    ],
    measure=_measure_block,
    mistakes=(
        Mistake(
            "You let every activation function keep its input. ReLU and tanh keep their output, "
            "which is the second layer's input: one tensor, not two.",
            lambda **options: _block(**options, middles=2),
        ),
        Mistake(
            "You forgot what activation functions keep. GELU and SiLU keep their input, which "
            "nobody else keeps.",
            lambda **options: _block(**options, middles=1),
        ),
        Mistake(
            "You counted x. It was there before the forward pass.",
            lambda **options: _block(**options, outer=2),
        ),
        Mistake(
            "You left out the output. The caller holds it.",
            lambda **options: _block(**options, outer=0),
        ),
        Mistake(
            "You forgot what dropout keeps.",
            lambda **options: _block(**options, mask_bytes=0),
        ),
        Mistake(
            "You took dropout's mask for floats. It is a bool for each element, in every dtype.",
            lambda **options: _block(**options, mask_bytes=ITEM_BYTES[options["dtype"]]),
        ),
        Mistake(
            "You let the sum keep something. It keeps neither of what it adds.",
            lambda **options: _block(**options, outer=1 + options["residual"]),
        ),
    ),
)


# which_function: told from what it keeps between different neighbours

FUNCTIONS = ("2 * x", "relu", "gelu", "dropout", "x * sigmoid(x)")


def _function(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    import torch
    from torch.nn import functional

    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "2 * x": lambda x: 2 * x,
        "relu": torch.relu,
        "gelu": functional.gelu,
        "dropout": functional.dropout,
        "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
    }
    return functions[name]


def _observe_function(function: str, rows: int, width: int) -> Observation:
    """Read what a forward pass leaves, with the function between two products, and two sums.

    Args:
        function: one of `FUNCTIONS`.
        rows, width: of every activation.
    """
    import torch

    import vramlab

    f = _function(function)
    with vramlab.VirtualGPU(GPU), torch.device("cuda"):
        x = torch.zeros(rows, width, requires_grad=True)
        first, second = (torch.zeros(width, width, requires_grad=True) for _ in range(2))
        with torch.no_grad():
            x @ first  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        before_bytes = torch.cuda.memory_allocated()
        y = f(x @ first) @ second
        between_products_bytes = torch.cuda.memory_allocated() - before_bytes
        del y
        torch.cuda.empty_cache()
        y = f(x + 1) + 1
        between_sums_bytes = torch.cuda.memory_allocated() - before_bytes
        readings = {
            "activation": x.nbytes,
            "between products": between_products_bytes,
            "between sums": between_sums_bytes,
        }
        del x, first, second, y
    return Observation({"readings": readings}, function)


def _by_products(readings: Mapping[str, int], two: str) -> str:
    """Tell what the first reading alone tells; `two` if it is two activations."""
    unit_bytes = readings["activation"]
    answers = {8: two, 9: "dropout", 12: "gelu", 16: "x * sigmoid(x)"}
    return answers[4 * readings["between products"] // unit_bytes]


def _by_sums(readings: Mapping[str, int], two: str) -> str:
    """Tell what the second reading alone tells; `two` if it is two activations."""
    unit_bytes = readings["activation"]
    answers = {4: "2 * x", 5: "dropout", 8: two, 12: "x * sigmoid(x)"}
    return answers[4 * readings["between sums"] // unit_bytes]


WHICH = Diagnose(
    name="which_function",
    points=4,
    minutes=15,
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
    mistakes=(
        Mistake(
            "You told it from the reading between products alone. There the second product keeps "
            "the function's output, whether the function needs it or not.",
            lambda readings: _by_products(readings, "relu"),
        ),
        Mistake(
            "You told it from the reading between products alone. There the second product keeps "
            "the function's output, whether the function needs it or not.",
            lambda readings: _by_products(readings, "2 * x"),
        ),
        Mistake(
            "You told it from the reading between sums alone. There, keeping the input costs as "
            "much as keeping the output.",
            lambda readings: _by_sums(readings, "relu"),
        ),
        Mistake(
            "You told it from the reading between sums alone. There, keeping the input costs as "
            "much as keeping the output.",
            lambda readings: _by_sums(readings, "gelu"),
        ),
    ),
)


# What both repairs need

WIDTH = 64
ROWS = 8192
UNIT_BYTES = 4 * ROWS * WIDTH
"""An activation: 2 MiB."""
EPS = 1e-5
SAME = 1e-3
"""Formulas in another order differ in the last bits, and over many layers in a few more."""

Results = list["torch.Tensor"]
"""Of a program: its loss, and its gradients."""


def _try(
    answer: Any, own: Any, program: Callable[[Any], Results], room_bytes: int, question: str
) -> str:
    """Run a program with an answer, within what our own way takes and some room, and compare."""
    import torch

    import vramlab

    def where(held_bytes: int) -> str:
        held = held_bytes / UNIT_BYTES
        return f"where it holds {held:.0f} tensors of an activation's size. {question}"

    with vramlab.VirtualGPU(GPU, values=True):
        wanted = program(own)
        limit_bytes = torch.cuda.max_memory_reserved() + room_bytes
    with vramlab.VirtualGPU(GPU, values=True):
        with limited(limit_bytes, where):
            results = program(answer)
        report = peak_report(limit_bytes)
    if not torch.allclose(results[0], wanted[0], rtol=SAME):
        raise NotFixed("It fits, but computes something else: the loss has changed.")
    for result, want in zip(results[1:], wanted[1:], strict=True):
        if not torch.allclose(result, want, rtol=SAME, atol=SAME * float(want.abs().max())):
            raise NotFixed("It fits, and the loss is the same, but the gradients are not.")
    return report


def _input() -> torch.Tensor:
    import torch

    values = torch.arange(ROWS * WIDTH, dtype=torch.float32, device="cuda")
    x = values.mul_(0.7).sin_().reshape(ROWS, WIDTH)
    return x.requires_grad_()


def _results(x: torch.Tensor, y: torch.Tensor, parameters: list[torch.Tensor]) -> Results:
    """Train a step; give the loss and the gradients, on the CPU."""
    if y.shape != x.shape:
        raise NotFixed(f"The result has the shape {tuple(y.shape)}, not {tuple(x.shape)}.")
    loss = y.square().mean()
    loss.backward()
    gradients = []
    for tensor in (x, *parameters):
        if tensor.grad is None:
            raise NotFixed("It fits, but no gradient arrives at its input and its weights.")
        gradients.append(tensor.grad.cpu())
    return [loss.detach().cpu(), *gradients]


# block: a block written by hand


def _own_block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    normal = functional.layer_norm(x, (x.shape[-1],), eps=EPS)
    y: torch.Tensor = functional.silu(normal) @ weight
    return y


def _stack(block: Any, layers: int) -> Results:
    """Train a step of several blocks, one on the other."""
    import torch

    torch.manual_seed(8)
    weights: list[torch.Tensor] = [
        (2 * torch.randn(WIDTH, WIDTH) / WIDTH**0.5).to("cuda").requires_grad_()
        for _ in range(layers)
    ]
    x = _input()
    y = x
    for weight in weights:
        y = block(y, weight)
    return _results(x, y, weights)


def _try_block(answer: Any, layers: int) -> str:
    return _try(
        answer,
        _own_block,
        lambda block: _stack(block, layers),
        UNIT_BYTES,
        f"For {layers} blocks that is too many: three each are enough, the inputs of the "
        "normalization, of the activation function and of the product. Which operator of yours "
        "keeps another one?",
    )


FIX_BLOCK = Fix(
    name="block",
    points=4,
    minutes=15,
    visible=({"layers": 4},),
    hidden=lambda random: [{"layers": random.randrange(5, 9)}],
    trial=_try_block,
)


# quick_gelu: a function that PyTorch does not have


def _own_quick_gelu(x: torch.Tensor) -> torch.Tensor:
    import torch

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


def _chain(function: Any, layers: int) -> Results:
    """Train a step of a chain in which nobody but the function keeps anything."""
    x = _input()
    y = x
    for _ in range(layers):
        y = function(1.5 * y)
    return _results(x, y, [])


def _try_quick_gelu(answer: Any, layers: int) -> str:
    return _try(
        answer,
        _own_quick_gelu,
        lambda function: _chain(function, layers),
        3 * UNIT_BYTES,
        f"The function is called {layers} times. Its input is all that its derivative needs; what "
        "else does each call keep?",
    )


QUICK_GELU = Fix(
    name="quick_gelu",
    points=4,
    minutes=25,
    visible=({"layers": 10},),
    hidden=lambda random: [{"layers": random.randrange(11, 16)}],
    trial=_try_quick_gelu,
)

EXERCISE = Exercise(
    name="08_what_operators_save",
    module=__name__,
    tasks=(BLOCK, WHICH, FIX_BLOCK, QUICK_GELU),
)
