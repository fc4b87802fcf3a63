"""Explore how batch, width, depth and optimizer shape a training step's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from vramlab import VirtualGPU, catalogue
from vramlab.measure import Timeline, breakdown, record_timeline
from vramlab.plots import draw_timeline
from vramlab.units import short_size
from vramlab.widgets.explorer import Explorer, View, choice, power_slider, slider

OPTIMIZERS: dict[str, Callable[[Iterator[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters),
    "AdamW, one parameter at a time": lambda parameters: torch.optim.AdamW(
        parameters, foreach=False
    ),
    "AdamW, fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
}
"""What the explorer offers; Adam without more words is torch's default, foreach."""


def training_step_explorer(
    batch: int = 4096,
    width: int = 1024,
    depth: int = 4,
    optimizer: str = "Adam",
    steps: int = 2,
    gpu: str = "T4",
) -> Explorer:
    """Show the memory of training steps of a small network over time.

    Every change runs on a fresh virtual GPU; whatever is attached in the notebook is left alone.

    Args:
        batch: samples in a batch.
        width: neurons in a layer.
        depth: linear layers, with a ReLU after each but the last.
        optimizer: one of `OPTIMIZERS`.
        steps: how many training steps.
        gpu: a GPU of the catalogue.
    """
    controls = {
        "batch": power_slider("Batch", batch, 1, 65536),
        "width": power_slider("Width", width, 16, 8192),
        "depth": slider("Layers", depth, 1, 12),
        "optimizer": choice("Optimizer", tuple(OPTIMIZERS), optimizer),
        "steps": slider("Steps", steps, 1, 4),
        "gpu": choice("GPU", catalogue.names(), gpu),
    }
    return Explorer("Memory of a training step", controls, show_training)


def show_training(batch: int, width: int, depth: int, optimizer: str, steps: int, gpu: str) -> View:
    """Train on a fresh virtual GPU, and show its memory over time.

    An out-of-memory error is shown as part of the view: what led to it.
    """
    with VirtualGPU(gpu):
        capacity_bytes = torch.cuda.get_device_properties(0).total_memory
        timeline, failure = record_training(batch, width, depth, optimizer, steps)
    at_peak = breakdown(timeline)
    summary = (
        f"Peak: {short_size(timeline.peak_bytes)} of {short_size(capacity_bytes)}, in stage "
        f"'{at_peak.moment.stage}'. {failure}"
    ).rstrip()
    title = f"{depth} layers of {width}, batch {batch}, {optimizer}"
    return View(summary, draw_timeline(timeline, title=title), (at_peak.table(),))


def record_training(
    batch: int, width: int, depth: int, optimizer: str, steps: int
) -> tuple[Timeline, str]:
    """Train a stack of linear layers on the current GPU.

    Returns:
        The timeline, and the out-of-memory message that ended the training, or "".
    """
    failure = ""
    with record_timeline() as recording:
        try:
            recording.stage("model")
            model = _network(width, depth).to("cuda")
            optimize = OPTIMIZERS[optimizer](model.parameters())
            x = torch.zeros(batch, width, device="cuda")
            recording.watch(model=model, optimizer=optimize, inputs=x)
            for _ in range(steps):
                recording.stage("forward")
                loss = model(x).square().mean()
                recording.stage("backward")
                loss.backward()
                recording.stage("optimizer step")
                optimize.step()
                recording.stage("zero_grad")
                optimize.zero_grad()
                del loss
        except torch.OutOfMemoryError as error:
            failure = str(error)
    return recording.timeline, failure


def _network(width: int, depth: int) -> torch.nn.Sequential:
    layers: list[Any] = []
    for _ in range(depth - 1):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, width))
