"""Explore how batch, width, depth and optimizer shape a training step's memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import torch

from vramlab import VirtualGPU
from vramlab.measure import Timeline, breakdown, record_timeline
from vramlab.units import short_size
from vramlab_course.plots import draw_timeline
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "SGD with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "Adam": torch.optim.Adam,
    "AdamW, one parameter at a time": partial(torch.optim.AdamW, foreach=False),
    "AdamW, fused": partial(torch.optim.AdamW, fused=True),
}
"""What the explorer offers; Adam without more words is torch's default, foreach."""


@explorer("Memory of a training step")
def training_step_explorer(
    batch: Annotated[int, powers("Batch", 1, 65536), "samples in a batch"] = 4096,
    width: Annotated[int, powers("Width", 16, 8192), "neurons in a layer"] = 1024,
    depth: Annotated[int, slider("Layers", 1, 12), "linear layers, with ReLUs between"] = 4,
    optimizer: Annotated[str, choice("Optimizer", OPTIMIZERS)] = "Adam",
    steps: Annotated[int, slider("Steps", 1, 4)] = 2,
    gpu: AnyGPU = "T4",
) -> View:
    """Show the memory of training steps of a small network over time.

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
