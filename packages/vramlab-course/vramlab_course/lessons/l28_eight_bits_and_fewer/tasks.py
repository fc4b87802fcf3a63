"""Exercise 28: copies in 8 bits, what layers keep, which scale it was, and bytes that wait."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.gradients import Gradients, collect_gradients
from vramlab_course.tasks.operations import base_name, elements
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.workspaces import take_workspaces

H100 = GPU("H100")

# copy_bytes: a matrix in 8 bits, with its scales

SCALINGS = ("tensor", "rows", "blocks")


def _measure_copy(rows: int, columns: int, scaling: str) -> int:
    """Cast a matrix, lay its scales out as the product wants them, and multiply."""
    from vramlab_course.lessons.l28_eight_bits_and_fewer.eight_bits import cast, cast_blocks

    matrix = torch.zeros(rows, columns, dtype=torch.bfloat16, device="cuda")
    if scaling == "tensor":
        numbers, scales = cast(matrix)
    elif scaling == "rows":
        numbers, scales = cast(matrix, dim=-1)
    else:
        numbers, plain = cast_blocks(matrix)
        rows_more, blocks_more = -rows % 128, -plain.shape[1] % 4
        padded = (plain.shape[0] + rows_more, plain.shape[1] + blocks_more)
        scales = torch.empty(padded, dtype=plain.dtype, device="cuda").flatten()
    other = scales if scaling != "rows" else scales.t().contiguous()
    # PyTorch refuses scales of another size.
    torch._scaled_mm(numbers, numbers.t(), scales, other, out_dtype=torch.bfloat16)
    return numbers.untyped_storage().nbytes() + scales.untyped_storage().nbytes()


def _copy(
    rows: int,
    columns: int,
    scaling: str,
    *,
    scale_bytes: int = 4,
    tiled: bool = True,
    block_scale_bytes: int = 1,
) -> int:
    """Return the answer, or a mistaken one."""
    if scaling == "tensor":
        return rows * columns + scale_bytes
    if scaling == "rows":
        return rows * columns + scale_bytes * rows
    blocks = -(-columns // 32)
    if tiled:
        rows_padded, blocks = -(-rows // 128) * 128, -(-blocks // 4) * 4
    else:
        rows_padded = rows
    return rows * columns + block_scale_bytes * rows_padded * blocks


def _hidden_copies(random: Random) -> list[Config]:
    return [
        {"rows": rows, "columns": 32 * random.randrange(2, 60), "scaling": scaling}
        for scaling in SCALINGS
        for rows in (128 * random.randrange(1, 20), 16 * random.randrange(65, 200) + 16)
    ]


COPY = Predict(
    name="copy_bytes",
    points=3,
    minutes=15,
    visible=(
        {"rows": 4096, "columns": 4096, "scaling": "tensor"},
        {"rows": 1008, "columns": 512, "scaling": "rows"},
        {"rows": 4096, "columns": 4096, "scaling": "blocks"},
        {"rows": 144, "columns": 160, "scaling": "blocks"},
        {"rows": 16, "columns": 32, "scaling": "blocks"},
    ),
    hidden=_hidden_copies,
    measure=_measure_copy,
    gpu=H100,
    mistakes=of(
        _copy,
        ("You left out the scales.", {"scale_bytes": 0, "block_scale_bytes": 0}),
        (
            "You counted a scale of 4 bytes per block. In MX formats a scale is one byte: a power "
            "of two.",
            {"block_scale_bytes": 4},
        ),
        (
            "You left out the padding of the scales. The GEMM reads them in tiles of 128 rows by "
            "4 blocks.",
            {"tiled": False},
        ),
        Mistake(
            "You used 2 bytes per number. The 8-bit copy takes one; the 16-bit matrix is a "
            "separate tensor.",
            lambda rows, columns, scaling: rows * columns + _copy(rows, columns, scaling),
        ),
    ),
)

# kept_bytes: what layers keep that read the same input

RECIPES = ("16 bits", "8 bits, cast again", "8 bits, kept")


def _measure_kept(rows: int, width: int, readers: int, together: bool, recipe: str) -> int:
    """Several layers on one input, their sum, GELU, and one layer more."""
    from vramlab.measure import record_saved_tensors
    from vramlab_course.lessons.l28_eight_bits_and_fewer.experiment import linear, region
    from vramlab_course.lessons.l28_eight_bits_and_fewer.formulas import Recipe

    chosen: Recipe = recipe  # type: ignore[assignment]
    take_workspaces()
    if together:
        first = [linear(width, readers * width, chosen).to("cuda")]
    else:
        first = [linear(width, width, chosen).to("cuda") for _ in range(readers)]
    last = linear(width, width, chosen).to("cuda")
    parameters = torch.nn.ModuleList([*first, last])
    seed = torch.zeros(1, 1, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    with record_saved_tensors(parameters) as recording, region(chosen):
        x = seed.expand(rows, width).contiguous()
        parts = first[0](x).chunk(readers, dim=1) if together else [layer(x) for layer in first]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        loss = last(torch.nn.functional.gelu(total)).sum()
    return recording.saved(loss).kept_bytes


def _kept(
    rows: int,
    width: int,
    readers: int,
    together: bool,
    recipe: str,
    *,
    gelu_bytes: int = 2,
    weights: bool = True,
    shared: bool = True,
    cast_once: bool = False,
    besides: bool = False,
) -> int:
    """Return the answer, or a mistaken one."""
    rows_numbers, weight = rows * width, width * width
    layers = 1 if together else readers
    of_gelu = gelu_bytes * rows_numbers
    casts = weight * (readers + 1) if weights else 0
    if recipe == "8 bits, kept":
        read = 1 if cast_once else layers
        original = 2 * 2 * rows_numbers if besides else 0
        return original + rows_numbers * (read + 1) + casts + 8 * (layers + 1) + of_gelu
    inputs = 2 * rows_numbers * ((1 if shared else layers) + 1)
    if recipe == "16 bits":
        return inputs + 2 * casts + of_gelu
    return inputs + of_gelu


def _hidden_kept(random: Random) -> list[Config]:
    return [
        {
            "rows": 16 * random.randrange(8, 200),
            "width": 16 * random.randrange(8, 60),
            "readers": random.randrange(2, 5),
            "together": together,
            "recipe": recipe,
        }
        for recipe in RECIPES
        for together in (False, True)
    ]


KEPT = Predict(
    name="kept_bytes",
    points=4,
    minutes=25,
    visible=(
        {"rows": 2048, "width": 512, "readers": 3, "together": False, "recipe": "16 bits"},
        {"rows": 2048, "width": 512, "readers": 3, "together": False, "recipe": "8 bits, kept"},
        {"rows": 2048, "width": 512, "readers": 3, "together": True, "recipe": "8 bits, kept"},
        {
            "rows": 256,
            "width": 512,
            "readers": 2,
            "together": False,
            "recipe": "8 bits, cast again",
        },
    ),
    hidden=_hidden_kept,
    measure=_measure_kept,
    gpu=H100,
    mistakes=of(
        _kept,
        (
            "You let the layers share one cast of their input. Each makes and saves its own; only "
            "a single wide layer has one.",
            {"cast_once": True},
        ),
        (
            "You counted the 16-bit input once per layer. It is one tensor, however many layers "
            "save it.",
            {"shared": False},
        ),
        (
            "You halved what GELU saves. GELU is not a GEMM: it saves its input in 16 bits.",
            {"gelu_bytes": 1},
        ),
        ("You left out GELU: it saves its input.", {"gelu_bytes": 0}),
        ("You left out the casts of the weights.", {"weights": False}),
        (
            "You kept the 16-bit inputs beside their casts. Nothing else reads them in the "
            "backward pass.",
            {"besides": True},
        ),
    ),
)

# which_scale: told from what a cast has lost

CAUSES = ("right", "none", "old", "one large number")


def _observe_scale(cause: str, seed: int, size: float) -> Observation:
    """Cast random numbers to E4M3 with a scale, and count what has become of them.

    Args:
        cause: one of `CAUSES`.
        seed: of the numbers.
        size: about how large they are; for an old scale, how many times as large as they were.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(64, 256, generator=generator)
    if cause == "one large number":
        values[seed % 64, seed % 256] = 1e6
    if cause != "old":
        values = values * size
    largest = torch.finfo(torch.float8_e4m3fn).max
    amax = float(values.abs().max())
    scale = {"none": 1.0, "old": amax / size / largest}.get(cause, amax / largest)
    cast = (values.to("cuda") / scale).clamp(-largest, largest).to(torch.float8_e4m3fn).float()
    evidence = {
        "numbers": cast.numel(),
        "amax": amax,
        "scale": scale,
        "zeros": int((cast == 0).sum()),
        "at_largest": int((cast.abs() == largest).sum()),
    }
    return Observation(evidence, cause)


def _scale(
    numbers: int,
    amax: float,
    scale: float,
    zeros: int,
    at_largest: int,
    *,
    too_small_only: bool = False,
    by_zeros: bool = False,
) -> str:
    """Return the answer, or a mistaken one."""
    many = zeros > numbers / 4
    if by_zeros and many:
        return "one large number"
    if scale == 1:
        return "none"
    reach = 448 * scale
    if reach < 0.99 * amax or (reach > 1.01 * amax and not too_small_only):
        return "old"
    return "one large number" if many else "right"


def _hidden_scales(random: Random) -> list[Config]:
    sizes = {"right": (1e-6, 1e-3, 50.0), "none": (1e-6, 0.3, 1e4), "old": (0.1, 3.0, 20.0)}
    return [
        {"cause": cause, "seed": random.randrange(1000), "size": size}
        for cause in CAUSES
        for size in sizes.get(cause, (1e-4, 1.0))
    ]


SCALE = Diagnose(
    name="which_scale",
    points=3,
    minutes=15,
    visible=(
        {"cause": "right", "seed": 1, "size": 0.001},
        {"cause": "none", "seed": 2, "size": 1e-5},
        {"cause": "none", "seed": 3, "size": 1.0},
        {"cause": "old", "seed": 4, "size": 4.0},
        {"cause": "old", "seed": 5, "size": 0.25},
        {"cause": "one large number", "seed": 6, "size": 1.0},
    ),
    hidden=_hidden_scales,
    observe=_observe_scale,
    gpu=H100.but(values=True),
    mistakes=of(
        _scale,
        (
            "You accepted every scale without overflow. An old scale can also be too large, once "
            "the numbers have become smaller: then they underflow.",
            {"too_small_only": True},
        ),
        (
            "You looked only at the zeros. Without a scale small numbers underflow, too: check "
            "the scale first.",
            {"by_zeros": True},
        ),
    ),
)


# train_step: saved tensors in a byte

WIDTH, ROWS = 256, 2048
ACTIVATION_BYTES = 4 * WIDTH * ROWS
CLOSE = 0.1
"""Of the gradients' length, which E4M3 with a scale for each row comes within."""

ROOM_BYTES = 4 * ACTIVATION_BYTES
"""For other temporaries than ours. Two bytes a number take 8 more, with 16 layers."""

HOST_BYTES = 6 * ACTIVATION_BYTES
"""May go to the host: the input, weights and gradients, to be looked at. With 16 layers, 32
activations are saved."""


def _model_and_rows(run: Run, layers: int) -> tuple[Any, ...]:
    torch.manual_seed(layers)
    modules: list[torch.nn.Module] = []
    for _ in range(layers):
        modules += [torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.GELU()]
    model = torch.nn.Sequential(*modules).to("cuda")
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6**0.5)  # so that outputs neither vanish nor explode over many layers
    x = torch.randn(ROWS, WIDTH).to("cuda")
    x *= torch.logspace(-7, 0, ROWS)[:, None].to("cuda")  # rows of very different size
    return model, x


def _loss(y: torch.Tensor) -> torch.Tensor:
    """As the notebook has it: every row counts as much, whatever its size."""
    return torch.nn.functional.normalize(y, dim=1).square().square().sum()


def _step(model: torch.nn.Module, x: torch.Tensor) -> None:
    _loss(model(x)).backward()


def _step_in_bytes(model: torch.nn.Module, x: torch.Tensor) -> None:
    """Solve the task."""
    largest = torch.finfo(torch.float8_e4m3fn).max

    def pack(tensor: torch.Tensor) -> Any:
        if tensor.shape != x.shape:
            return tensor
        scale = tensor.abs().amax(dim=1, keepdim=True) / largest
        return (tensor / scale).to(torch.float8_e4m3fn), scale

    def unpack(packed: Any) -> torch.Tensor:
        if isinstance(packed, tuple):
            packed = packed[0].float() * packed[1]
        tensor: torch.Tensor = packed
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = _loss(model(x))
    loss.backward()


LEAST_IN_BYTES = 0.8
"""Of the numbers that are saved, so many are read from tensors of one byte a number."""


@dataclass
class Counts:
    """Numbers that operators of a step were given, by what these are."""

    gelu: int = 0
    in_bytes: int = 0

    def add(self, func: Any, args: Any, kwargs: Any) -> None:
        """Count an operator."""
        count = elements(args[0]) if args else 0
        name = base_name(func)
        self.gelu += count * (name == "gelu")
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        self.in_bytes += sum(
            each.numel()
            for each in tensors
            if each.dtype.itemsize == 1 and each.dtype is not torch.bool
        )

    def require_bytes(self, own: Counts) -> None:
        """Require that GELU is computed once, and that all that is saved waits in 8 bits.

        Of each block autograd saves two activations: what GELU is given, and what it gives. A
        program that saves one of them computes the other again, however it writes GELU.

        Raises:
            NotFixed: it is not so.
        """
        if self.gelu > 1.25 * own.gelu:
            raise NotFixed(
                "It fits, but computes GELU again in the backward pass. Do not recompute: "
                "everything saved has to stay, in 8 bits."
            )
        fraction = self.in_bytes / (2 * own.gelu)
        if fraction < LEAST_IN_BYTES:
            raise NotFixed(
                f"It fits, but reads {fraction:.0%} of what the step saves from tensors of 8 "
                "bits. Each block saves two activations: the input of GELU and its output. Which "
                "of them do you save in more bits, or recompute?"
            )


@dataclass(frozen=True)
class StepResult:
    """What came out of a step, and what was counted meanwhile."""

    gradients: Gradients
    counts: Counts


def _step_counting(run: Run) -> Counts:
    counts = Counts()
    run.work.watchers.append(counts.add)
    run.program(*run.inputs)
    return counts


def _collected(run: Run, counts: Counts) -> StepResult:
    return StepResult(collect_gradients(run, None), counts)


def _held(run: Run) -> str:
    return (
        f"{run.ran_out}, with {format_bytes(run.peak_bytes)} allocated: "
        f"{run.peak_bytes / ACTIVATION_BYTES:.1f} times the input. How many bytes does each "
        "number take that is saved for the backward pass?"
    )


def _close_gradients(run: Run, expected: StepResult) -> None:
    run.require_no_more_flops(
        "it recomputes layers. Here everything saved has to stay, in fewer bits."
    )
    run.require_stayed(HOST_BYTES, "Here everything saved has to stay on the GPU, in fewer bits.")
    run.results.counts.require_bytes(expected.counts)
    found = run.results.gradients
    if missing := [name for name in expected.gradients if name not in found]:
        raise NotFixed(f"It fits, but {missing[0]} has no gradient.")
    off = _off(run)
    if not off <= CLOSE:  # nan is not close either
        how = "nan or infinite" if math.isnan(off) else f"{off:.0%} off"
        raise NotFixed(
            f"It fits, but the gradients are {how}; the tolerance is {CLOSE:.0%}. Which rows "
            "share a scale, how fine are the format's steps, and is anything cast unnecessarily?"
        )


def _off(run: Run) -> float:
    """How far off the gradients are, at worst, relative to their length."""
    return max(
        float((run.results.gradients[name] - wanted).norm() / wanted.norm())
        for name, wanted in run.expected.gradients.items()
    )


STEP = Fix(
    name="train_step",
    points=5,
    minutes=30,
    visible=({"layers": 16},),
    hidden=lambda random: [{"layers": random.randrange(17, 20)}],
    trial=Repair(
        gpu=GPU("T4", values=True),
        build=_model_and_rows,
        call=_step_counting,
        reference=_step,
        fits=_step_in_bytes,
        limit=room(ROOM_BYTES),
        ran_out=_held,
        collect=_collected,
        compare=_close_gradients,
        report=lambda run: f"{_off(run):.2%} off, {run.peak_report}",
    ),
)

EXERCISE = Exercise(
    name="28_eight_bits_and_fewer",
    module=__name__,
    tasks=(COPY, KEPT, SCALE, STEP),
    core=("kept_bytes", "which_scale"),
)
