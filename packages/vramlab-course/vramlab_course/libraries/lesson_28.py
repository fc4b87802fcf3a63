"""Lesson 28: what four Linear layers and GELUs leave for the backward pass, ours and torchao's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vramlab_course.lessons.l28_eight_bits_and_fewer.experiment import RECIPES, linear, region
from vramlab_course.lessons.l28_eight_bits_and_fewer.formulas import Recipe
from vramlab_course.libraries.measuring import library, meet_cublas, step_sizes
from vramlab_course.libraries.results import LibraryRow, versioned

ROWS, WIDTH, LAYERS = 8192, 1024, 4


def measure() -> list[LibraryRow]:
    """Measure the lesson's chain with each recipe, and with torchao's float8 training."""
    meet_cublas()
    rows = [
        LibraryRow(f"the course: {recipe}", _sizes(_chain(recipe), recipe)) for recipe in RECIPES
    ]
    float8 = library("torchao.float8")
    for scaling in ("tensorwise", "rowwise"):
        model = float8.convert_to_float8_training(
            _chain("16 bits"), config=float8.Float8LinearConfig.from_recipe_name(scaling)
        )
        name = versioned("torchao", f"float8, {scaling}")
        rows.append(LibraryRow(name, _sizes(model, "16 bits")))
        compiled = versioned("torchao", f"float8, {scaling}, torch.compile")
        whole: Any = torch.compile(model)
        rows.append(LibraryRow(compiled, _sizes(whole, "16 bits")))
    return rows


def _chain(recipe: Recipe) -> nn.Module:
    parts = [part for _ in range(LAYERS) for part in (linear(WIDTH, WIDTH, recipe), nn.GELU())]
    return nn.Sequential(*parts).to("cuda")


def _sizes(model: nn.Module, recipe: Recipe) -> dict[str, int]:
    x = torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)

    def forward() -> Tensor:
        with region(recipe):
            made: Tensor = model(x).sum()
        return made

    return step_sizes(forward, (x, *model.parameters()), "left by forward", "peak")
