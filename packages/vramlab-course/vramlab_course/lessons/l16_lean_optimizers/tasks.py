"""Exercise 16: what lean optimizers keep, telling them apart, and steps in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.units import MIB
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import Diagnose, Exercise, Fix, Observation, Predict
from vramlab_course.tasks.deep_chain import training
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.workspaces import take_workspaces

T4 = GPU("T4", alloc_conf=NO_RESTS)

Shapes = Sequence[Sequence[int]]


def _state_growth(shapes: Shapes, make: Callable[..., torch.optim.Optimizer]) -> int:
    """Return what an optimizer's first step leaves behind."""
    take_workspaces()
    parameters = [torch.nn.Parameter(torch.zeros(*shape, device="cuda")) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)

    def step() -> torch.optim.Optimizer:
        optimizer = make(parameters)
        optimizer.step()
        return optimizer

    return growth_bytes(step)


# adafactor_bytes: rows and columns


def _measure_adafactor(momentum: bool, shapes: Shapes) -> int:
    from transformers.optimization import Adafactor

    adafactor: Callable[..., torch.optim.Optimizer] = Adafactor
    beta1 = 0.9 if momentum else None
    options = {"lr": 1e-3, "beta1": beta1, "scale_parameter": False, "relative_step": False}
    return _state_growth(shapes, lambda parameters: adafactor(parameters, **options))


def _adafactor(
    momentum: bool,
    shapes: Shapes,
    *,
    number: int = 512,
    vectors_too: bool = False,
    block: Callable[[int], int] = block_bytes,
) -> int:
    """Return the states' bytes; `number`: of the root mean square; `vectors_too`: of vectors."""
    total = 0
    for shape in shapes:
        size = block(4 * prod(shape))
        if len(shape) > 1:
            *others, rows, columns = shape
            total += block(4 * prod(others) * rows) + block(4 * prod(others) * columns)
        else:
            total += block(4) if vectors_too else size
        total += (size if momentum else 0) + number
    return total


def _flat(momentum: bool, shapes: Shapes) -> int:
    """Take rows of all leading dimensions together, and one set of columns."""
    flat = [[prod(s[:-1]), s[-1]] if len(s) > 2 else list(s) for s in shapes]
    return _adafactor(momentum, flat)


def _dimensions(momentum: bool, shapes: Shapes) -> tuple[bool, int] | None:
    """Return the rule that a case is about; None if parameters have several numbers of them."""
    dimensions = {len(shape) for shape in shapes}
    return (momentum, dimensions.pop()) if len(dimensions) == 1 else None


def _shape(random: Random, dimensions: int) -> list[int]:
    if dimensions == 3:
        return [random.randrange(2, 9), random.randrange(50, 300), random.randrange(50, 300)]
    return [random.randrange(300, 3000) for _ in range(dimensions)]


ADAFACTOR = Predict(
    name="adafactor_bytes",
    points=4,
    minutes=20,
    rule=_dimensions,
    visible=(
        {"momentum": False, "shapes": [[4096, 1024]]},
        {"momentum": True, "shapes": [[4096, 1024]]},
        {"momentum": False, "shapes": [[1000], [30, 50]]},
        {"momentum": False, "shapes": [[12, 200, 300]]},
    ),
    hidden=lambda random: [
        {"momentum": momentum, "shapes": [_shape(random, each) for each in dimensions]}
        for momentum in (False, True)
        for dimensions in ((1, 1), (2, 2), (3, 3), (2, 1, 3, 1))
    ],
    measure=_measure_adafactor,
    gpu=T4,
    mistakes=of(
        _adafactor,
        (
            "You left out the root mean square: one number on the GPU per parameter.",
            {"number": 0},
        ),
        (
            "You factored vectors. A vector has no rows and columns, so its second moment is "
            "stored whole.",
            {"vectors_too": True},
        ),
        (
            "You counted a first moment in every case. Adafactor has one only with beta1.",
            {"momentum": True},
        ),
        ("You left out the first moment, which Adafactor stores with beta1.", {"momentum": False}),
        Mistake(
            "You treated a three-dimensional parameter as one matrix. It is several matrices, "
            "each with its own columns.",
            _flat,
        ),
        ("You left out the rounding: block sizes are multiples of 512 bytes.", {"block": int}),
    ),
)


# blockwise_bytes: a byte for each number, and scales


def _measure_blockwise(block: int, shapes: Shapes) -> int:
    from vramlab_course.programs.blockwise_adam import BlockwiseAdamW

    return _state_growth(shapes, lambda parameters: BlockwiseAdamW(parameters, block=block))


def _blockwise(
    block: int,
    shapes: Shapes,
    *,
    scales: bool = True,
    smallest: int = 4096,
    codebooks: int | None = None,
    states: int = 2,
) -> int:
    """`codebooks`: bytes in every case; None: as it is."""
    total = 0
    large = False
    for shape in shapes:
        count = prod(shape)
        if count < smallest:
            total += states * block_bytes(4 * count)
        else:
            large = True
            total += states * (
                block_bytes(count) + (block_bytes(4 * -(-count // block)) if scales else 0)
            )
    return total + (2 * 1024 * large if codebooks is None else codebooks)


BLOCKWISE = Predict(
    name="blockwise_bytes",
    points=3,
    minutes=10,
    rule=lambda block, shapes: min(map(prod, shapes)) < 4096,
    visible=(
        {"block": 256, "shapes": [[4096, 1024]]},
        {"block": 2048, "shapes": [[4096, 1024]]},
        {"block": 256, "shapes": [[1024, 1024], [1024]]},
        {"block": 256, "shapes": [[63, 65], [64, 64]]},
        {"block": 256, "shapes": [[100], [1000]]},
    ),
    hidden=lambda random: [
        {"block": 256, "shapes": [_shape(random, 2), _shape(random, 3)]},
        {"block": 2048, "shapes": [_shape(random, 2), _shape(random, 3)]},
        {"block": 256, "shapes": [_shape(random, each) for each in (2, 1, 3, 1)]},
        {"block": 64, "shapes": [[random.randrange(4096, 9000)], [4095], [4096]]},
        {"block": 256, "shapes": [[random.randrange(1, 4096)] for _ in range(5)]},
    ],
    measure=_measure_blockwise,
    gpu=T4,
    mistakes=of(
        _blockwise,
        ("You left out the scales: one float32 per block, for both states.", {"scales": False}),
        (
            "You quantized small parameters too. Below 4,096 elements, states stay in float32.",
            {"smallest": 0},
        ),
        (
            "You left out the two codebooks, or counted them per parameter. There are two in all.",
            {"codebooks": 0},
        ),
        ("You counted codebooks although no parameter is quantized.", {"codebooks": 2 * 1024}),
        ("You counted one optimizer state. AdamW has two.", {"states": 1}),
    ),
)


# which_optimizer: told from two shapes

ANSWERS = (
    "SGD",
    "SGD with momentum",
    "AdamW",
    "Adafactor",
    "Adafactor with momentum",
    "8-bit AdamW",
)


def _observe_optimizer(optimizer: str, rows: int, columns: int) -> Observation:
    """Read the states of a matrix, and of a vector with as many numbers."""
    from vramlab_course.lessons.l16_lean_optimizers.experiment import LEAN_OPTIMIZERS

    make = LEAN_OPTIMIZERS[optimizer].make
    evidence = {
        "numbers": rows * columns,
        "matrix_bytes": _state_growth([[rows, columns]], make),
        "vector_bytes": _state_growth([[rows * columns]], make),
    }
    return Observation(evidence, optimizer)


def _by_bytes(per_number: float) -> str:
    """Told from one shape, with the names that have no factors."""
    if per_number < 1:
        return "SGD"
    if per_number < 3:
        return "8-bit AdamW"
    return "SGD with momentum" if per_number < 6 else "AdamW"


def _by_matrix(numbers: int, matrix_bytes: int, vector_bytes: int) -> str:
    if 0 < matrix_bytes < numbers:
        return "Adafactor"
    return _by_bytes(matrix_bytes / numbers)


WHICH = Diagnose(
    name="which_optimizer",
    points=4,
    minutes=20,
    visible=(
        {"optimizer": "AdamW", "rows": 1024, "columns": 512},
        {"optimizer": "Adafactor", "rows": 1024, "columns": 512},
        {"optimizer": "Adafactor with momentum", "rows": 2048, "columns": 512},
    ),
    hidden=lambda random: [
        {
            "optimizer": optimizer,
            "rows": 128 * random.randrange(4, 20),
            "columns": 128 * random.randrange(4, 20),
        }
        for optimizer in ANSWERS
    ],
    observe=_observe_optimizer,
    gpu=T4,
    mistakes=(
        Mistake(
            "You looked only at the vector. A vector cannot be factored, so for it Adafactor "
            "stores what other optimizers store for every parameter.",
            lambda numbers, matrix_bytes, vector_bytes: _by_bytes(vector_bytes / numbers),
        ),
        Mistake(
            "You looked only at the matrix. With momentum, what else Adafactor stores is easy to "
            "miss there; the vector shows it.",
            _by_matrix,
        ),
    ),
)


# train: a step for which not all gradients fit

ROOM_BYTES = 4 * MIB
"""Less than the gradients of five weights."""


def _train(model: torch.nn.Module, load: Callable[[int], torch.Tensor], steps: int) -> None:
    from vramlab_course.lessons.l16_lean_optimizers.step_in_backward import step_in_backward

    step_in_backward(
        model.parameters(), lambda parameters: torch.optim.AdamW(parameters, fused=True)
    )
    for step in range(steps):
        model(load(step)).square().mean().backward()


TRAIN = Fix(
    name="train",
    points=4,
    minutes=25,
    visible=({"layers": 12, "steps": 3},),
    hidden=lambda random: [{"layers": random.randrange(12, 21), "steps": 3}],
    trial=training(
        _train,
        room_bytes=ROOM_BYTES,
        question=(
            "Weights and AdamW's two states are three times the weights. How many gradients "
            "must be allocated at the same time?"
        ),
    ),
)

EXERCISE = Exercise(
    name="16_lean_optimizers",
    module=__name__,
    tasks=(ADAFACTOR, BLOCKWISE, WHICH, TRAIN),
    core=("which_optimizer", "train"),
)
