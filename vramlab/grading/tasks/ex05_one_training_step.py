"""Exercise 05: what a training step of linear layers holds, and at which moment it is most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from vramlab.formulas.storage import block_bytes
from vramlab.grading.batches import noting, numbered_batch
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
from vramlab.units import MIB, format_bytes

if TYPE_CHECKING:
    import torch

GPU = "T4"
"""A grade names its GPU, so that it does not depend on the machine that grades."""

WORKSPACE_BYTES = 8_519_680
"""cuBLAS's workspace on a T4, as the notebook tells the learner; the truth is measured."""


def _chain(widths: Sequence[int], bias: bool = True) -> torch.nn.Sequential:
    import torch

    layers = (torch.nn.Linear(inputs, outputs, bias=bias) for inputs, outputs in pairwise(widths))
    return torch.nn.Sequential(*layers).to("cuda")


def _blocks(*sizes_bytes: int) -> int:
    return sum(map(block_bytes, sizes_bytes))


def _parameters(widths: Sequence[int]) -> int:
    return sum(_blocks(4 * inputs * outputs, 4 * outputs) for inputs, outputs in pairwise(widths))


def _rows(batch: int, widths: Sequence[int]) -> int:
    return _blocks(*(4 * batch * width for width in widths))


# Sizes are so chosen that no block keeps a rest: lesson 02 is about those. A size is at most 1 MiB,
# or a multiple of 2 MiB.


def _large(random: Random, layers: int) -> Config:
    """A batch and widths whose activations and weights are multiples of 2 MiB."""
    widths = [1024 * random.randrange(1, 4) for _ in range(layers + 1)]
    return {"batch": 1024 * random.randrange(4, 9), "widths": widths}


def _small(random: Random, layers: int) -> Config:
    """A batch and widths whose activations and weights take at most 1 MiB."""
    widths = [random.randrange(10, 500) for _ in range(layers + 1)]
    return {"batch": random.randrange(10, 500), "widths": widths}


CHAINS: tuple[Config, ...] = (
    {"batch": 10240, "widths": [1024, 1024, 1024, 2048]},
    {"batch": 4096, "widths": [2048, 1024]},
    {"batch": 3, "widths": [100, 100, 10]},
)
"""What both the forward pass and the whole step are asked of."""


def _hidden_chains(random: Random) -> list[Config]:
    return [
        *(_large(random, layers) for layers in (1, 2, 5)),
        *(_small(random, layers) for layers in (2, 4)),
    ]


# forward_bytes: what a forward pass adds


def _measure_forward(batch: int, widths: Sequence[int]) -> int:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        model = _chain(widths)
        x = torch.zeros(batch, widths[0], device="cuda")
        y = model(x)
        del y
        before_bytes = torch.cuda.memory_allocated()
        y = model(x)
        growth_bytes = torch.cuda.memory_allocated() - before_bytes
        del model, x, y
    return growth_bytes


FORWARD = Predict(
    name="forward_bytes",
    points=2,
    minutes=5,
    visible=CHAINS,
    hidden=_hidden_chains,
    measure=_measure_forward,
    mistakes=(
        Mistake(
            "You counted the input as well. It was there before the forward pass.",
            lambda batch, widths: _rows(batch, widths),
        ),
        Mistake(
            "You left out the last output. The caller holds it.",
            lambda batch, widths: _rows(batch, widths[1:-1]),
        ),
        Mistake(
            "You counted the inputs of the layers. Each layer adds its output; the input of the "
            "first was there before.",
            lambda batch, widths: _rows(batch, widths[:-1]),
        ),
        Mistake(
            "You added cuBLAS's workspace. It is taken once, by the first forward pass.",
            lambda batch, widths: _rows(batch, widths[1:]) + WORKSPACE_BYTES,
        ),
        Mistake(
            "You forgot that blocks come in steps of 512 bytes.",
            lambda batch, widths: sum(4 * batch * width for width in widths[1:]),
        ),
    ),
)


# left_bytes: what is left after the backward pass


def _measure_left(batch: int, widths: Sequence[int]) -> int:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        model = _chain(widths)
        x = torch.zeros(batch, widths[0], device="cuda")
        y = model(x)
        loss = y.sum()
        loss.backward()
        left_bytes = torch.cuda.memory_allocated()
        del model, x, y, loss
    return left_bytes


def _left(batch: int, widths: Sequence[int]) -> int:
    ends_bytes = _rows(batch, [widths[0], widths[-1]])
    return 2 * _parameters(widths) + ends_bytes + 512 + 2 * WORKSPACE_BYTES


LEFT = Predict(
    name="left_bytes",
    points=3,
    minutes=10,
    visible=CHAINS,
    hidden=_hidden_chains,
    measure=_measure_left,
    mistakes=(
        Mistake(
            "You counted one workspace. The backward pass runs in a thread of its own, which has "
            "its own.",
            lambda batch, widths: _left(batch, widths) - WORKSPACE_BYTES,
        ),
        Mistake(
            "You forgot cuBLAS's workspaces: one for each thread that multiplies matrices.",
            lambda batch, widths: _left(batch, widths) - 2 * WORKSPACE_BYTES,
        ),
        Mistake(
            "You forgot the gradients of the parameters. They stay.",
            lambda batch, widths: _left(batch, widths) - _parameters(widths),
        ),
        Mistake(
            "You let y go. It has a name, so it stays.",
            lambda batch, widths: _left(batch, widths) - _rows(batch, widths[-1:]),
        ),
        Mistake(
            "You kept the outputs of all layers. The backward pass frees what only it needed; "
            "of the outputs, only y has a name.",
            lambda batch, widths: _left(batch, widths) + _rows(batch, widths[1:-1]),
        ),
        Mistake(
            "You counted the loss as 4 bytes. It takes a block.",
            lambda batch, widths: _left(batch, widths) - 508,
        ),
    ),
)


# peak_bytes: the most that a step holds


def _measure_peak(batch: int, width: int, layers: int) -> int:
    import torch

    import vramlab

    with vramlab.VirtualGPU(GPU):
        model = _chain([width] * (layers + 1), bias=False)
        x = torch.zeros(batch, width, device="cuda")
        y = model(x)
        loss = y.sum()
        loss.backward()
        peak_bytes = torch.cuda.max_memory_allocated()
        del model, x, y, loss
    return peak_bytes


def _peak(batch: int, width: int, layers: int, rows: int, gradients: int = 1) -> int:
    """`rows` counts the activations at the peak, and what is as large; `gradients` the weights'."""
    weights_bytes = (layers + gradients) * 4 * width * width
    return weights_bytes + rows * 4 * batch * width + 2 * 512 + 2 * WORKSPACE_BYTES


def _deep(random: Random, layers: int) -> Config:
    return {
        "batch": 1024 * random.randrange(4, 9),
        "width": 1024 * random.randrange(1, 4),
        "layers": layers,
    }


PEAK = Predict(
    name="peak_bytes",
    points=4,
    minutes=20,
    visible=(
        {"batch": 4096, "width": 1024, "layers": 2},
        {"batch": 4096, "width": 2048, "layers": 3},
        {"batch": 8192, "width": 1024, "layers": 6},
    ),
    hidden=lambda random: [_deep(random, layers) for layers in (2, 4, 5, 8, 12)],
    measure=_measure_peak,
    mistakes=(
        Mistake(
            "You are one activation short. Two tensors of that size come with the last layer's "
            "matrix products: the gradient of its input, and the copy of the expanded gradient.",
            lambda batch, width, layers: _peak(batch, width, layers, layers + 2),
        ),
        Mistake(
            "You counted what the forward pass leaves, and the gradient of the last weight. The "
            "matrix products that make it also need the gradient of the layer's input and a copy "
            "of the expanded gradient.",
            lambda batch, width, layers: _peak(batch, width, layers, layers + 1),
        ),
        Mistake(
            "You counted all gradients of parameters. At the peak, in the last layer, only that "
            "layer's has been made.",
            lambda batch, width, layers: _peak(batch, width, layers, layers + 3, gradients=layers),
        ),
        Mistake(
            "You counted the gradients of all activations. Each goes as soon as the layer below "
            "has used it: only the first is there at the peak, and the copy.",
            lambda batch, width, layers: _peak(batch, width, layers, 2 * layers + 1),
        ),
        Mistake(
            "You counted what is left after the backward pass, not the most that it held.",
            lambda batch, width, layers: (
                2 * layers * 4 * width * width + 2 * 4 * batch * width + 512 + 2 * WORKSPACE_BYTES
            ),
        ),
    ),
)


# applications: how often a layer was applied, told from what was allocated


def _observe_applications(
    gpu: str, torch_version: str | None, batch: int, applications: int
) -> Observation:
    """Train a step of document 003's model, and read memory_allocated() after each stage.

    Args:
        gpu: its name in the catalogue; it decides how large cuBLAS's workspaces are.
        torch_version: whose rules hold; before 2.0, the workspaces are not in the cache.
        batch: rows of the input.
        applications: how often the layer is applied.
    """
    import torch

    import vramlab

    allocated = {}
    with vramlab.VirtualGPU(gpu, torch_version=torch_version):
        layer = torch.nn.Linear(1024, 1024, bias=False, dtype=torch.float16).to("cuda")
        allocated["model"] = torch.cuda.memory_allocated()
        inputs = torch.zeros(batch, 1024, dtype=torch.float16, device="cuda")
        allocated["inputs"] = torch.cuda.memory_allocated()
        outputs = inputs
        for _ in range(applications):
            outputs = layer(outputs)
        allocated["forward"] = torch.cuda.memory_allocated()
        loss = outputs.sum()
        loss.backward()
        allocated["backward"] = torch.cuda.memory_allocated()
        del layer, inputs, outputs, loss
    return Observation({"allocated": allocated}, applications)


def _growth(allocated: dict[str, int]) -> int:
    return allocated["forward"] - allocated["inputs"]


def _input(allocated: dict[str, int]) -> int:
    return allocated["inputs"] - allocated["model"]


def _without_one_workspace(allocated: dict[str, int], workspace_bytes: int) -> int:
    return (_growth(allocated) - workspace_bytes) // _input(allocated)


APPLICATIONS = Diagnose(
    name="applications",
    points=4,
    minutes=20,
    visible=(
        {"gpu": "V100-16GB", "torch_version": "1.13", "batch": 10240, "applications": 2},
        {"gpu": GPU, "torch_version": None, "batch": 4096, "applications": 3},
        {"gpu": "H100", "torch_version": None, "batch": 4096, "applications": 3},
    ),
    hidden=lambda random: [
        {
            "gpu": gpu,
            "torch_version": version,
            "batch": 1024 * random.randrange(1, 5),
            "applications": random.randrange(1, 11),
        }
        for gpu in ("T4", "A100-40GB", "H200")
        for version in ("1.13", None)
    ],
    observe=_observe_applications,
    mistakes=(
        Mistake(
            "You took all of the forward pass's growth for outputs. Where cuBLAS's workspace is "
            "in it, that is too much.",
            lambda allocated: _growth(allocated) // _input(allocated),
        ),
        Mistake(
            "You always took 8.125 MiB for cuBLAS's workspace. On other GPUs, and with other "
            "versions of PyTorch, it is something else: the numbers tell what.",
            lambda allocated: _without_one_workspace(allocated, WORKSPACE_BYTES),
        ),
        Mistake(
            "You always took 32 MiB for cuBLAS's workspace. On other GPUs, and with other "
            "versions of PyTorch, it is something else: the numbers tell what.",
            lambda allocated: _without_one_workspace(allocated, 32 * MIB),
        ),
        Mistake(
            "You took both workspaces off the forward pass. The second one comes in the backward "
            "pass.",
            lambda allocated: (_growth(allocated) - 2 * _workspace(allocated)) // _input(allocated),
        ),
        Mistake(
            "You counted the input as an output.",
            lambda allocated: _without_one_workspace(allocated, _workspace(allocated)) + 1,
        ),
    ),
)


def _workspace(allocated: dict[str, int]) -> int:
    """Half of what is left over after the backward pass."""
    ends_bytes = 2 * allocated["model"] + 2 * _input(allocated)
    return (allocated["backward"] - ends_bytes - 512) // 2


# train: a loop that keeps outputs and graphs

WIDTH = 64
BATCH_STEP = 8192
"""A batch of a multiple of this many rows takes a multiple of 2 MiB."""


def _model(layers: int) -> torch.nn.Sequential:
    import torch

    torch.manual_seed(layers)
    return _chain([WIDTH] * (layers + 1))


def _train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    load: Callable[[int], torch.Tensor],
    held_out: torch.Tensor,
    steps: int,
) -> torch.Tensor:
    import torch

    scores = []
    for step in range(steps):
        loss = model(load(step)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            scores.append(model(held_out).square().mean())
    return torch.stack(scores)


def _try_train(answer: Any, rows: int, layers: int, steps: int) -> str:
    import torch

    import vramlab

    batch_bytes = 4 * rows * WIDTH
    with vramlab.VirtualGPU(GPU, values=True):
        expected, trained, reserved_bytes = _run(_train, rows, layers, steps, [])
    limit_bytes = reserved_bytes + batch_bytes // 2
    begun: list[int] = []
    with vramlab.VirtualGPU(GPU, values=True):
        with limited(limit_bytes, lambda held_bytes: _where_it_ended(begun, steps, batch_bytes)):
            scores, learned, _ = _run(answer, rows, layers, steps, begun)
        report = peak_report(limit_bytes)
    if not isinstance(scores, torch.Tensor) or scores.shape != expected.shape:
        raise NotFixed(f"It fits, but does not give the scores of {steps} steps any more.")
    if not torch.allclose(scores, expected, rtol=1e-4):
        raise NotFixed("It fits, but its scores have changed.")
    if not torch.allclose(learned, trained, rtol=1e-4):
        raise NotFixed("It fits, but the model has learned something else.")
    return report


def _run(
    train: Any, rows: int, layers: int, steps: int, begun: list[int]
) -> tuple[Any, torch.Tensor, int]:
    """Train a fresh model; give the scores, what it gives on other data, and the reserved peak."""
    import torch

    model = _model(layers)
    load = noting(lambda index: numbered_batch(index, rows, WIDTH), begun)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scores = train(model, optimizer, load, numbered_batch(-1, rows, WIDTH), steps)
    reserved_bytes = torch.cuda.max_memory_reserved()
    learned = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    if isinstance(scores, torch.Tensor):
        scores = scores.detach().cpu()
    return scores, learned.cpu(), reserved_bytes


def _where_it_ended(begun: list[int], steps: int, batch_bytes: int) -> str:
    step = f"in step {len(begun)} of {steps}, with batches of {format_bytes(batch_bytes)}. "
    if len(begun) > 1:
        return step + (
            "The steps before fitted, so something of them is still there. Whose graph does a "
            "score hold?"
        )
    return step + (
        "That is the first step, so it holds too much at once. Which tensor has a name at the "
        "peak, though the backward pass does not need it?"
    )


TRAIN = Fix(
    name="train",
    points=4,
    minutes=15,
    visible=({"rows": 5 * BATCH_STEP, "layers": 3, "steps": 4},),
    hidden=lambda random: [
        {"rows": BATCH_STEP * random.randrange(5, 8), "layers": layers, "steps": 3}
        for layers in (2, 4)
    ],
    trial=_try_train,
)

EXERCISE = Exercise(
    name="05_one_training_step",
    module=__name__,
    tasks=(FORWARD, LEFT, PEAK, APPLICATIONS, TRAIN),
)
