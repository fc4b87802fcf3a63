"""Explore leaks: the shape that each gives to the curve of allocated memory, step by step."""

from __future__ import annotations

import gc
from typing import Annotated

import torch

from vramlab import VirtualGPU, catalogue
from vramlab.garbage import no_garbage_collection
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l30_hunting_a_leak.leaks import LEAKS, LeakyTraining
from vramlab_course.plots import draw_curves
from vramlab_course.widgets.controls import choice, powers, slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU


@explorer("What a line that keeps something does to memory, step by step")
def leak_explorer(
    leak: Annotated[str, choice("Added line keeps", LEAKS)] = "checks",
    steps: Annotated[int, slider("Steps", 4, 32)] = 16,
    rows: Annotated[int, powers("Rows of a batch", 512, 16384)] = 4096,
    collect_every: Annotated[
        int,
        slider("Collect garbage every", 0, 16),
        "steps after which Python looks for garbage; 0: never",
    ] = 0,
    gpu: AnyGPU = "A100-40GB",
) -> View:
    """Show allocated memory after each step of a training that holds more than it should."""
    curves = {
        name: measure_steps(name, steps, rows, collect_every, gpu)
        for name in dict.fromkeys((leak, "none"))
    }
    held = curves[leak]
    picture = draw_curves(
        {
            f"added line keeps: {name}" if name != "none" else "nothing added": [
                (step, size_bytes) for step, size_bytes in enumerate(sizes_bytes, 1)
            ]
            for name, sizes_bytes in curves.items()
        },
        title=f"Allocated after each of {steps} steps, {_collected(collect_every)}",
        x_label="steps",
    )
    numbers = sorted({1, 2, steps // 2, steps - 1, steps})
    table = Table(
        "Allocated after a step",
        ("step", *map(str, numbers)),
        tuple(
            (name, *(format_mib(sizes_bytes[number - 1]) for number in numbers))
            for name, sizes_bytes in curves.items()
        ),
    )
    return View(_summary(held, gpu), picture, (table,))


def measure_steps(leak: str, steps: int, rows: int, collect_every: int, gpu: str) -> list[int]:
    """Train on a fresh virtual GPU, and read the allocated bytes after each step."""
    held = []
    with VirtualGPU(gpu), no_garbage_collection():
        training = LeakyTraining(leak, rows)
        for step in range(1, steps + 1):
            training.step()
            if collect_every and step % collect_every == 0:
                gc.collect(0)  # all that has been made meanwhile is young
            held.append(torch.cuda.memory_allocated())
        del training
        gc.collect(0)
    return held


def _collected(every: int) -> str:
    """Return when garbage is collected: where that changes no number, the picture tells as much."""
    if not every:
        return "no garbage collected"
    return "garbage collected " + ("after each" if every == 1 else f"every {every} steps")


def _summary(held: list[int], gpu: str) -> str:
    half = len(held) // 2
    highest_bytes = max(held)
    grown_bytes = highest_bytes - max(held[:half])
    if grown_bytes == 0:
        return f"It never holds more than {short_size(highest_bytes)}, however long it runs."
    each_bytes = grown_bytes // (len(held) - half)
    left = (catalogue.find(gpu).total_bytes - highest_bytes) // each_bytes
    return (
        f"In the second half, each step keeps {short_size(each_bytes)} more. At this pace "
        f"the memory of the {gpu} is full after about {len(held) + left:,} steps."
    )
