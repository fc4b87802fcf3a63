"""Exercise 05: what a training step of linear layers holds, and at which moment it is most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.units import MIB, format_bytes
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
from vramlab_course.tasks.batches import batch_bytes, numbered_batch
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import is_plain, parameters_of, require_close, to_host

T4 = GPU("T4")

WORKSPACE_BYTES = 8_519_680
"""cuBLAS's workspace on a T4, as the notebook tells the learner; the truth is measured."""


def _chain(widths: Sequence[int], bias: bool = True) -> torch.nn.Sequential:
    layers = (torch.nn.Linear(inputs, outputs, bias=bias) for inputs, outputs in pairwise(widths))
    return torch.nn.Sequential(*layers).to("cuda")


def _blocks(*sizes_bytes: int) -> int:
    return sum(map(block_bytes, sizes_bytes))


def _parameters(widths: Sequence[int]) -> int:
    return sum(_blocks(4 * inputs * outputs, 4 * outputs) for inputs, outputs in pairwise(widths))


def _numbers_alone(widths: Sequence[int]) -> int:
    """As if a layer's weight and bias had no blocks."""
    return sum(4 * (inputs * outputs + outputs) for inputs, outputs in pairwise(widths))


def _in_one_block(widths: Sequence[int]) -> int:
    """As if a layer's weight and bias shared a block."""
    return sum(block_bytes(4 * (inputs + 1) * outputs) for inputs, outputs in pairwise(widths))


def _biases_unrounded(widths: Sequence[int]) -> int:
    return sum(block_bytes(4 * i * o) + 4 * o for i, o in pairwise(widths))


def _without_biases(widths: Sequence[int]) -> int:
    return sum(block_bytes(4 * inputs * outputs) for inputs, outputs in pairwise(widths))


def _rows(batch: int, widths: Sequence[int]) -> int:
    return _blocks(*(4 * batch * width for width in widths))


# Sizes are so chosen that no block keeps a rest: lesson 02 is about those. A size is at most 1 MiB,
# or a multiple of 2 MiB.


def _large(random: Random, layers: int) -> Config:
    """Return a batch and widths whose activations and weights are multiples of 2 MiB."""
    widths = [1024 * random.randrange(1, 4) for _ in range(layers + 1)]
    return {"batch": 1024 * random.randrange(4, 9), "widths": widths}


def _small(random: Random, layers: int) -> Config:
    """Return a batch and widths whose activations and weights take at most 1 MiB."""
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
    model = _chain(widths)
    x = torch.zeros(batch, widths[0], device="cuda")
    model(x)  # cuBLAS has its workspace from here on
    return growth_bytes(lambda: model(x))


def _forward(
    batch: int,
    widths: Sequence[int],
    *,
    counted: slice = slice(1, None),
    block: Callable[[int], int] = block_bytes,
    workspaces: int = 0,
) -> int:
    """Return the answer or a mistaken one: which activations are counted, and what else."""
    rows_bytes = sum(block(4 * batch * width) for width in widths[counted])
    return rows_bytes + workspaces * WORKSPACE_BYTES


FORWARD = Predict(
    name="forward_bytes",
    points=2,
    minutes=5,
    visible=CHAINS,
    hidden=_hidden_chains,
    measure=_measure_forward,
    gpu=T4,
    mistakes=of(
        _forward,
        (
            "You counted the input as well. It was there before the forward pass.",
            {"counted": slice(None)},
        ),
        (
            "You left out the last output. The caller still references it.",
            {"counted": slice(1, -1)},
        ),
        (
            "You counted the inputs of the layers. Each layer adds its output; the input of the "
            "first was there before.",
            {"counted": slice(None, -1)},
        ),
        (
            "You added cuBLAS's workspace. It is allocated only once, in the first forward pass.",
            {"workspaces": 1},
        ),
        ("You left out the rounding: block sizes are multiples of 512 bytes.", {"block": int}),
    ),
)


# left_bytes: what is left after the backward pass


def _measure_left(batch: int, widths: Sequence[int]) -> int:
    model = _chain(widths)
    x = torch.zeros(batch, widths[0], device="cuda")
    y = model(x)
    loss = y.sum()
    loss.backward()
    return torch.cuda.memory_allocated()


def _left(
    batch: int,
    widths: Sequence[int],
    *,
    activations: slice | None = None,
    gradients: int = 1,
    loss_bytes: int = 512,
    workspaces: int = 2,
    parameters: Callable[[Sequence[int]], int] = _parameters,
) -> int:
    """Return the answer or a mistaken one: input and output stay, or other `activations`."""
    kept = [widths[0], widths[-1]] if activations is None else widths[activations]
    stays_bytes = (1 + gradients) * parameters(widths) + _rows(batch, kept)
    return stays_bytes + loss_bytes + workspaces * WORKSPACE_BYTES


LEFT = Predict(
    name="left_bytes",
    points=3,
    minutes=10,
    visible=CHAINS,
    hidden=_hidden_chains,
    measure=_measure_left,
    gpu=T4,
    mistakes=of(
        _left,
        (
            "You counted one workspace. The backward pass runs in a separate thread with a second "
            "workspace.",
            {"workspaces": 1},
        ),
        (
            "You forgot cuBLAS's workspaces: one for each thread that multiplies matrices.",
            {"workspaces": 0},
        ),
        ("You forgot the gradients of the parameters. They stay.", {"gradients": 0}),
        (
            "You counted y as freed. The variable y still references the tensor, so it stays.",
            {"activations": slice(1)},
        ),
        (
            "You kept the outputs of all layers. The backward pass frees what only it needed; "
            "of the outputs, only y has a name.",
            {"activations": slice(None)},
        ),
        (
            "You did not round the biases. Each is a tensor of its own, and takes whole blocks of "
            "512 bytes; and so does its gradient.",
            {"parameters": _biases_unrounded},
        ),
        (
            "You did not round weights and biases. Each is a tensor of its own, and takes whole "
            "blocks of 512 bytes; and so does its gradient.",
            {"parameters": _numbers_alone},
        ),
        (
            "You rounded a layer's weight and bias as one tensor. They are two.",
            {"parameters": _in_one_block},
        ),
        ("You forgot the biases, and their gradients.", {"parameters": _without_biases}),
        ("You counted the loss as 4 bytes. It occupies a whole block.", {"loss_bytes": 4}),
        (
            "You left out the loss: a single number, which still occupies a block.",
            {"loss_bytes": 0},
        ),
    ),
)


# peak_bytes: the most that a step holds


def _measure_peak(batch: int, width: int, layers: int) -> int:
    model = _chain([width] * (layers + 1), bias=False)
    x = torch.zeros(batch, width, device="cuda")
    y = model(x)
    loss = y.sum()
    loss.backward()
    return torch.cuda.max_memory_allocated()


def _peak(
    batch: int,
    width: int,
    layers: int,
    *,
    each: int = 1,
    more: int = 3,
    gradients: int | None = 1,
    numbers: int = 2,
    workspaces: int = 2,
) -> int:
    """Return the answer or a mistaken one: `each` layer has activations, and there are `more`.

    `gradients` of weights have been made, or (None) all of them; and `numbers` are there which
    take a block each.
    """
    weights_bytes = (layers + (layers if gradients is None else gradients)) * 4 * width * width
    rows_bytes = (each * layers + more) * 4 * batch * width
    return weights_bytes + rows_bytes + numbers * 512 + workspaces * WORKSPACE_BYTES


def _deep(random: Random, layers: int) -> Config:
    return {
        "batch": 1024 * random.randrange(4, 9),
        "width": 1024 * random.randrange(1, 4),
        "layers": layers,
    }


PEAK = Predict(
    name="peak_bytes",
    points=4,
    minutes=25,
    visible=(
        {"batch": 4096, "width": 1024, "layers": 2},
        {"batch": 4096, "width": 2048, "layers": 3},
        {"batch": 8192, "width": 1024, "layers": 6},
    ),
    hidden=lambda random: [_deep(random, layers) for layers in (2, 4, 5, 8, 12)],
    measure=_measure_peak,
    gpu=T4,
    mistakes=of(
        _peak,
        (
            "You are one activation short. Two tensors of that size come with the last layer's "
            "matrix products: the gradient of its input, and the copy of the expanded gradient.",
            {"more": 2},
        ),
        (
            "You counted what the forward pass leaves, and the gradient of the last weight. The "
            "matrix products that make it also need the gradient of the layer's input and a copy "
            "of the expanded gradient.",
            {"more": 1},
        ),
        (
            "You counted all gradients of parameters. At the peak, in the last layer, only that "
            "layer's has been made.",
            {"gradients": None},
        ),
        (
            "You counted the gradients of all activations. Each is freed as soon as the layer "
            "below has used it: at the peak only the first one and the copy are allocated.",
            {"each": 2, "more": 1},
        ),
        (
            "You left out the gradient of the last weight. When the second product of a layer "
            "runs, it is being made.",
            {"gradients": 0},
        ),
        (
            "You are 512 bytes short. Two single numbers are there: the loss, and the gradient "
            "that the backward pass starts from. Each takes a block.",
            {"numbers": 1},
        ),
        (
            "You forgot the loss, and the number that the backward pass starts from. Each takes a "
            "block.",
            {"numbers": 0},
        ),
        (
            "You counted one workspace. The backward pass runs in a separate thread with a second "
            "workspace.",
            {"workspaces": 1},
        ),
        Mistake(
            "You counted what stays allocated after the backward pass, not its peak.",
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
    allocated = {}
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
    return Observation({"allocated": allocated}, applications)


def _applications(
    allocated: Mapping[str, int],
    *,
    workspace_bytes: int | None = None,
    workspaces: int = 1,
    inputs: int = 0,
) -> int:
    """Return the answer or a mistaken one: what is taken off the forward pass's growth."""
    input_bytes = allocated["inputs"] - allocated["model"]
    if workspace_bytes is None:  # half of what is left over after the backward pass
        ends_bytes = 2 * allocated["model"] + 2 * input_bytes
        workspace_bytes = (allocated["backward"] - ends_bytes - 512) // 2
    growth_bytes = allocated["forward"] - allocated["inputs"]
    return (growth_bytes - workspaces * workspace_bytes) // input_bytes + inputs


APPLICATIONS = Diagnose(
    name="applications",
    points=4,
    minutes=25,
    visible=(
        {"gpu": "V100-16GB", "torch_version": "1.13", "batch": 10240, "applications": 2},
        {"gpu": "T4", "torch_version": None, "batch": 4096, "applications": 3},
        {"gpu": "H100", "torch_version": None, "batch": 4096, "applications": 3},
    ),
    hidden=lambda random: [
        {
            "gpu": gpu,
            "torch_version": version,
            "batch": 1024 * random.randrange(1, 5),
            "applications": random.randrange(1, 11),
        }
        # One without a workspace: where it is forgotten, most cases are wrong.
        for gpu, version in (
            *((gpu, None) for gpu in ("T4", "A100-40GB", "H100", "H200")),
            ("V100-16GB", "1.13"),
        )
    ],
    observe=_observe_applications,
    gpu=lambda gpu, torch_version, **_: GPU(gpu, torch_version=torch_version),
    mistakes=of(
        _applications,
        (
            "You took all of the forward pass's growth for outputs. Where cuBLAS's workspace is "
            "in it, that is too much.",
            {"workspaces": 0},
        ),
        (
            "You always took 8.125 MiB for cuBLAS's workspace. On other GPUs, and with other "
            "versions of PyTorch, it has another size. The numbers show which.",
            {"workspace_bytes": WORKSPACE_BYTES},
        ),
        (
            "You always took 32 MiB for cuBLAS's workspace. On other GPUs, and with other "
            "versions of PyTorch, it has another size. The numbers show which.",
            {"workspace_bytes": 32 * MIB},
        ),
        (
            "You subtracted both workspaces from the forward pass. The second one is allocated in "
            "the backward pass.",
            {"workspaces": 2},
        ),
        ("You counted the input as an output.", {"inputs": 1}),
    ),
)


# train: a loop that keeps outputs and graphs

WIDTH = 16
Trained = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]
"""Scores; weights; the optimizer's momentum. All on the host."""

BATCH_STEP = 32768
"""A batch of a multiple of this many rows takes a multiple of 2 MiB."""


def _model(layers: int) -> torch.nn.Sequential:
    torch.manual_seed(layers)
    return _chain([WIDTH] * (layers + 1))


def _train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    load: Callable[[int], torch.Tensor],
    held_out: torch.Tensor,
    steps: int,
) -> torch.Tensor:
    scores = []
    for step in range(steps):
        loss = model(load(step)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            scores.append(model(held_out).square().mean())
    return torch.stack(scores)


def _model_and_data(run: Run, rows: int, layers: int, steps: int) -> tuple[Any, ...]:
    model = _model(layers)
    load = run.noting(lambda index: numbered_batch(index, rows, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, load, numbered_batch(-1, rows, WIDTH), steps


def _scores_and_weights(run: Run, scores: object) -> Trained:
    steps = run.case["steps"]
    if not is_plain(scores) or scores.shape != (steps,):
        raise NotFixed(f"It fits, but does not give the scores of {steps} steps any more.")
    learned = list(parameters_of(run.inputs[0]))
    states = [run.inputs[1].state.get(weight, {}).get("momentum_buffer") for weight in learned]
    return (
        to_host(scores),
        torch.cat([to_host(weight).flatten() for weight in learned]),
        torch.cat(
            [torch.empty(0), *(to_host(each).flatten() for each in states if each is not None)]
        ),
    )


def _same_training(run: Run, expected: Trained) -> None:
    scores, learned, states = run.results
    require_close(scores, expected[0], "It fits, but its scores have changed.")
    message = "It fits, but the model has learned something else."
    require_close(learned, expected[1], message)
    message = "It fits, but the optimizer has not done the steps: its momentum is another."
    require_close(states, expected[2], message)


def _batch_bytes(run: Run) -> int:
    return batch_bytes(run.case["rows"], WIDTH)


def _where_it_ended(run: Run) -> str:
    step = (
        f"{run.ran_out} in step {len(run.noted)} of {run.case['steps']}, with batches of "
        f"{format_bytes(_batch_bytes(run))}. "
    )
    if len(run.noted) > 1:
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
    minutes=20,
    visible=({"rows": 5 * BATCH_STEP, "layers": 3, "steps": 3},),
    hidden=lambda random: [
        {"rows": BATCH_STEP * random.randrange(5, 8), "layers": layers, "steps": 2}
        for layers in (2, 4)
    ],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_model_and_data,
        reference=_train,
        limit=lambda own: own.reserved_bytes[0] + _batch_bytes(own) // 2,
        ran_out=_where_it_ended,
        collect=_scores_and_weights,
        compare=_same_training,
    ),
)

EXERCISE = Exercise(
    name="05_one_training_step",
    module=__name__,
    tasks=(FORWARD, LEFT, PEAK, APPLICATIONS, TRAIN),
    core=("peak_bytes", "train"),
)
