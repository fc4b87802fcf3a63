"""Explore what each GPU holds when several share the work, and what they send each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from vramlab import VirtualGPU
from vramlab.measure import Table, record_collectives
from vramlab.measure.environment import gpu_environment
from vramlab.programs.alone import alone
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l19_dp_and_ddp.data_parallel import DataParallelTraining
from vramlab_course.lessons.l19_dp_and_ddp.formulas import (
    Classifier,
    DataParallelStep,
    DistributedStep,
    Parts,
    in_order,
)
from vramlab_course.plots.stacks import draw_stacks
from vramlab_course.rules import RULES
from vramlab_course.widgets.controls import choice, powers
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import UnlistedGPU

WORKSPACES = "workspaces of cuBLAS"
WIDTH, LAYERS = 1024, 12

WAYS = ("DataParallel", "DataParallel, loss inside", "DDP", "DDP, gradients in buckets")
OPTIMIZERS = {"AdamW": 2, "SGD": 0}
"""How many states each keeps of every parameter."""


@dataclass(frozen=True)
class GPUReading:
    """What was predicted and measured of one GPU."""

    parts: Parts
    """What it holds at the peak of the backward pass, by closed form."""
    peak_bytes: int
    """Measured."""
    after_bytes: int
    """Measured when backward has ended."""


@dataclass(frozen=True)
class DataParallelReading:
    """What was measured of a step."""

    gpus: list[GPUReading]
    """One for each GPU with DataParallel; one for all ranks with DDP, which hold the same."""
    sent_bytes: int | None
    """What each rank sends its neighbour in a step; None where no collective is called."""


@explorer("Who holds what")
def data_parallel_explorer(
    gpus: Annotated[int, powers("GPUs", 2, 8)] = 4,
    batch: Annotated[int, powers("batch_size", 64, 4096), "as in the program"] = 1024,
    way: Annotated[str, choice("Way", WAYS)] = WAYS[0],
    optimizer: Annotated[str, choice("Optimizer", OPTIMIZERS)] = "AdamW",
    classes: Annotated[int, powers("Classes", 1024, 32768), "outputs of the model's head"] = 8192,
    gpu: UnlistedGPU = "A100-80GB",
) -> View:
    """Show what each GPU holds at the peak of the second step of a classifier.

    The batch size is that of all GPUs with DataParallel, of each with DDP, which runs as one rank
    alone. The parts are those of the closed form, the sums are measured.
    """
    sizes = Classifier(WIDTH, LAYERS, classes, OPTIMIZERS[optimizer])
    if way in WAYS[:2]:
        reading = _read_data_parallel(sizes, gpus, batch, way == WAYS[1], gpu)
        first, other = reading.gpus[0].peak_bytes, reading.gpus[1].peak_bytes
        summary = (
            f"{batch // gpus} of {batch} rows on each GPU. GPU 0 holds {short_size(first)} at its "
            f"peak, each other one {short_size(other)}: {first / other:.1f} times as much."
        )
        names = [f"GPU {number}" for number in range(gpus)]
    else:
        reading = _read_ddp(sizes, gpus, batch, way == WAYS[3], gpu)
        sent = short_size(reading.sent_bytes or 0)
        summary = (
            f"{batch} rows on each GPU, {gpus * batch} in a step. Each of the {gpus} ranks holds "
            f"{short_size(reading.gpus[0].peak_bytes)} at its peak, and sends {sent} in a step."
        )
        names = [f"each of {gpus}"]
    rows = {name: each.parts for name, each in zip(names, reading.gpus, strict=True)}
    picture = draw_stacks(rows, title=f"{way}, {optimizer}: at the peak of backward")
    return View(summary, picture, (_table(names, reading),))


def _read_data_parallel(
    sizes: Classifier, gpus: int, batch: int, loss_inside: bool, gpu: str
) -> DataParallelReading:
    predicted = DataParallelStep(sizes, gpus, batch, loss_inside)
    with VirtualGPU(gpu, gpus, torch_version=RULES):
        training = DataParallelTraining(sizes, batch)
        training.with_data_parallel(gpus, loss_inside)
        _until_second_backward(training)
        measured = [_read_gpu(predicted.peak(index)[1], index) for index in range(gpus)]
        del training
    return DataParallelReading(measured, None)


def _read_ddp(
    sizes: Classifier, ranks: int, rows: int, as_view: bool, gpu: str
) -> DataParallelReading:
    predicted = DistributedStep(sizes, rows, as_view=as_view)
    with VirtualGPU(gpu, torch_version=RULES), alone(ranks):
        training = DataParallelTraining(sizes, rows)
        training.with_ddp(as_view)
        with record_collectives() as collectives:
            _until_second_backward(training)
        measured = _read_gpu(predicted.peak()[1], 0)
        del training
    # The first step reduces everything at once, the second bucket by bucket: as many bytes.
    sent_bytes = sum(call.sent_bytes for call in collectives.of("all-reduce")) // 2
    return DataParallelReading([measured], sent_bytes)


def _until_second_backward(training: DataParallelTraining) -> None:
    training.whole_step()
    for index in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(index)
    training.forward()
    training.compute_loss()
    training.backward()


def _read_gpu(parts: Parts, index: int) -> GPUReading:
    workspaces_bytes = 2 * gpu_environment().matmul_workspace_bytes()
    return GPUReading(
        {**in_order(parts), WORKSPACES: workspaces_bytes},
        torch.cuda.max_memory_allocated(index),
        torch.cuda.memory_allocated(index),
    )


def _table(names: list[str], reading: DataParallelReading) -> Table:
    rows = []
    for name, gpu in zip(names, reading.gpus, strict=True):
        sizes = (sum(gpu.parts.values()), gpu.peak_bytes, gpu.after_bytes)
        rows.append((name, *map(format_mib, sizes)))
    return Table(
        "Allocated bytes of the second step",
        ("", "peak, predicted", "peak, measured", "after backward"),
        tuple(rows),
    )
