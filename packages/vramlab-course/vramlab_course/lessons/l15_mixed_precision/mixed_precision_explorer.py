"""Explore what a training step takes in each precision mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.measure import StageMeasurement, Stages, Table, Timeline, record_timeline
from vramlab.programs.master_weights import MasterWeights
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l15_mixed_precision.experiment import autocast
from vramlab_course.plots import draw_timeline
from vramlab_course.rules import RULES
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer

MODES = ("float32", "autocast", "16 bit", "16 bit, float32 copies")
"""float32 throughout; autocast in float16; all in bfloat16; the same with float32 copies of the
weights, which the optimizer works on."""


@dataclass(frozen=True)
class PrecisionMemory:
    """What one mode was measured to take, in its second training step."""

    parameters: int
    """How many."""
    after_step: StageMeasurement
    """What the first step leaves: the weights, and what the optimizer keeps."""
    forward: StageMeasurement
    step: StageMeasurement
    """Backward pass and optimizer."""
    timeline: Timeline

    @property
    def peak_bytes(self) -> int:
        """Over the whole step."""
        return max(self.forward.peak_allocated_bytes, self.step.peak_allocated_bytes)


@explorer("A training step in less precision")
def mixed_precision_explorer(
    mode: Annotated[str, choice("Mode", MODES)] = "autocast",
    rows: Annotated[int, powers("Rows", 64, 65536), "of the batch"] = 2048,
    width: Annotated[int, powers("Width", 256, 4096), "of the layers, Linear and ReLU"] = 1024,
    layers: Annotated[int, slider("Layers", 1, 12)] = 4,
    gpu: Annotated[str, "a GPU of the catalogue"] = "A100-40GB",
) -> View:
    """Show a training step in one precision mode, beside float32."""
    memory = measure_mode(mode, rows, width, layers, gpu)
    full = measure_mode("float32", rows, width, layers, gpu)
    summary = (
        f"{mode}: the forward pass adds {short_size(memory.forward.growth_bytes)} (float32: "
        f"{short_size(full.forward.growth_bytes)}), and the step peaks at "
        f"{short_size(memory.peak_bytes)} (float32: {short_size(full.peak_bytes)})."
    )
    table = Table(
        f"The second step, {rows} rows through {layers} layers of {width}",
        ("", mode, "float32"),
        tuple(
            (name, format_mib(one), format_mib(other))
            for name, one, other in (
                (
                    "weights and states",
                    memory.after_step.allocated_after_bytes,
                    full.after_step.allocated_after_bytes,
                ),
                ("added by forward", memory.forward.growth_bytes, full.forward.growth_bytes),
                ("peak", memory.peak_bytes, full.peak_bytes),
            )
        ),
        ("Weights and states are with cuBLAS's workspaces.",),
    )
    title = f"{mode}, {rows} rows, {layers} layers of {width}"
    return View(summary, draw_timeline(memory.timeline, title=title), (table,))


def measure_mode(mode: str, rows: int, width: int, layers: int, gpu: str) -> PrecisionMemory:
    """Take two steps of AdamW on a fresh virtual GPU; the second is recorded."""
    dtype = torch.bfloat16 if mode.startswith("16 bit") else torch.float32
    with VirtualGPU(gpu, torch_version=RULES):
        modules: list[nn.Module] = []
        for _ in range(layers):
            modules += [nn.Linear(width, width, dtype=dtype), nn.ReLU()]
        model = nn.Sequential(*modules).to("cuda")
        optimizer: torch.optim.Optimizer | MasterWeights
        if mode == "16 bit, float32 copies":
            optimizer = MasterWeights(model.parameters(), torch.optim.AdamW)
        else:
            optimizer = torch.optim.AdamW(model.parameters())
        x = torch.zeros(rows, width, dtype=dtype, device="cuda")
        first = Stages("first step")
        with first.stage("first step") as after_step:
            _forward(model, x, mode).backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.empty_cache()
        with record_timeline() as recording:
            of_torch = optimizer.optimizer if isinstance(optimizer, MasterWeights) else optimizer
            recording.watch(model=model, optimizer=of_torch, inputs=x)
            stages = Stages("second step", recording=recording)
            with stages.stage("forward") as forward:
                loss = _forward(model, x, mode)
            with stages.stage("backward, step") as step:
                loss.backward()
                optimizer.step()
        count = sum(parameter.numel() for parameter in model.parameters())
        return PrecisionMemory(
            count, after_step.measurement, forward.measurement, step.measurement, recording.timeline
        )


def _forward(model: nn.Module, x: torch.Tensor, mode: str) -> torch.Tensor:
    with autocast(mode == "autocast"):
        loss: torch.Tensor = model(x).float().square().mean()
    return loss
