"""Explore what optimizers keep and take, by the shapes of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from vramlab import VirtualGPU
from vramlab.measure import Category, Table
from vramlab.units import short_size
from vramlab_course.lessons.l16_lean_optimizers.experiment import LEAN_OPTIMIZERS
from vramlab_course.plots import draw_stacks
from vramlab_course.plots.style import CATEGORY_LOOKS
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import UnlistedGPU

_LOOKS = {
    "weights": CATEGORY_LOOKS[Category.PARAMETERS],
    "states": CATEGORY_LOOKS[Category.OPTIMIZER_STATES],
    "gradients": CATEGORY_LOOKS[Category.GRADIENTS],
    "while step() runs": CATEGORY_LOOKS[Category.TEMPORARIES],
}

WHEN = ("after the backward pass", "in the backward pass")


@dataclass(frozen=True)
class OptimizerMemory:
    """What one optimizer took, in bytes."""

    weights_bytes: int
    gradients_bytes: int
    """Most at a time."""
    states_bytes: int
    step_extra_bytes: int
    """Taken by step() while it runs, beyond the others."""

    @property
    def parts(self) -> Mapping[str, int]:
        """By name, for a picture."""
        return {
            "weights": self.weights_bytes,
            "states": self.states_bytes,
            "gradients": self.gradients_bytes,
            "while step() runs": self.step_extra_bytes,
        }


@explorer("What optimizers keep, by shape")
def lean_optimizer_explorer(
    rows: Annotated[int, powers("Rows (1: a vector)", 1, 16384)] = 4096,
    columns: Annotated[int, powers("Columns", 16, 16384)] = 1024,
    count: Annotated[int, slider("Parameters", 1, 24), "parameters of this shape"] = 4,
    when: Annotated[str, choice("step()", WHEN)] = WHEN[0],
    gpu: UnlistedGPU = "A100-80GB",
) -> View:
    """Show what each optimizer keeps and takes in two steps, for parameters of one shape.

    Steps are with all gradients at once after the backward pass, or in it with one at a time.
    """
    shape = (columns,) if rows == 1 else (rows, columns)
    measured = {}
    for name, lean in LEAN_OPTIMIZERS.items():
        if len(shape) == 2 or not lean.matrices_only:
            with VirtualGPU(gpu):
                measured[name] = measure_optimizer(name, shape, count, when)
    least = measured["Adafactor"].states_bytes
    most = measured["AdamW"].states_bytes
    words = " x ".join(map(str, shape))
    return View(
        f"For {count} parameters of {words}, Adafactor keeps {short_size(least)} and AdamW "
        f"{short_size(most)}.",
        draw_stacks(
            {name: memory.parts for name, memory in measured.items()},
            title=f"Peak of the second step, {count} parameters of {words}, {when}",
            looks=_LOOKS,
        ),
        (_table(measured, count * rows * columns),),
    )


def measure_optimizer(
    name: str, shape: tuple[int, ...], count: int, when: str = WHEN[0]
) -> OptimizerMemory:
    """Take two steps on the current GPU, with gradients that are made without a backward pass."""
    lean = LEAN_OPTIMIZERS[name]
    small = torch.zeros(8, 8, device="cuda")
    small @ small  # for cuBLAS's workspace, which Adafactor would meet in its first step
    before_bytes = torch.cuda.memory_allocated()
    weights = [torch.nn.Parameter(torch.zeros(shape, device="cuda")) for _ in range(count)]
    weights_bytes = torch.cuda.memory_allocated() - before_bytes
    at_once = [weights] if when == WHEN[0] else [[weight] for weight in weights]
    optimizers = [lean.make(group) for group in at_once]
    first_bytes = torch.cuda.memory_allocated()
    gradients_bytes = _steps(at_once, optimizers)
    held_bytes = torch.cuda.memory_allocated()  # with states now
    torch.cuda.reset_peak_memory_stats()
    _steps(at_once, optimizers)
    return OptimizerMemory(
        weights_bytes=weights_bytes,
        gradients_bytes=gradients_bytes,
        states_bytes=held_bytes - first_bytes,
        step_extra_bytes=torch.cuda.max_memory_allocated() - held_bytes - gradients_bytes,
    )


def _steps(
    groups: Sequence[Sequence[torch.nn.Parameter]], optimizers: Sequence[torch.optim.Optimizer]
) -> int:
    """Step with one group after the other; return what the gradients of a group take."""
    gradients_bytes = 0
    for group, optimizer in zip(groups, optimizers, strict=True):
        held_bytes = torch.cuda.memory_allocated()
        for weight in group:
            weight.grad = torch.zeros_like(weight)
        gradients_bytes = torch.cuda.memory_allocated() - held_bytes
        optimizer.step()
        optimizer.zero_grad()
    return gradients_bytes


def _table(measured: Mapping[str, OptimizerMemory], elements: int) -> Table:
    return Table(
        f"Bytes for each of {elements:,} parameters",
        ("optimizer", "states", "at the peak of a step, in all"),
        tuple(
            (
                name,
                f"{memory.states_bytes / elements:,.4f}",
                f"{sum(memory.parts.values()) / elements:,.2f}",
            )
            for name, memory in measured.items()
        ),
    )
