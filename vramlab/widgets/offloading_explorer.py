"""Explore which parts of training the host can keep, and what their trips cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from vramlab import VirtualGPU, catalogue
from vramlab.experiments.offloading import StepReading, read_step
from vramlab.formulas.durations import compute_seconds, copy_seconds
from vramlab.measure import Table
from vramlab.plots import draw_durations
from vramlab.plots.durations import short_time
from vramlab.units import GIB, format_mib, short_size
from vramlab.widgets.explorer import Explorer, View, checkbox, choice, power_slider, slider
from vramlab.widgets.gpus import roomy, with_tensor_cores


def offloading_explorer(
    width: int = 1024,
    layers: int = 6,
    batch: int = 8,
    length: int = 512,
    gpu: str = "T4",
    offloaded: Sequence[str] = ("optimizer",),
) -> Explorer:
    """Show a training step of a transformer in float16, with parts of it on the host.

    Every change runs two steps on a fresh virtual GPU with memory to spare; whatever is attached in
    the notebook is left alone. Times are the least that the catalogue's figures allow.

    Args:
        width: of the layers.
        layers: how many.
        batch: sequences in a step.
        length: tokens of a sequence.
        gpu: a GPU of the catalogue with tensor cores for float16.
        offloaded: which of "activations", "optimizer" and "parameters".
    """
    controls = {
        "gpu": choice("GPU", with_tensor_cores(), gpu),
        "width": power_slider("Width", width, 256, 8192),
        "layers": slider("Layers", layers, 1, 16),
        "batch": power_slider("Sequences", batch, 1, 64),
        "length": power_slider("Tokens of each", length, 64, 4096),
        "activations": checkbox("Saved activations on the host", "activations" in offloaded),
        "optimizer": checkbox("Optimizer on the host", "optimizer" in offloaded),
        "parameters": checkbox(
            "Parameters (and the optimizer) on the host", "parameters" in offloaded
        ),
    }
    return Explorer("What the host keeps, and what its trips cost", controls, show_offloading)


def show_offloading(
    gpu: str,
    width: int,
    layers: int,
    batch: int,
    length: int,
    *,
    activations: bool = False,
    optimizer: bool = False,
    parameters: bool = False,
) -> View:
    """Measure a step with these parts on the host, and hold its trips against its arithmetic."""
    model = catalogue.find(gpu)
    reading = _read(gpu, width, layers, batch, length, activations, optimizer, parameters)
    moved = reading.transfers
    durations = {
        "arithmetic": compute_seconds(reading.flops, model, "float16"),
        "to the host": copy_seconds(moved.to_host_bytes, model),
        "to the GPU": copy_seconds(moved.to_gpu_bytes, model),
    }
    longest = max(durations, key=lambda name: durations[name])
    fits = "fits" if reading.peak_bytes <= model.total_bytes else "does not fit"
    if not moved.copies:
        trips = "Nothing travels."
    elif longest == "arithmetic":
        trips = "Its trips can hide behind its arithmetic."
    else:
        trips = (
            f"It waits for its way {longest}: {short_time(durations[longest])} at least, "
            f"with {short_time(durations['arithmetic'])} of arithmetic."
        )
    summary = (
        f"The step takes {short_size(reading.peak_bytes)} at its peak and {fits} a {gpu} of "
        f"{model.total_bytes / GIB:.2f} GiB. {trips}"
    )
    picture = draw_durations({"one step": durations}, title=f"Least times of a step on a {gpu}")
    return View(summary, picture, (_table(reading, batch * length),))


@cache
def _read(gpu: str, *settings: Any) -> StepReading:
    width, layers, batch, length, activations, optimizer, parameters = settings
    with VirtualGPU(roomy(gpu)):
        return read_step(
            width,
            layers,
            batch,
            length,
            activations=activations,
            optimizer=optimizer,
            parameters=parameters,
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
        (f"{reading.flops / 1e12:.3g} TFLOP in matrix products, by torch's FlopCounterMode",),
    )
