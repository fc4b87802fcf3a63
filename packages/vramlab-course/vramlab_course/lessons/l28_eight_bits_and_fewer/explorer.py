"""Explore what a training step takes in 16 bits, and with products in 8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.measure import StageMeasurement, Stages, Table, Timeline, record_timeline
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l28_eight_bits_and_fewer.experiment import RECIPES, linear, region
from vramlab_course.lessons.l28_eight_bits_and_fewer.formulas import Recipe
from vramlab_course.plots import draw_timeline
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer


@dataclass(frozen=True)
class RecipeMemory:
    """What one recipe was measured to take, in its second training step."""

    held_bytes: int
    """What the first step leaves: weights and states."""
    forward: StageMeasurement
    backward: StageMeasurement
    timeline: Timeline

    @property
    def peak_bytes(self) -> int:
        """Over forward and backward pass."""
        return max(self.forward.peak_allocated_bytes, self.backward.peak_allocated_bytes)


@explorer("A training step with products in 8 bits")
def eight_bits_explorer(
    recipe: Annotated[str, choice("Recipe", RECIPES)] = "8 bits, kept",
    rows: Annotated[int, powers("Rows", 256, 32768), "of the batch"] = 8192,
    width: Annotated[int, powers("Width", 256, 4096), "of the layers, Linear and GELU"] = 1024,
    layers: Annotated[int, slider("Layers", 1, 12)] = 4,
    gpu: Annotated[str, "a GPU of the catalogue, of capability 8.9 or higher"] = "H100",
) -> View:
    """Show a training step in one recipe, beside 16 bits."""
    chosen: Recipe = next(each for each in RECIPES if each == recipe)
    memory = measure_recipe(chosen, rows, width, layers, gpu)
    half = measure_recipe("16 bits", rows, width, layers, gpu)
    summary = (
        f"{recipe}: the forward pass adds {short_size(memory.forward.growth_bytes)} (16 bits: "
        f"{short_size(half.forward.growth_bytes)}), and the step peaks at "
        f"{short_size(memory.peak_bytes)} (16 bits: {short_size(half.peak_bytes)})."
    )
    table = Table(
        f"The second step, {rows:,} rows through {layers} layers of {width:,}",
        ("", recipe, "16 bits"),
        tuple(
            (name, format_mib(one), format_mib(other))
            for name, one, other in (
                ("weights, states, workspaces", memory.held_bytes, half.held_bytes),
                ("added by forward", memory.forward.growth_bytes, half.forward.growth_bytes),
                ("peak", memory.peak_bytes, half.peak_bytes),
            )
        ),
    )
    title = f"{recipe}, {rows:,} rows, {layers} layers of {width:,}"
    return View(summary, draw_timeline(memory.timeline, title=title), (table,))


def measure_recipe(recipe: Recipe, rows: int, width: int, layers: int, gpu: str) -> RecipeMemory:
    """Take two steps of AdamW on a fresh virtual GPU; the second is recorded."""
    with VirtualGPU(gpu):
        modules: list[nn.Module] = []
        for _ in range(layers):
            modules += [linear(width, width, recipe), nn.GELU()]
        model = nn.Sequential(*modules).to("cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.zeros(rows, width, dtype=torch.bfloat16, device="cuda")
        _loss(model, x, recipe).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        held_bytes = torch.cuda.memory_allocated()
        with record_timeline() as recording:
            recording.watch(model=model, optimizer=optimizer, inputs=x)
            stages = Stages("second step", recording=recording)
            with stages.stage("forward") as forward:
                loss = _loss(model, x, recipe)
            with stages.stage("backward, step") as backward:
                loss.backward()
                optimizer.step()
        return RecipeMemory(
            held_bytes, forward.measurement, backward.measurement, recording.timeline
        )


def _loss(model: nn.Module, x: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    with region(recipe):
        loss: torch.Tensor = model(x).float().square().mean()
    return loss
