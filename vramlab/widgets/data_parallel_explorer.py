"""Explore what each GPU holds when several share the work, and what they send each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from vramlab import VirtualGPU
from vramlab.formulas.data_parallel import (
    Classifier,
    DataParallelStep,
    DistributedStep,
    Parts,
    in_order,
)
from vramlab.measure import Table, record_collectives
from vramlab.measure.surroundings import surroundings
from vramlab.plots.stacks import draw_stacks
from vramlab.ranks import alone
from vramlab.techniques.data_parallel import Training
from vramlab.units import format_mib, short_size
from vramlab.widgets.explorer import Explorer, View, choice, power_slider

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
class Reading:
    """What was measured of a step."""

    gpus: list[GPUReading]
    """One for each GPU with DataParallel; one for all ranks with DDP, which hold the same."""
    sent_bytes: int | None
    """What each rank sends its neighbour in a step; None where no collective is called."""


def data_parallel_explorer(
    gpus: int = 4,
    batch: int = 1024,
    way: str = WAYS[0],
    optimizer: str = "AdamW",
    classes: int = 8192,
    gpu: str = "A100-80GB",
) -> Explorer:
    """Show what each GPU holds at the peak of the second step of a classifier.

    Every change trains on fresh virtual GPUs, DDP as one rank alone; whatever is attached in the
    notebook is left alone. The parts are those of the closed form, the sums are measured.

    Args:
        gpus: how many.
        batch: the batch size that the program is given: of all GPUs with DataParallel, of each
            with DDP.
        way: one of `WAYS`.
        optimizer: one of `OPTIMIZERS`.
        classes: of the model's head, so how large its outputs are.
        gpu: a GPU of the catalogue. The figures are the same on every one that is large enough.
    """
    controls = {
        "gpus": power_slider("GPUs", gpus, 2, 8),
        "batch": power_slider("batch_size", batch, 64, 4096),
        "way": choice("Way", WAYS, way),
        "optimizer": choice("Optimizer", tuple(OPTIMIZERS), optimizer),
        "classes": power_slider("Classes", classes, 1024, 32768),
    }
    return Explorer("Who holds what", controls, partial(show_data_parallel, gpu=gpu))


def show_data_parallel(
    gpus: int, batch: int, way: str, optimizer: str, classes: int, gpu: str = "A100-80GB"
) -> View:
    """Train two steps, and show the second's peak on each GPU."""
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
) -> Reading:
    predicted = DataParallelStep(sizes, gpus, batch, loss_inside)
    with VirtualGPU(gpu, gpus):
        training = Training(sizes, batch)
        training.with_data_parallel(gpus, loss_inside)
        _until_second_backward(training)
        measured = [_read_gpu(predicted.peak(index)[1], index) for index in range(gpus)]
        del training
    return Reading(measured, None)


def _read_ddp(sizes: Classifier, ranks: int, rows: int, as_view: bool, gpu: str) -> Reading:
    predicted = DistributedStep(sizes, rows, as_view=as_view)
    with VirtualGPU(gpu), alone(ranks):
        training = Training(sizes, rows)
        training.with_ddp(as_view)
        with record_collectives() as collectives:
            _until_second_backward(training)
        measured = _read_gpu(predicted.peak()[1], 0)
        del training
    # The first step reduces everything at once, the second bucket by bucket: as many bytes.
    sent_bytes = sum(call.sent_bytes for call in collectives.of("all-reduce")) // 2
    return Reading([measured], sent_bytes)


def _until_second_backward(training: Training) -> None:
    training.whole_step()
    for index in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(index)
    training.forward()
    training.compute_loss()
    training.backward()


def _read_gpu(parts: Parts, index: int) -> GPUReading:
    workspaces_bytes = 2 * surroundings().matmul_workspace_bytes()
    return GPUReading(
        {**in_order(parts), WORKSPACES: workspaces_bytes},
        torch.cuda.max_memory_allocated(index),
        torch.cuda.memory_allocated(index),
    )


def _table(names: list[str], reading: Reading) -> Table:
    rows = []
    for name, gpu in zip(names, reading.gpus, strict=True):
        predicted_bytes = sum(gpu.parts.values())
        rows.append(
            (
                name,
                format_mib(predicted_bytes),
                format_mib(gpu.peak_bytes),
                format_mib(gpu.after_bytes),
            )
        )
    return Table(
        "Allocated bytes of the second step",
        ("", "peak, predicted", "peak, measured", "after backward"),
        tuple(rows),
    )
