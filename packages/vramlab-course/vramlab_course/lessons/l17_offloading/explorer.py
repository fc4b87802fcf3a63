"""Explore which parts of training can be offloaded to the host, and what the copies cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated

from vramlab import VirtualGPU, catalogue
from vramlab.cuda_rules.durations import compute_seconds, copy_seconds
from vramlab.measure import Table
from vramlab.units import GIB, format_mib, short_size
from vramlab_course.lessons.l17_offloading.experiment import StepReading, read_step
from vramlab_course.plots import draw_durations
from vramlab_course.plots.durations import short_time
from vramlab_course.widgets.controls import checkboxes, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import TensorCoreGPU, roomy

PARTS = {
    "activations": "Saved activations on the host",
    "optimizer": "Optimizer on the host",
    "parameters": "Parameters (and the optimizer) on the host",
}
"""What the host can keep, and what the boxes say."""


@explorer("What to offload, and what the copies cost", first=("gpu",))
def offloading_explorer(
    width: Annotated[int, powers("Width", 256, 8192)] = 1024,
    layers: Annotated[int, slider("Layers", 1, 16)] = 6,
    batch: Annotated[int, powers("Sequences", 1, 64), "sequences in a step"] = 8,
    length: Annotated[int, powers("Tokens of each", 64, 4096), "tokens of a sequence"] = 512,
    gpu: TensorCoreGPU = "T4",
    offloaded: Annotated[Sequence[str], checkboxes(PARTS), "what the host keeps"] = ("optimizer",),
) -> View:
    """Show a training step of a transformer in float16, with parts of it on the host.

    It is measured with memory to spare. Times are lower bounds, at the catalogue's peak rates.
    """
    model = catalogue.find(gpu)
    reading = _read(gpu, width, layers, batch, length, frozenset(offloaded))
    moved = reading.transfers
    durations = {
        "arithmetic": compute_seconds(reading.flops, model, "float16"),
        "to the host": copy_seconds(moved.to_host_bytes, model),
        "to the GPU": copy_seconds(moved.to_gpu_bytes, model),
    }
    longest = max(durations, key=lambda name: durations[name])
    fits = "fits" if reading.peak_bytes <= model.total_bytes else "does not fit"
    if not moved.copies:
        trips = "Nothing is copied."
    elif longest == "arithmetic":
        trips = "The copies can be hidden behind the arithmetic."
    else:
        trips = (
            f"It waits for the copies {longest}: {short_time(durations[longest])} at least, "
            f"with {short_time(durations['arithmetic'])} of arithmetic."
        )
    summary = (
        f"The step takes {short_size(reading.peak_bytes)} at its peak and {fits} one {gpu} of "
        f"{model.total_bytes / GIB:.2f} GiB. {trips}"
    )
    picture = draw_durations(
        {"one step": durations}, title=f"Lower bounds of a step on one {gpu}, at peak rates"
    )
    return View(summary, picture, (_table(reading, batch * length),))


@cache
def _read(
    gpu: str, width: int, layers: int, batch: int, length: int, offloaded: frozenset[str]
) -> StepReading:
    with VirtualGPU(roomy(gpu)):
        return read_step(
            width, layers, batch, length, **{part: part in offloaded for part in PARTS}
        )


def _table(reading: StepReading, tokens: int) -> Table:
    moved = reading.transfers

    def per_parameter(size_bytes: int) -> str:
        return f"{size_bytes / reading.parameters:.2f}"

    rows = (
        ("peak on the GPU", format_mib(reading.peak_bytes), per_parameter(reading.peak_bytes)),
        ("to the host", format_mib(moved.to_host_bytes), per_parameter(moved.to_host_bytes)),
        ("to the GPU", format_mib(moved.to_gpu_bytes), per_parameter(moved.to_gpu_bytes)),
        (
            "of both, waited for",
            format_mib(moved.waited_for_bytes),
            per_parameter(moved.waited_for_bytes),
        ),
    )
    return Table(
        f"{reading.parameters:,} parameters, {tokens:,} tokens in a step",
        ("bytes of a step", "size", "bytes per parameter"),
        rows,
        (f"{reading.flops / 1e12:.3g} TFLOP in GEMMs, by torch's FlopCounterMode",),
    )
