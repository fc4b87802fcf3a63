"""Exercise 18: FLOPs, what limits an operation, where a step's time goes, and methods that fit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab import catalogue
from vramlab.cuda_rules.durations import copy_seconds
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
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import is_one_of

if TYPE_CHECKING:
    from vramlab_course.lessons.l18_memory_against_speed.experiment import MethodReading

A100 = GPU("A100-40GB")

# backward_flops: of a chain of layers


def _measure_backward(widths: list[int], rows: int, checkpointed: bool) -> int:
    from torch.utils.checkpoint import checkpoint

    from vramlab.measure import record_operators

    layers = (torch.nn.Linear(*pair, device="cuda") for pair in pairwise(widths))
    chain = torch.nn.Sequential(*layers)
    x = torch.zeros(rows, widths[0], device="cuda")
    with record_operators() as calls:
        y = checkpoint(chain, x, use_reentrant=False) if checkpointed else chain(x)
        y.sum().backward()
    return sum(call.flops or 0 for call in calls.calls if call.backward)


def _products(widths: list[int], rows: int) -> list[int]:
    """Multiplications of each layer's product."""
    return [rows * inputs * outputs for inputs, outputs in pairwise(widths)]


def _backward(
    widths: list[int],
    rows: int,
    checkpointed: bool,
    *,
    flops: int = 2,
    input_gradient: bool = False,
    last_anew: bool = False,
) -> int:
    """Both gradients of every layer, without the input's; and what is recomputed.

    That ends as soon as the last layer has its input: nothing that backward needs is missing then.
    The others are the mistaken ones: for naming mistakes, not for grading.
    """
    products = _products(widths, rows)
    recomputed = sum(products if last_anew else products[:-1]) if checkpointed else 0
    return flops * (2 * sum(products) - (0 if input_gradient else products[0]) + recomputed)


BACKWARD = Predict(
    name="backward_flops",
    points=3,
    minutes=15,
    visible=(
        {"widths": [64, 128, 64], "rows": 32, "checkpointed": False},
        {"widths": [64, 64, 64, 64], "rows": 10, "checkpointed": False},
        {"widths": [256, 32], "rows": 100, "checkpointed": False},
        {"widths": [64, 128, 64], "rows": 32, "checkpointed": True},
    ),
    hidden=lambda random: [
        {
            "widths": [random.randrange(8, 300) for _ in range(layers + 1)],
            "rows": random.randrange(2, 200),
            "checkpointed": checkpointed,
        }
        for layers in (1, 3, 6)
        for checkpointed in (False, True)
    ],
    measure=_measure_backward,
    gpu=A100,
    mistakes=of(
        _backward,
        (
            "You counted the gradient of the model's input. It is not needed, so it is not "
            "computed.",
            {"input_gradient": True},
        ),
        (
            "You left out the recomputation of the checkpointed chain in the backward pass.",
            {"checkpointed": False},
        ),
        (
            "You recomputed the last layer. Its output is not needed in the backward pass, and "
            "PyTorch stops when it has all it needs.",
            {"last_anew": True},
        ),
        (
            "You counted a multiplication and its addition as one FLOP. They are two.",
            {"flops": 1},
        ),
        Mistake(
            "You counted the backward pass like the forward pass. A layer has two gradients to "
            "compute.",
            lambda widths, rows, checkpointed: 2 * sum(_products(widths, rows)),
        ),
    ),
)

# limited_by: memory or compute

FORMATS = {"float32": 4, "float16": 2}
PEAKS = {"float32": "fp32_flops_per_s", "float16": "fp16_tensor_flops_per_s"}


def _observe_product(rows: int, inputs: int, outputs: int, dtype: str, gpu: str) -> Observation:
    """Multiply two matrices, and see what the roofline says.

    Args:
        rows: of the first matrix.
        inputs: its columns, and the rows of the second.
        outputs: columns of the second.
        dtype: a name in `FORMATS`.
        gpu: of the catalogue.
    """
    from vramlab.measure import least_time, record_operators

    card = catalogue.find(gpu)
    a = torch.zeros(rows, inputs, dtype=getattr(torch, dtype), device="cuda")
    b = torch.zeros(inputs, outputs, dtype=getattr(torch, dtype), device="cuda")
    with record_operators() as calls:
        a @ b
    evidence = {
        "rows": rows,
        "inputs": inputs,
        "outputs": outputs,
        "dtype": dtype,
        "peak_flops_per_s": getattr(card, PEAKS[dtype]),
        "bandwidth_bytes_per_s": card.memory_bandwidth_bytes_per_s,
    }
    waits = least_time(calls.calls, card).memory_bound_seconds > 0
    return Observation(evidence, "memory" if waits else "compute")


def _limited(
    rows: int,
    inputs: int,
    outputs: int,
    dtype: str,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    *,
    element_bytes: int | None = None,
    flops: int = 2,
    with_output: bool = True,
) -> str:
    """Return the answer or a mistaken one: for naming mistakes, not for grading."""
    numbers = rows * inputs + inputs * outputs + (rows * outputs if with_output else 0)
    memory_s = numbers * (element_bytes or FORMATS[dtype]) / bandwidth_bytes_per_s
    arithmetic_s = flops * rows * inputs * outputs / peak_flops_per_s
    return "memory" if memory_s > arithmetic_s else "compute"


def _near_the_ridge(random: Random, dtype: str, gpu: str) -> Config:
    """Return a product of large matrices with a few rows: somewhat left or right of the ridge."""
    card = catalogue.find(gpu)
    ridge_rows = (
        getattr(card, PEAKS[dtype]) / card.memory_bandwidth_bytes_per_s * FORMATS[dtype] / 2
    )
    rows = int(ridge_rows * random.choice((0.55, 0.8, 1.3, 1.8)))
    size = 64 * random.randrange(60, 100)
    return {"rows": rows, "inputs": size, "outputs": size, "dtype": dtype, "gpu": gpu}


_SQUARE = {"rows": 4096, "inputs": 4096, "outputs": 4096}

LIMITED = Diagnose(
    name="limited_by",
    points=3,
    minutes=15,
    visible=(
        {**_SQUARE, "dtype": "float32", "gpu": "T4"},
        {**_SQUARE, "rows": 1, "dtype": "float32", "gpu": "T4"},
        {**_SQUARE, "rows": 128, "dtype": "float16", "gpu": "T4"},
        {**_SQUARE, "rows": 128, "dtype": "float32", "gpu": "T4"},
        {**_SQUARE, "outputs": 1, "dtype": "float32", "gpu": "A100-40GB"},
        {"rows": 32, "inputs": 4800, "outputs": 4800, "dtype": "float32", "gpu": "A100-40GB"},
        {**_SQUARE, "inputs": 1, "dtype": "float32", "gpu": "A100-40GB"},
        {"rows": 365, "inputs": 6016, "outputs": 6016, "dtype": "float16", "gpu": "T4"},
    ),
    hidden=lambda random: [
        *(
            _near_the_ridge(random, dtype, gpu)
            for dtype in FORMATS
            for gpu in ("T4", "A100-40GB", "H100")
        ),
        {**_SQUARE, "inputs": random.randrange(1, 8), "dtype": "float32", "gpu": "A100-40GB"},
        {"rows": 64, "inputs": 64, "outputs": 64, "dtype": "float16", "gpu": "H100"},
        # Far from the ridge of float32, and memory-bound for who forgets half of the FLOPs.
        {"rows": 9, "inputs": 8192, "outputs": 8192, "dtype": "float32", "gpu": "A100-40GB"},
        {"rows": 37, "inputs": 8192, "outputs": 8192, "dtype": "float32", "gpu": "A100-40GB"},
    ],
    observe=_observe_product,
    gpu=lambda gpu, **_: GPU(gpu),
    mistakes=of(
        _limited,
        (
            "You counted a multiplication and its addition as one FLOP. They are two.",
            {"flops": 1},
        ),
        ("You used four bytes per element. In float16 it is two.", {"element_bytes": 4}),
        ("You left out writing the product to memory.", {"with_output": False}),
        Mistake(
            "You took every matrix product as compute-bound. Compare its arithmetic intensity "
            "with the FLOPs that the GPU can do per byte.",
            lambda **evidence: "compute",
        ),
    ),
)


# where_time_goes: from the counts of a step

PARTS = ("products", "memory", "inputs")


def _observe_step(batch: int, autocast: bool, image_bytes: int) -> Observation:
    """Train a step of a small transformer, whose inputs come over PCI Express meanwhile.

    Args:
        batch: sequences in the step.
        autocast: products in float16.
        image_bytes: what is sent to the GPU for each sequence.
    """
    from vramlab_course.lessons.l18_memory_against_speed.experiment import Setting, read_step

    card = catalogue.find(A100.name)
    setting = Setting(batch, autocast=autocast, width=256, layers=2, length=64, vocabulary=512)
    needed = read_step(setting).needed
    sent_bytes = batch * image_bytes
    seconds = {
        "products": needed.compute_bound_seconds,
        "memory": needed.memory_bound_seconds,
        "inputs": copy_seconds(sent_bytes, card),
    }
    step = {
        "product_flops": round(needed.compute_bound_seconds * _peak(card, autocast)),
        "other_bytes": round(needed.memory_bound_seconds * card.memory_bandwidth_bytes_per_s),
        "sent_bytes": sent_bytes,
        "peak_flops_per_s": _peak(card, autocast),
        "bandwidth_bytes_per_s": card.memory_bandwidth_bytes_per_s,
        "link_bytes_per_s": card.pcie_bandwidth_bytes_per_s,
    }
    on_gpu = seconds["products"] + seconds["memory"]
    if seconds["inputs"] > on_gpu:
        return Observation({"step": step}, "inputs")
    longer = "products" if seconds["products"] > seconds["memory"] else "memory"
    return Observation({"step": step}, longer)


def _peak(card: Any, autocast: bool) -> float:
    return float(card.fp16_tensor_flops_per_s if autocast else card.fp32_flops_per_s)


def _seconds(step: Mapping[str, float]) -> dict[str, float]:
    return {
        "products": step["product_flops"] / step["peak_flops_per_s"],
        "memory": step["other_bytes"] / step["bandwidth_bytes_per_s"],
        "inputs": step["sent_bytes"] / step["link_bytes_per_s"],
    }


def _longest(seconds: Mapping[str, float]) -> str:
    return max(seconds, key=lambda part: seconds[part])


WHERE = Diagnose(
    name="where_time_goes",
    points=3,
    minutes=15,
    visible=(
        {"batch": 32, "autocast": False, "image_bytes": 512},
        {"batch": 32, "autocast": True, "image_bytes": 512},
        {"batch": 32, "autocast": True, "image_bytes": 1_000_000},
        {"batch": 24, "autocast": False, "image_bytes": 1_269_891},  # longer than either part
    ),
    hidden=lambda random: [
        {"batch": 64, "autocast": False, "image_bytes": random.randrange(500, 5000)},
        {"batch": 8, "autocast": True, "image_bytes": random.randrange(500, 5000)},
        {"batch": random.randrange(8, 64), "autocast": True, "image_bytes": 2_000_000},
        # More than either part, less than both: the copy is hidden.
        _hidden_copy(random),
    ],
    observe=_observe_step,
    gpu=A100,
    mistakes=(
        Mistake(
            "You compared the copy of the inputs with each part of the GPU's work separately. "
            "Products and the rest run one after the other, and the copy overlaps with both "
            "together.",
            lambda step: _longest(_seconds(step)),
        ),
        Mistake(
            "You compared bytes without their route. The link to the host is much slower than the "
            "GPU's memory.",
            lambda step: _longest(
                {
                    **_seconds(step),
                    "inputs": step["sent_bytes"] / step["bandwidth_bytes_per_s"],
                }
            ),
        ),
    ),
)


def _hidden_copy(random: Random) -> Config:
    """Return inputs that take longer than products, than the rest, and less than both together."""
    batch = random.choice((24, 32, 40))
    with A100.attached():
        observed = _observe_step(batch, False, 1).evidence["step"]
    seconds = _seconds(observed)
    longer, both = max(seconds["products"], seconds["memory"]), sum(seconds.values())
    image_bytes = int((longer + both) / 2 * observed["link_bytes_per_s"] / batch)
    return {"batch": batch, "autocast": False, "image_bytes": image_bytes}


# methods: that fit, and take the least time

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "micro_batches": (1, 2, 4, 8),
    "checkpointing": (False, True),
    "autocast": (False, True),
    "optimizer": ("adamw", "adamw, fused"),
}
PLAIN = {name: values[0] for name, values in CHOICES.items()}
"""Without any method."""
GOOD = {"micro_batches": 4, "checkpointing": False, "autocast": True, "optimizer": "adamw, fused"}
"""Fits, and takes the least time of all 32 choices that do; a test tries them all."""
SLOWER_BY = 1.02
"""Choices within 2 % of the good one's time are as good."""
ROOM = 0.45
"""What the program may use, of what it takes without any method."""


def _read(batch: int, chosen: Mapping[str, Any]) -> MethodReading:
    """Train a step on the attached GPU."""
    from vramlab_course.lessons.l18_memory_against_speed.experiment import Setting, read_step

    return read_step(Setting(batch, width=256, layers=2, length=256, vocabulary=2048, **chosen))


def _chosen(answer: Any, batch: int) -> Mapping[str, Any]:
    if not isinstance(answer, dict) or answer.keys() != CHOICES.keys():
        raise NotFixed(f"It has to be a dict with the keys {', '.join(CHOICES)}.")
    for name, value in answer.items():
        if not is_one_of(value, CHOICES[name]):
            known = ", ".join(map(repr, CHOICES[name]))
            raise NotFixed(f"{name} is {value!r}; it can be {known}.")
    return answer


def _not_much_slower(run: Run, good: MethodReading) -> None:
    slower_by = run.results.needed.seconds / good.needed.seconds
    if slower_by > SLOWER_BY:
        raise NotFixed(
            f"It fits, but takes {slower_by - 1:.0%} longer than another choice that fits, by the "
            "roofline's lower bounds. Which of its methods costs time, and which method that "
            "saves time is missing?"
        )


CHOOSE = Fix(
    name="methods",
    points=4,
    minutes=25,
    visible=({"batch": 16},),
    hidden=lambda random: [{"batch": 24}],
    trial=Repair(
        gpu=A100,
        accept=_chosen,
        call=lambda run: _read(run.case["batch"], run.program),
        reference=GOOD,
        fits=PLAIN,
        limit=lambda own: int(ROOM * own.results.peak_bytes),
        peak=lambda run: run.results.peak_bytes,
        ran_out=lambda run: (
            f"With a limit of {format_bytes(run.limit_bytes)}, it takes "
            f"{format_bytes(run.peak_bytes)}."
        ),
        compare=_not_much_slower,
        any_precision=True,  # autocast is one of the methods to choose from
    ),
    is_value=True,
)

EXERCISE = Exercise(
    name="18_memory_against_speed",
    module=__name__,
    tasks=(BACKWARD, LIMITED, WHERE, CHOOSE),
    core=("limited_by", "methods"),
)
