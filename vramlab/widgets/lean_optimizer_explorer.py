"""Explore what optimizers keep and take, by the shapes of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from vramlab import VirtualGPU
from vramlab.experiments.lean_optimizers import LEAN_OPTIMIZERS
from vramlab.measure import Category, Table
from vramlab.plots import draw_stacks
from vramlab.plots.style import CATEGORY_LOOKS
from vramlab.units import short_size
from vramlab.widgets.explorer import Explorer, View, choice, power_slider, slider

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


def lean_optimizer_explorer(
    rows: int = 4096,
    columns: int = 1024,
    count: int = 4,
    when: str = WHEN[0],
    gpu: str = "A100-80GB",
) -> Explorer:
    """Show what each optimizer keeps and takes for parameters of one shape.

    Every change runs on a fresh virtual GPU; whatever is attached in the notebook is left alone.

    Args:
        rows: of each parameter; 1 makes it a vector.
        columns: of each parameter.
        count: how many parameters.
        when: one of `WHEN`: with all gradients at once, or with one at a time.
        gpu: a GPU of the catalogue. The figures are the same on every one that is large enough.
    """
    controls = {
        "rows": power_slider("Rows (1: a vector)", rows, 1, 16384),
        "columns": power_slider("Columns", columns, 16, 16384),
        "count": slider("Parameters", count, 1, 24),
        "when": choice("step()", WHEN, when),
    }
    return Explorer("What optimizers keep, by shape", controls, partial(show_optimizers, gpu=gpu))


def show_optimizers(rows: int, columns: int, count: int, when: str, gpu: str = "A100-80GB") -> View:
    """Take two steps with each optimizer on a fresh virtual GPU."""
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
    """Step with one group after the other; gives what the gradients of a group take."""
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
