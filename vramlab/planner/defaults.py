"""What a plan is unless it says otherwise, where that depends on the GPU or the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from vramlab import catalogue
from vramlab.planner.custom import CustomModel
from vramlab.planner.plan import Plan
from vramlab.programs.transformer_memory import (
    PRECISIONS,
    Attention,
    Run,
    Sizes,
    check_kernels,
)

BFLOAT16_SINCE = (8, 0)
"""Compute capability from which on tensor cores multiply bfloat16 (Ampere)."""

USUAL: dict[str, Any] = {field.name: field.default for field in fields(Plan)}
"""By the name of an option."""


def defaults_for(sizes: Sizes | CustomModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not given and that follow from the GPU or the model.

    A GPU without bfloat16 trains in float16; attention has the first of PyTorch's kernels that the
    GPU has for the precision; a sequence is no longer than the model has positions for.

    Args:
        sizes: of the model.
        given: options of `Plan` that were chosen, by name.

    Raises:
        UnknownGPUError: no GPU of that name.
    """
    gpu = catalogue.find(given.get("gpu", USUAL["gpu"]))
    chosen: dict[str, Any] = {}
    if "precision" not in given and gpu.compute_capability < BFLOAT16_SINCE:
        chosen["precision"] = "autocast float16"
    if "attention" not in given and not isinstance(sizes, CustomModel):
        precision = str({**USUAL, **chosen, **given}["precision"])
        chosen["attention"] = _attention(precision, gpu.compute_capability)
    if "sequence" not in given and (most := _most_tokens(sizes)) is not None:
        chosen["sequence"] = min(most, USUAL["sequence"])
    return {name: value for name, value in chosen.items() if value != USUAL[name]}


def _attention(precision: str, capability: tuple[int, int]) -> Attention:
    kernels: tuple[Attention, ...] = ("flash", "efficient")
    for kernel in kernels if precision in PRECISIONS else ():
        try:
            check_kernels(Run(1, 1, precision, attention=kernel), capability)
        except ValueError:
            continue
        return kernel
    return "math"


def _most_tokens(sizes: Sizes | CustomModel) -> int | None:
    if isinstance(sizes, CustomModel):
        return sizes.most_tokens if any(each.has_tokens for each in sizes.inputs) else None
    return sizes.positions if sizes.learned_positions else None
