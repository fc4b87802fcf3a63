"""Explore what an optimizer keeps, and what its step() takes while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch

from vramlab import VirtualGPU
from vramlab.measure import StageMeasurement, Stages, Table, Timeline, record_timeline
from vramlab.units import format_mib, short_size
from vramlab_course.plots import draw_timeline
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import UnlistedGPU

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "SGD with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
}
IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
    "fused": {"fused": True},
}
"""How step() works. foreach is torch's default for parameters on a GPU."""


@dataclass(frozen=True)
class MeasuredOptimizer:
    """What was measured of an optimizer on one model."""

    parameter_count: int
    """Elements of all parameters."""
    parameters: StageMeasurement
    gradients: StageMeasurement
    first_step: StageMeasurement
    second_step: StageMeasurement

    @property
    def step_extra_bytes(self) -> int:
        """What a step allocates and frees again; the states exist already."""
        step = self.second_step
        return step.peak_allocated_bytes - step.allocated_before_bytes


@explorer("What an optimizer keeps, and what its step takes")
def optimizer_explorer(
    optimizer: Annotated[str, choice("Optimizer", OPTIMIZERS)] = "AdamW",
    implementation: Annotated[str, choice("step() works by", IMPLEMENTATIONS)] = "foreach",
    width: Annotated[int, powers("Width", 16, 8192), "weights are (width, width)"] = 1024,
    layers: Annotated[int, slider("Layers", 1, 24)] = 4,
    gpu: UnlistedGPU = "A100-40GB",
) -> View:
    """Show what two steps of an optimizer take on a stack of linear layers without biases."""
    with VirtualGPU(gpu):
        memory, timeline = measure_steps(optimizer, implementation, width, layers)
    summary = (
        f"{optimizer} keeps {short_size(memory.first_step.growth_bytes)} for "
        f"{short_size(memory.parameters.growth_bytes)} of parameters, and a step takes "
        f"{short_size(memory.step_extra_bytes)} more while it runs."
    )
    title = f"{layers} layers of {width}, {optimizer}, {implementation}"
    return View(summary, draw_timeline(timeline, title=title), (_table(memory),))


def measure_steps(
    optimizer: str, implementation: str, width: int, layers: int
) -> tuple[MeasuredOptimizer, Timeline]:
    """Take two steps on the current GPU, with gradients that are made without a backward pass."""
    with record_timeline() as recording:
        stages = Stages("optimizer", recording=recording)
        with stages.stage("parameters") as parameters:
            model = torch.nn.Sequential(
                *(torch.nn.Linear(width, width, bias=False, device="cuda") for _ in range(layers))
            )
        optimize = OPTIMIZERS[optimizer](model.parameters(), **IMPLEMENTATIONS[implementation])
        recording.watch(model=model, optimizer=optimize)
        with stages.stage("gradients") as gradients:
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        with stages.stage("first step()") as first_step:
            optimize.step()
        with stages.stage("second step()") as second_step:
            optimize.step()
    memory = MeasuredOptimizer(
        parameter_count=layers * width * width,
        parameters=parameters.measurement,
        gradients=gradients.measurement,
        first_step=first_step.measurement,
        second_step=second_step.measurement,
    )
    return memory, recording.timeline


def _table(memory: MeasuredOptimizer) -> Table:
    rows = (
        ("parameters", memory.parameters.growth_bytes),
        ("gradients", memory.gradients.growth_bytes),
        ("states, since the first step()", memory.first_step.growth_bytes),
        ("taken by step() while it runs", memory.step_extra_bytes),
        ("peak of the second step()", memory.second_step.peak_allocated_bytes),
    )
    return Table(
        caption=f"{memory.parameter_count:,} parameters in float32",
        header=("bytes of", "size", "bytes per parameter"),
        rows=tuple(
            (name, format_mib(size_bytes), f"{size_bytes / memory.parameter_count:.2f}")
            for name, size_bytes in rows
        ),
    )
