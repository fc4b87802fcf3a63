"""Explore what layers take by existing, and what training adds for each parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.measure import Category, Table, breakdown, record_timeline
from vramlab.units import format_mib, short_size, signed_bytes
from vramlab_course.formulas import parameters as count
from vramlab_course.plots import draw_breakdown
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.training_step_explorer import OPTIMIZERS

GPU = "H200"
"""The GPU of the catalogue with much memory, so that most settings fit."""

VOCABULARY = 32768
"""Rows of the Embedding."""

LAYERS: dict[str, tuple[Callable[[int], nn.Module], Callable[[int], int]]] = {
    "Linear": (lambda width: nn.Linear(width, width), lambda width: count.linear(width, width)),
    "Conv2d, 3 x 3": (
        lambda width: nn.Conv2d(width, width, 3),
        lambda width: count.conv2d(width, width, 3),
    ),
    "BatchNorm2d": (nn.BatchNorm2d, count.batch_norm),
    f"Embedding of {VOCABULARY} words": (
        lambda width: nn.Embedding(VOCABULARY, width),
        lambda width: count.embedding(VOCABULARY, width),
    ),
    "MultiheadAttention": (
        lambda width: nn.MultiheadAttention(width, 8),
        count.multihead_attention,
    ),
    "ReLU": (lambda width: nn.ReLU(), lambda width: 0),
}
"""What the explorer offers: how to make a layer of a width, and how many parameters it has."""

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@explorer("What parameters take", height_px=420)
def parameters_explorer(
    layer: Annotated[str, choice("Layer", LAYERS)] = "Linear",
    width: Annotated[int, powers("Width", 16, 8192), "features, channels or words' vectors"] = 1024,
    layers: Annotated[int, slider("Layers", 1, 96)] = 12,
    dtype: Annotated[str, choice("dtype", DTYPES)] = "float32",
    optimizer: Annotated[str, choice("Optimizer", OPTIMIZERS)] = "Adam",
) -> View:
    """Show parameters, gradients and optimizer states of a stack of equal layers.

    They are there after one optimizer step.
    """
    make, parameters_of = LAYERS[layer]
    with VirtualGPU(GPU), record_timeline() as recording:
        model = nn.Sequential(*(make(width) for _ in range(layers))).to("cuda", DTYPES[dtype])
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimize = _optimizer(optimizer, model)
        recording.watch(model=model, optimizer=optimize)
        if optimize is not None:
            optimize.step()
        recording.watch(model=model, optimizer=optimize)
    timeline = recording.timeline
    at_end = breakdown(timeline, timeline.event_count)
    elements = layers * parameters_of(width)
    held_bytes = at_end.category_bytes
    item_bytes = DTYPES[dtype].itemsize
    measured_bytes = held_bytes.get(Category.PARAMETERS, 0)
    total_bytes = sum(held_bytes.values())
    per_parameter = f", {total_bytes / elements:.2f} B for each" if elements else ""
    return View(
        f"{elements:,} parameters; {short_size(total_bytes)} before any activation{per_parameter}.",
        draw_breakdown(at_end, title=f"{layers} x {layer}, width {width}, {dtype}, {optimizer}"),
        (
            Table(
                "Parameters: counted, times the size of the dtype; and measured",
                ("", "predicted", "measured", "difference"),
                (
                    (
                        "parameters",
                        format_mib(elements * item_bytes),
                        format_mib(measured_bytes),
                        signed_bytes(measured_bytes - elements * item_bytes),
                    ),
                ),
            ),
        ),
    )


def _optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer | None:
    """Make an optimizer; None where there is nothing to optimize."""
    parameters = list(model.parameters())
    return OPTIMIZERS[name](parameters) if parameters else None
