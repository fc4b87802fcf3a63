"""Exercise 07: caches of keys and values, the peak of inference, and what evaluation loops keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.grading.batches import check_order, noting, numbered_batch
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
from vramlab.units import format_bytes

if TYPE_CHECKING:
    import torch

GPU = "T4"
"""A grade names its GPU, so that it does not depend on the machine that grades."""

# Sizes are so chosen that no block keeps a rest: lesson 02 is about those. A size is at most 1 MiB,
# or a multiple of 2 MiB.


# cache_bytes: keys and values of all layers

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
"""For naming mistakes, not for grading."""


def _measure_cache(
    layers: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    tokens: int,
    batch: int,
    beams: int,
    dtype: str,
) -> int:
    """Fill transformers' own cache; query heads are what it never sees."""
    import torch
    from transformers import DynamicCache

    import vramlab

    with vramlab.VirtualGPU(GPU):
        shape = (batch * beams, kv_heads, tokens, head_size)
        states = torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda")
        before_bytes = torch.cuda.memory_allocated()
        cache = DynamicCache()
        for layer in range(layers):
            cache.update(states, states, layer)
        growth_bytes = torch.cuda.memory_allocated() - before_bytes
        del states, cache
    return growth_bytes


def _cache(
    layers: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    tokens: int,
    batch: int,
    beams: int,
    dtype: str,
    *,
    tensors: int = 2,
    step_bytes: int = 512,
) -> int:
    one_bytes = batch * beams * kv_heads * tokens * head_size * ITEM_BYTES[dtype]
    return tensors * layers * (-(-one_bytes // step_bytes) * step_bytes)


def _small_cache(random: Random, dtype: str) -> Config:
    """Tensors of at most 1 MiB, and of any size; query heads share key-value heads."""
    kv_heads = random.randrange(2, 5)
    return {
        "layers": random.randrange(3, 24),
        "heads": kv_heads * random.randrange(2, 6),
        "kv_heads": kv_heads,
        "head_size": random.randrange(10, 64),
        "tokens": random.randrange(30, 100),
        "batch": random.randrange(2, 4),
        "beams": random.randrange(2, 4),
        "dtype": dtype,
    }


CACHE = Predict(
    name="cache_bytes",
    points=3,
    minutes=10,
    visible=(
        {
            "layers": 12,
            "heads": 12,
            "kv_heads": 12,
            "head_size": 64,
            "tokens": 100,
            "batch": 1,
            "beams": 1,
            "dtype": "float32",
        },
        {
            "layers": 32,
            "heads": 32,
            "kv_heads": 8,
            "head_size": 128,
            "tokens": 2048,
            "batch": 1,
            "beams": 4,
            "dtype": "float16",
        },
        {
            "layers": 3,
            "heads": 6,
            "kv_heads": 2,
            "head_size": 10,
            "tokens": 13,
            "batch": 2,
            "beams": 3,
            "dtype": "bfloat16",
        },
    ),
    hidden=lambda random: [_small_cache(random, dtype) for dtype in (*ITEM_BYTES, *ITEM_BYTES)],
    measure=_measure_cache,
    mistakes=(
        Mistake(
            "You counted query heads. Only keys and values are kept, and query heads share them.",
            lambda **sizes: _cache(**{**sizes, "kv_heads": sizes["heads"]}),
        ),
        Mistake(
            "You counted keys or values. Both are kept.",
            lambda **sizes: _cache(**sizes, tensors=1),
        ),
        Mistake(
            "You counted a token's keys and values for the batch, not for its beams. Each beam is "
            "a sequence of its own.",
            lambda **sizes: _cache(**{**sizes, "beams": 1}),
        ),
        Mistake(
            "You added batch and beams. Each prompt of the batch has all the beams.",
            lambda **sizes: _cache(
                **{**sizes, "batch": sizes["batch"] + sizes["beams"], "beams": 1}
            ),
        ),
        Mistake(
            "You took 4 bytes for every number, whatever the dtype.",
            lambda **sizes: _cache(**{**sizes, "dtype": "float32"}),
        ),
        Mistake(
            "You forgot that blocks come in steps of 512 bytes, for each tensor of each layer.",
            lambda **sizes: _cache(**sizes, step_bytes=1),
        ),
    ),
)


# peak_bytes: a chain of layers under no_grad()


def _chain(widths: Sequence[int], in_place: bool) -> torch.nn.Sequential:
    """Linear layers with a ReLU between any two."""
    import torch

    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU(inplace=in_place)]
    return torch.nn.Sequential(*layers[:-1]).to("cuda")


def _measure_peak(rows: int, widths: Sequence[int], in_place: bool) -> int:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU), torch.no_grad():
        model = _chain(widths, in_place)
        x = torch.zeros(rows, widths[0], device="cuda")
        model(x)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before_bytes = torch.cuda.memory_allocated()
        model(x)
        peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
        del model, x
    return peak_bytes


def _outputs(rows: int, widths: Sequence[int], in_place: bool) -> list[int]:
    """Sizes of what the layers make, in order."""
    sizes = [4 * rows * width for width in widths[1:]]
    return sizes if in_place else [size for size in sizes for _ in range(2)][:-1]


def _peak(sizes: Sequence[int]) -> int:
    """The largest, alone or with its neighbour."""
    return max([sizes[0], *(before + after for before, after in pairwise(sizes))])


def _wide(random: Random, layers: int, in_place: bool) -> Config:
    """A batch and widths whose activations are multiples of 2 MiB."""
    return {
        "rows": 1024 * random.randrange(1, 5),
        "widths": [512 * random.randrange(1, 9) for _ in range(layers + 1)],
        "in_place": in_place,
    }


PEAK = Predict(
    name="peak_bytes",
    points=4,
    minutes=15,
    visible=(
        {"rows": 2048, "widths": [1024, 4096, 1024], "in_place": False},
        {"rows": 2048, "widths": [1024, 4096, 1024], "in_place": True},
        {"rows": 2048, "widths": [1024, 2048, 512, 512], "in_place": False},
        {"rows": 4096, "widths": [2048, 1024], "in_place": False},
    ),
    hidden=lambda random: [
        _wide(random, layers, in_place) for layers in (1, 2, 3, 5) for in_place in (False, True)
    ],
    measure=_measure_peak,
    mistakes=(
        Mistake(
            "You added up all outputs. Under no_grad() a layer's input goes as soon as its output "
            "is there and nobody else has a name for it.",
            lambda rows, widths, in_place: sum(_outputs(rows, widths, in_place)),
        ),
        Mistake(
            "You counted what is left, the output. Which other activation is there while a layer "
            "in the middle runs?",
            lambda rows, widths, in_place: 4 * rows * widths[-1],
        ),
        Mistake(
            "You counted the largest activation alone. A layer needs its input while it makes its "
            "output.",
            lambda rows, widths, in_place: max(_outputs(rows, widths, in_place)),
        ),
        Mistake(
            "You counted the input of the first layer. It was there before the forward pass.",
            lambda rows, widths, in_place: _peak(
                [4 * rows * widths[0], *_outputs(rows, widths, in_place)]
            ),
        ),
        Mistake(
            "You counted the input of the first layer. It was there before the forward pass.",
            lambda rows, widths, in_place: (
                4 * rows * widths[0] + _peak(_outputs(rows, widths, in_place))
            ),
        ),
        Mistake(
            "You left the activation functions out. One that does not work in place needs its "
            "input and makes an output as large.",
            lambda rows, widths, in_place: _peak(_outputs(rows, widths, True)),
        ),
        Mistake(
            "You gave every ReLU an output of its own. In place, it has none.",
            lambda rows, widths, in_place: _peak(_outputs(rows, widths, False)),
        ),
    ),
)


# which_mode: told from what was allocated

ANSWERS = ("train()", "eval()", "train() and no_grad()", "eval() and no_grad()")


def _observe_mode(mode: str, rows: int, width: int, factor: int) -> Observation:
    """Run a block with dropout in one of the modes, and read what it leaves and takes.

    Args:
        mode: one of `ANSWERS`.
        rows: of the input (rows, width).
        width: of input and output.
        factor: how many times as wide the middle is.
    """
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        model = torch.nn.Sequential(
            torch.nn.Linear(width, factor * width),
            torch.nn.GELU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(factor * width, width),
        ).to("cuda")
        x = torch.zeros(rows, width, device="cuda")
        with torch.no_grad():
            model(x)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        model.train(mode.startswith("train"))
        before_bytes = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with torch.set_grad_enabled("no_grad" not in mode):
            y = model(x)
        readings = {
            "input": x.nbytes,
            "middle": factor * x.nbytes,
            "left": torch.cuda.memory_allocated() - before_bytes,
            "peak": torch.cuda.max_memory_allocated() - before_bytes,
        }
        del model, x, y
    return Observation({"readings": readings}, mode)


def _by_left_alone(readings: Mapping[str, int], kept_nothing: str) -> str:
    if readings["left"] == readings["input"]:
        return kept_nothing
    return "eval()" if readings["left"] == readings["input"] + 2 * readings["middle"] else "train()"


MODE = Diagnose(
    name="which_mode",
    points=4,
    minutes=15,
    visible=(
        {"mode": "train()", "rows": 4096, "width": 512, "factor": 4},
        {"mode": "eval()", "rows": 4096, "width": 512, "factor": 4},
        {"mode": "eval() and no_grad()", "rows": 4096, "width": 512, "factor": 4},
    ),
    hidden=lambda random: [
        {
            "mode": mode,
            "rows": 4096 * random.randrange(1, 4),
            "width": 512,
            "factor": random.choice((2, 4, 8)),
        }
        for mode in (*ANSWERS, *ANSWERS)
    ],
    observe=_observe_mode,
    mistakes=(
        Mistake(
            "You told it from what is left alone. Where nothing is kept, the peak tells whether "
            "dropout worked.",
            lambda readings: _by_left_alone(readings, "eval() and no_grad()"),
        ),
        Mistake(
            "You told it from what is left alone. Where nothing is kept, the peak tells whether "
            "dropout worked.",
            lambda readings: _by_left_alone(readings, "train() and no_grad()"),
        ),
        Mistake(
            "You took eval() for no_grad(). eval() changes what layers do; whether activations "
            "are kept is autograd's affair.",
            lambda readings: "train()" if readings["left"] > readings["input"] else "eval()",
        ),
        Mistake(
            "You took train() and eval() for each other. In eval() dropout does nothing, so there "
            "is no mask of one byte for each number.",
            lambda readings: _swapped(readings),
        ),
    ),
)


def _swapped(readings: Mapping[str, int]) -> str:
    if readings["left"] > readings["input"]:
        return "train()" if _by_left_alone(readings, "") == "eval()" else "eval()"
    quiet = readings["peak"] == 2 * readings["middle"]
    return "train() and no_grad()" if quiet else "eval() and no_grad()"


# evaluate: a loop that keeps graphs and outputs

WIDTH = 64
FACTOR = 4
ROWS_STEP = 8192
"""A batch of a multiple of this many rows takes a multiple of 2 MiB."""

Load = Callable[[int], tuple["torch.Tensor", "torch.Tensor"]]


def _model() -> torch.nn.Sequential:
    import torch

    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, FACTOR * WIDTH),
        torch.nn.GELU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(FACTOR * WIDTH, WIDTH),
    ).to("cuda")


def _loader(rows: int) -> Load:
    def load(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = numbered_batch(index, rows, WIDTH)
        return inputs, inputs.flip(1)

    return load


def _evaluate(
    model: torch.nn.Module, load: Load, batches: int
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    model.eval()
    total = torch.zeros((), device="cuda")
    scores = []
    with torch.no_grad():
        for step in range(batches):
            inputs, targets = load(step)
            outputs = model(inputs)
            total += (outputs - targets).square().mean()
            scores.append(outputs.cpu())
    return total / batches, torch.cat(scores)


def _try_evaluate(answer: Any, rows: int, batches: int) -> str:
    import torch

    import vramlab

    batch_bytes = 4 * rows * WIDTH
    with vramlab.VirtualGPU(GPU, values=True):
        wanted_loss, wanted_scores, reserved_bytes = _run(_evaluate, rows, batches, [])
    limit_bytes = reserved_bytes + batch_bytes
    begun: list[int] = []
    with vramlab.VirtualGPU(GPU, values=True):
        with limited(limit_bytes, lambda held_bytes: _where_it_ended(begun, batches, batch_bytes)):
            loss, scores, _ = _run(answer, rows, batches, begun)
        report = peak_report(limit_bytes)
    check_order(begun, batches)
    if scores.shape != wanted_scores.shape or not torch.allclose(scores, wanted_scores, atol=1e-5):
        raise NotFixed("It fits, but its scores are others. Does dropout do nothing here?")
    if not torch.allclose(loss, wanted_loss, rtol=1e-4):
        raise NotFixed("It fits, but its mean loss is another.")
    return report


def _run(
    evaluate: Any, rows: int, batches: int, begun: list[int]
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Evaluate a fresh model; give loss and scores on the CPU, and the reserved peak."""
    import torch

    loss, scores = evaluate(_model(), noting(_loader(rows), begun), batches)
    if not isinstance(scores, torch.Tensor):
        raise NotFixed("The second result has to be one tensor, with the scores of all batches.")
    reserved_bytes = torch.cuda.max_memory_reserved()
    return torch.as_tensor(loss).detach().cpu(), scores.detach().cpu(), reserved_bytes


def _where_it_ended(begun: list[int], batches: int, batch_bytes: int) -> str:
    import torch

    # Not the peak: that may be of one batch alone, the question is what stays of all.
    held_bytes = torch.cuda.memory_allocated()
    sizes = (
        f"in batch {len(begun)} of {batches}, each of {format_bytes(batch_bytes)}, where "
        f"{format_bytes(held_bytes)} are allocated. "
    )
    if held_bytes > len(begun) * FACTOR * batch_bytes:
        return sizes + (
            "That is several activations of every batch so far: their graphs are still there. Who "
            "needs them, and does eval() turn that off?"
        )
    return sizes + "The graphs are gone. What else of each batch stays on the GPU?"


EVALUATE = Fix(
    name="evaluate",
    points=4,
    minutes=20,
    visible=({"rows": ROWS_STEP, "batches": 12},),
    hidden=lambda random: [
        {"rows": ROWS_STEP * random.randrange(1, 3), "batches": random.randrange(8, 14)}
        for _ in range(2)
    ],
    trial=_try_evaluate,
)

EXERCISE = Exercise(
    name="07_inference",
    module=__name__,
    tasks=(CACHE, PEAK, MODE, EVALUATE),
)
