"""Explore what each rank keeps at each stage of ZeRO, and from how many GPUs on it fits."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal, get_args

from vramlab import VirtualGPU, catalogue
from vramlab.catalogue import GPUModel
from vramlab.measure import Category, Table
from vramlab.units import GIB, format_mib, short_size
from vramlab_course.lessons.l20_zero import formulas as zero
from vramlab_course.lessons.l20_zero.experiment import RankReading, read_rank
from vramlab_course.lessons.l20_zero.formulas import (
    GATHERED,
    GRADIENTS,
    PARAMETERS,
    STAGES,
    STATES,
    Groups,
    Stage,
)
from vramlab_course.plots import draw_stacks
from vramlab_course.plots.style import CATEGORY_LOOKS, GATHERED_LOOK, OUTSIDE_LOOK, Look
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU, roomy

WIDTHS = (1000, 1024, 2048, 4096, 5000, 8192, 10000, 12500, 16384)
MOST_RANKS = 16_384
MEASURED_AT_MOST = 4096
"""Layers times ranks: PyTorch makes a list with a piece for each rank, layer by layer."""

Part = Literal["first", "last"]

_CONTEXT = "CUDA context"
_LOOKS: dict[str, Look] = {
    PARAMETERS: CATEGORY_LOOKS[Category.PARAMETERS],
    GRADIENTS: CATEGORY_LOOKS[Category.GRADIENTS],
    STATES: CATEGORY_LOOKS[Category.OPTIMIZER_STATES],
    GATHERED: GATHERED_LOOK,
    _CONTEXT: OUTSIDE_LOOK,
}


@explorer("What does each GPU hold?")
def zero_explorer(
    layers: Annotated[int, slider("Layers", 1, 96)] = 48,
    width: Annotated[int, choice("Width", WIDTHS), "of each layer, in and out"] = 12500,
    ranks: Annotated[int, powers("GPUs", 1, MOST_RANKS)] = 64,
    rank: Annotated[Part, choice("Rank", get_args(Part)), "the one that is shown"] = "first",
    precision: Annotated[str, choice("Precision", ("float32", "mixed"))] = "mixed",
    gpu: AnyGPU = "A100-40GB",
    measured: Annotated[str, choice("Measure", ("nothing", *STAGES.values()))] = "nothing",
) -> View:
    """Show what a rank holds of a chain of Linear layers without biases, at each stage of ZeRO.

    They are trained with Adam. Where rows do not divide, the last ranks have less. The closed form
    is immediate. A stage that you choose to measure runs as a single simulated rank, with memory
    to spare.
    """
    model = catalogue.find(gpu)
    groups: Groups = [[(width, width)]] * layers
    number = 0 if rank == "first" else ranks - 1
    is_mixed = precision == "mixed"
    bars = {
        name: {
            **zero.held_bytes(stage, groups, ranks, number, mixed=is_mixed),
            _CONTEXT: model.context_bytes,
        }
        for stage, name in STAGES.items()
    }
    picture = draw_stacks(
        bars,
        looks=_LOOKS,
        title=f"Rank {number:,} of {ranks:,} when forward has ended, without activations",
        capacity_bytes=model.total_bytes,
    )
    fitting = [name for name, parts in bars.items() if sum(parts.values()) <= model.total_bytes]
    summary = (
        f"{layers * width**2:,} parameters with Adam, {precision}, on {ranks:,} GPUs. "
        + (f"{fitting[0]} is the first that fits" if fitting else "No stage fits")
        + f": {gpu} has {model.total_bytes / GIB:.2f} GiB."
        + _measured(measured, layers, width, ranks, number, is_mixed)
    )
    return View(summary, picture, (_table(bars, groups, ranks, is_mixed, model),))


def _table(
    bars: dict[str, dict[str, int]], groups: Groups, ranks: int, is_mixed: bool, model: GPUModel
) -> Table:
    rows = []
    for stage, name in STAGES.items():
        held_bytes = sum(bars[name].values()) - bars[name][_CONTEXT]
        # DDP reduces gradients in their own dtype; so does FSDP2 unless told otherwise.
        sent_bytes = zero.sent_bytes(stage, groups, ranks, "bfloat16" if is_mixed else "float32")
        rows.append(
            (
                name,
                format_mib(held_bytes),
                format_mib(sent_bytes),
                _from(stage, groups, is_mixed, model),
            )
        )
    return Table(
        "By closed form",
        ("stage", "held", "sent in a step, around a ring", f"fits {model.name}"),
        tuple(rows),
        (
            "While layers run, ZeRO-2 briefly holds two more of them and ZeRO-3 four. "
            "Activations come on top, at every stage.",
        ),
    )


def _from(stage: Stage, groups: Groups, is_mixed: bool, model: GPUModel) -> str:
    """Return from how many GPUs on the first rank fits: powers of two are tried."""
    room_bytes = model.total_bytes - model.context_bytes
    ranks = 1
    while ranks <= MOST_RANKS:
        if sum(zero.held_bytes(stage, groups, ranks, mixed=is_mixed).values()) <= room_bytes:
            return f"from {ranks:,} on" if ranks > 1 else "always"
        ranks *= 2
    return "never"


def _measured(name: str, layers: int, width: int, ranks: int, rank: int, is_mixed: bool) -> str:
    if name == "nothing":
        return ""
    if layers * ranks > MEASURED_AT_MOST:
        raise ValueError(
            f"measuring {layers} layers on {ranks:,} ranks takes minutes: choose at most "
            f"{MEASURED_AT_MOST:,} layers times ranks, or measure nothing"
        )
    stage = next(stage for stage, known in STAGES.items() if known == name)
    reading = _read(stage, layers, width, ranks, rank, is_mixed)
    item = "float16" if is_mixed else "float32"
    activations_bytes = zero.chain_activations_bytes(layers, width, dtype=item)
    held_bytes = reading.kept_bytes + reading.after_forward_bytes - activations_bytes
    predicted = zero.held_bytes(stage, reading.groups, ranks, rank, mixed=is_mixed)
    return (
        f" Measured at {name}: {short_size(held_bytes)}, "
        f"{held_bytes - sum(predicted.values()):+,} B against the closed form; at the peak of "
        f"forward and backward {short_size(reading.peak_bytes)}."
    )


@cache
def _read(
    stage: Stage, layers: int, width: int, ranks: int, rank: int, is_mixed: bool
) -> RankReading:
    with VirtualGPU(roomy("B200")):
        return read_rank(
            stage,
            ranks,
            rank,
            layers=layers,
            width=width,
            precision="mixed" if is_mixed else "float32",
        )
