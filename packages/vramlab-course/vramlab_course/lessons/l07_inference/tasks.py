"""Exercise 07: caches of keys and values, the peak of inference, and what evaluation loops keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.batches import ROWS_STEP, batch_bytes, check_order, pairs
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.readings import growth_bytes, peak_growth_bytes
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import is_plain, number, require_close, to_host
from vramlab_course.tasks.snapshots import Trace, live, trace_of

T4 = GPU("T4")

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
    from transformers import DynamicCache

    shape = (batch * beams, kv_heads, tokens, head_size)
    states = torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda")
    before_bytes = torch.cuda.memory_allocated()
    cache = DynamicCache()
    for layer in range(layers):
        cache.update(states, states, layer)
    return torch.cuda.memory_allocated() - before_bytes


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
    gpu=T4,
    mistakes=of(
        _cache,
        Mistake(
            "You counted query heads. The KV cache stores keys and values only, and query heads "
            "share them.",
            lambda **sizes: _cache(**{**sizes, "kv_heads": sizes["heads"]}),
        ),
        ("You counted only the keys or only the values. The KV cache stores both.", {"tensors": 1}),
        (
            "You counted a token's keys and values for the batch, not for its beams. Each beam is "
            "a sequence of its own.",
            {"beams": 1},
        ),
        Mistake(
            "You added batch and beams. Each prompt of the batch has all the beams.",
            lambda **sizes: _cache(
                **{**sizes, "batch": sizes["batch"] + sizes["beams"], "beams": 1}
            ),
        ),
        ("You used 4 bytes per number for every dtype.", {"dtype": "float32"}),
        (
            "You forgot that blocks come in steps of 512 bytes, for each tensor of each layer.",
            {"step_bytes": 1},
        ),
    ),
)


# peak_bytes: a chain of layers under no_grad()


def _chain(widths: Sequence[int], in_place: bool) -> torch.nn.Sequential:
    """Linear layers with a ReLU between any two."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU(inplace=in_place)]
    return torch.nn.Sequential(*layers[:-1]).to("cuda")


def _measure_peak(rows: int, widths: Sequence[int], in_place: bool) -> int:
    with torch.no_grad():
        model = _chain(widths, in_place)
        x = torch.zeros(rows, widths[0], device="cuda")
        model(x)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        return peak_growth_bytes(lambda: model(x))


def _outputs(rows: int, widths: Sequence[int], in_place: bool) -> list[int]:
    """Sizes of what the layers make, in order."""
    sizes = [4 * rows * width for width in widths[1:]]
    return sizes if in_place else [size for size in sizes for _ in range(2)][:-1]


def _with_neighbours(sizes: Sequence[int]) -> int:
    """Return the largest, alone or with its neighbour."""
    return max([sizes[0], *(before + after for before, after in pairwise(sizes))])


def _peak(
    rows: int,
    widths: Sequence[int],
    in_place: bool,
    *,
    most: Callable[[Sequence[int]], int] = _with_neighbours,
    input_first: bool = False,
    inputs: int = 0,
) -> int:
    """Return the answer or a mistaken one: the input counts as an activation, or not."""
    input_bytes = 4 * rows * widths[0]
    sizes = [input_bytes] * input_first + _outputs(rows, widths, in_place)
    return inputs * input_bytes + most(sizes)


def _wide(random: Random, layers: int, in_place: bool) -> Config:
    """Return a batch and widths whose activations are multiples of 2 MiB.

    With few layers the input is the widest, so that who counts it errs.
    """
    first = random.randrange(9, 13) if layers < 3 else random.randrange(1, 9)
    return {
        "rows": 1024 * random.randrange(1, 5),
        "widths": [512 * first, *(512 * random.randrange(1, 9) for _ in range(layers))],
        "in_place": in_place,
    }


PEAK = Predict(
    name="peak_bytes",
    points=4,
    minutes=20,
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
    gpu=T4,
    mistakes=of(
        _peak,
        (
            "You added up all outputs. Under no_grad() a layer's input is freed as soon as its "
            "output is computed, unless a variable still references it.",
            {"most": sum},
        ),
        (
            "You counted only the output, which stays. Which other activation is allocated while "
            "a middle layer runs?",
            {"most": itemgetter(-1)},
        ),
        (
            "You counted the largest activation alone. A layer needs its input while it makes its "
            "output.",
            {"most": max},
        ),
        (
            "You counted the input of the first layer. It was there before the forward pass.",
            {"input_first": True},
        ),
        (
            "You counted the input of the first layer. It was there before the forward pass.",
            {"inputs": 1},
        ),
        (
            "You left the activation functions out. One that does not work in place needs its "
            "input and makes an output as large.",
            {"in_place": True},
        ),
        ("You gave every ReLU an output of its own. In place, it has none.", {"in_place": False}),
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

    def forward() -> torch.Tensor:
        with torch.set_grad_enabled("no_grad" not in mode):
            y: torch.Tensor = model(x)
        return y

    readings = {
        "input": x.nbytes,
        "middle": factor * x.nbytes,
        "left": growth_bytes(forward),
        "peak": torch.cuda.max_memory_allocated() - before_bytes,
    }
    return Observation({"readings": readings}, mode)


def _by_left_alone(readings: Mapping[str, int], kept_nothing: str) -> str:
    if readings["left"] == readings["input"]:
        return kept_nothing
    return "eval()" if readings["left"] == readings["input"] + 2 * readings["middle"] else "train()"


def _swapped(readings: Mapping[str, int]) -> str:
    if readings["left"] > readings["input"]:
        return "train()" if _by_left_alone(readings, "") == "eval()" else "eval()"
    quiet = readings["peak"] == 2 * readings["middle"]
    return "train() and no_grad()" if quiet else "eval() and no_grad()"


MODE = Diagnose(
    name="which_mode",
    points=4,
    minutes=20,
    visible=(
        {"mode": "train()", "rows": 4096, "width": 512, "factor": 4},
        {"mode": "eval()", "rows": 4096, "width": 512, "factor": 4},
        {"mode": "eval() and no_grad()", "rows": 4096, "width": 512, "factor": 4},
        {"mode": "train() and no_grad()", "rows": 8192, "width": 512, "factor": 2},
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
    gpu=T4,
    mistakes=of(
        _by_left_alone,
        (
            "You looked only at what is left. If nothing is kept, the peak shows whether dropout "
            "was active.",
            {"kept_nothing": "eval() and no_grad()"},
        ),
        (
            "You looked only at what is left. If nothing is kept, the peak shows whether dropout "
            "was active.",
            {"kept_nothing": "train() and no_grad()"},
        ),
        Mistake(
            "You confused eval() with no_grad(). eval() changes what layers compute; no_grad() "
            "stops autograd from saving activations.",
            lambda readings: "train()" if readings["left"] > readings["input"] else "eval()",
        ),
        Mistake(
            "You swapped train() and eval(). In eval() dropout does nothing, so it allocates no "
            "mask of one byte per element.",
            _swapped,
        ),
    ),
)


# evaluate: a loop that keeps graphs and outputs

WIDTH = 64
FACTOR = 4

Load = Callable[[int], tuple["torch.Tensor", "torch.Tensor"]]


def _model() -> torch.nn.Sequential:
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, FACTOR * WIDTH),
        torch.nn.GELU(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(FACTOR * WIDTH, WIDTH),
    ).to("cuda")


def _model_and_data(run: Run, rows: int, batches: int) -> tuple[Any, ...]:
    return _model(), run.noting(pairs(rows, WIDTH)), batches


def _evaluate(
    model: torch.nn.Module, load: Load, batches: int
) -> tuple[torch.Tensor, torch.Tensor]:
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


def _batch_bytes(run: Run) -> int:
    return batch_bytes(run.case["rows"], WIDTH)


def _where_it_ended(run: Run) -> str:
    # Not the peak: that may be of one batch alone, the question is what stays of all.
    held_bytes = torch.cuda.memory_allocated()
    sizes = (
        f"{run.ran_out} in batch {len(run.noted)} of {run.case['batches']}, each of "
        f"{format_bytes(_batch_bytes(run))}, where {format_bytes(held_bytes)} are allocated. "
    )
    if held_bytes > len(run.noted) * FACTOR * _batch_bytes(run):
        return sizes + (
            "That is several activations of every batch so far: their graphs are still there. Who "
            "needs them, and does eval() turn that off?"
        )
    return sizes + "The graphs are gone. What else of each batch stays on the GPU?"


def _loss_and_scores(run: Run, returned: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise NotFixed("It has to return two results: the mean loss, and the scores.")
    loss, scores = returned
    if not is_plain(scores):
        raise NotFixed("The second result has to be one tensor, with the scores of all batches.")
    mean = number(loss, "The first result has to be a number: the mean loss.")
    return torch.tensor(mean), to_host(scores)


def _same_evaluation(run: Run, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    check_order(run.noted, run.case["batches"])
    loss, scores = run.results
    message = "It fits, but its scores are others. Does dropout do nothing here?"
    require_close(scores, expected[1], message)
    require_close(loss, expected[0], "It fits, but its mean loss is another.")


EVALUATE = Fix(
    name="evaluate",
    points=4,
    minutes=25,
    visible=({"rows": ROWS_STEP, "batches": 12},),
    hidden=lambda random: [
        {"rows": ROWS_STEP * random.randrange(1, 3), "batches": random.randrange(8, 14)}
        for _ in range(2)
    ],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_data,
        reference=_evaluate,
        limit=lambda own: own.reserved_bytes[0] + _batch_bytes(own),
        ran_out=_where_it_ended,
        collect=_loss_and_scores,
        compare=_same_evaluation,
    ),
)

# what_stays: an unknown evaluation loop, from its snapshot

STAYS = ("losses", "outputs", "graphs")


def _observe_loop(stays: str, batches: int, rows: int, width: int) -> Observation:
    """Run an evaluation loop that gathers something, and give what its snapshot says."""
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
    ).to("cuda")
    with torch.no_grad():
        model(torch.zeros(1, width, device="cuda"))  # cuBLAS has its workspace from here on

    def evaluate() -> list[torch.Tensor]:
        gathered = []
        with torch.set_grad_enabled(stays == "graphs"):
            for _ in range(batches):
                outputs = model(torch.zeros(rows, width, device="cuda"))
                gathered.append(outputs if stays == "outputs" else outputs.square().mean())
        return gathered

    trace = trace_of(evaluate)
    output_bytes = 4 * rows * width
    return Observation({"trace": trace, "batches": batches, "output_bytes": output_bytes}, stays)


def _what_stays(
    trace: Trace, batches: int, output_bytes: int, *, frees: bool = True, graphs: bool = True
) -> str:
    """Return the answer or a mistaken one: for naming mistakes, not for grading.

    Args:
        trace: what the snapshot says.
        batches: that the loop goes through.
        output_bytes: of one batch.
        frees: whether what has gone is taken off.
        graphs: whether graphs are distinguished from outputs.
    """
    came = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    each = sum(live(trace) if frees else came) / batches
    if each < output_bytes:
        return "losses"
    return "graphs" if graphs and each > output_bytes else "outputs"


def _loops(random: Random) -> list[Config]:
    return [
        {
            "stays": stays,
            "batches": random.randrange(3, 9),
            "rows": 128 * random.randrange(4, 12),
            "width": 128 * random.randrange(2, 6),
        }
        for stays in (*STAYS, "graphs", "losses")
    ]


WHAT_STAYS = Diagnose(
    name="what_stays",
    points=3,
    minutes=20,
    visible=tuple(
        {"stays": stays, "batches": 4, "rows": 1024, "width": 256}
        for stays in ("graphs", "outputs", "losses")
    ),
    hidden=_loops,
    observe=_observe_loop,
    gpu=T4,
    mistakes=of(
        _what_stays,
        (
            "You added up the allocations and left out the frees. Every loop creates activations; "
            "most loops free them.",
            {"frees": False},
        ),
        (
            "In some loops, more than the outputs stays allocated. What else can a loss or an "
            "output reference?",
            {"graphs": False},
        ),
    ),
)


EXERCISE = Exercise(
    name="07_inference",
    module=__name__,
    tasks=(CACHE, PEAK, MODE, EVALUATE, WHAT_STAYS),
    core=("cache_bytes", "evaluate"),
)
