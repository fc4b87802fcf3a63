"""Explore gradient accumulation: the peak it leads to, and the gradient that the optimizer gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from vramlab import VirtualGPU
from vramlab.measure import Table, Timeline, record_timeline
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l13_gradient_accumulation.document_loops import (
    gradient_of,
    small_data,
    small_model,
)
from vramlab_course.plots import draw_timeline
from vramlab_course.programs.documents import linear_net
from vramlab_course.widgets.controls import choice, powers
from vramlab_course.widgets.explorer import View, explorer

_LAYERS = 3

LOSSES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "mean / steps": lambda errors, steps: errors.mean() / steps,
    "mean": lambda errors, steps: errors.mean(),
    "sum": lambda errors, steps: errors.sum(),
    "document 003's": lambda errors, steps: errors.mean() * (1 + 1 / steps),
}
"""What `backward` is called on, of a micro-batch's squared errors.

`loss += loss / accumulation_steps` in document 003 is loss * (1 + 1 / accumulation_steps).
"""


@dataclass(frozen=True)
class Gradient:
    """The gradient that accumulation leads to, against that of the whole batch."""

    times: float
    """How many times the whole batch's gradient it is, in length."""
    error: float
    """What is not in the same direction, as a fraction of its length."""


@explorer("A batch in pieces: its peak and its gradient")
def accumulation_explorer(
    rows: Annotated[int, powers("Rows of a micro-batch", 64, 16384)] = 2048,
    steps: Annotated[int, powers("Micro-batches", 1, 16), "micro-batches of a step"] = 4,
    width: Annotated[int, powers("Width", 256, 4096), "of the model, three Linear layers"] = 1024,
    loss: Annotated[str, choice("backward() on", LOSSES)] = "mean / steps",
    gpu: Annotated[str, "a GPU of the catalogue"] = "A100-40GB",
) -> View:
    """Show the memory of one optimizer step over a batch that is cut into micro-batches."""
    timeline = measure_step(rows, steps, width, loss, gpu)
    whole_bytes = measure_step(rows * steps, 1, width, loss, gpu).peak_bytes
    gradient = measure_gradient(steps, loss)
    saved_bytes = whole_bytes - timeline.peak_bytes
    saves = (
        f"{short_size(saved_bytes)} less than"
        if saved_bytes > 0
        else f"{short_size(-saved_bytes)} more than"
        if saved_bytes
        else "the same as"
    )
    summary = (
        f"{steps} x {rows} rows peak at {short_size(timeline.peak_bytes)}, {saves} "
        f"{steps * rows} rows at once. The gradient is {gradient.times:.4g} times that of the "
        "whole batch."
    )
    table = Table(
        "The same batch, in pieces and whole",
        ("", "in pieces", "whole"),
        (
            ("peak", format_mib(timeline.peak_bytes), format_mib(whole_bytes)),
            ("length of the gradient", f"{gradient.times:.9g}", "1"),
            ("not in its direction", f"{gradient.error:.1e}", "0"),
        ),
        ("Gradients are computed on a small model, with real values, in float64.",),
    )
    title = f"{steps} micro-batches of {rows} rows, {_LAYERS} layers of {width}"
    return View(summary, draw_timeline(timeline, title=title), (table,))


def measure_step(rows: int, steps: int, width: int, loss: str, gpu: str) -> Timeline:
    """Run the forward and backward passes of one optimizer step on a fresh virtual GPU."""
    with VirtualGPU(gpu), record_timeline() as recording:
        recording.stage("model")
        model = linear_net((width,) * (_LAYERS + 1)).to("cuda")
        recording.watch(model=model)
        for number in range(1, steps + 1):
            recording.stage(f"{number}")
            _add_gradients(model, torch.zeros(rows, width), LOSSES[loss], steps)
        recording.stage("step")
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        model.zero_grad()
        recording.stage(None)
    return recording.timeline


def _add_gradients(
    model: nn.Module, rows: Tensor, loss: Callable[[Tensor, int], Tensor], steps: int
) -> None:
    outputs = model(rows.to("cuda"))
    loss(outputs.square(), steps).backward()


def measure_gradient(steps: int, loss: str) -> Gradient:
    """Compare gradients of micro-batches, added up, with the whole batch's, on real values."""
    with VirtualGPU("T4", values=True):
        pieces, model = small_data(steps), small_model()
        for inputs, targets in pieces:
            LOSSES[loss]((model(inputs) - targets).square(), steps).backward()
        found = gradient_of(model).cpu()
        model.zero_grad()
        inputs, targets = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        whole = (model(inputs) - targets).square()
        (whole.sum() if loss == "sum" else whole.mean()).backward()
        right = gradient_of(model).cpu()
    times = float(found @ right / (right @ right))
    error = float((found - times * right).norm() / found.norm())
    return Gradient(times, error)
