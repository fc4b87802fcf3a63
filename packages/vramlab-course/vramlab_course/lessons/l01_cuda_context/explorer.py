"""Explore how many processes share a GPU: each pays for a CUDA context of its own."""

from __future__ import annotations

from typing import Annotated

import torch

from vramlab import VirtualGPU
from vramlab.measure import DeviceReading, Table, read_device
from vramlab.units import MIB, format_mib, short_size
from vramlab_course.lessons.l01_cuda_context.picture import draw_device
from vramlab_course.widgets.controls import slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU


@explorer("Processes that share a GPU", height_px=430)
def context_explorer(
    gpu: AnyGPU = "T4",
    processes: Annotated[int, slider("Processes", 1, 64)] = 8,
    tensors_mib: Annotated[int, slider("Tensors of each, in MiB", 0, 8192, step=64)] = 512,
    freed_mib: Annotated[int, slider("Freed by each, in MiB", 0, 8192, step=64)] = 256,
) -> View:
    """Show what equal processes take of a GPU together.

    One is measured. What it has freed, it keeps in its cache.
    """
    with VirtualGPU(gpu):
        torch.cuda.mem_get_info()  # makes the context, even where no tensor is asked for
        tensors = [_bytes_on_gpu(mib * MIB) for mib in (tensors_mib, freed_mib)]
        tensors.pop()
        one = read_device()
        tensors.clear()
    capacity_bytes = one.total_bytes - one.driver_bytes
    fit = capacity_bytes // one.used_bytes
    together = _times(one, processes)
    verdict = "they fit" if processes <= fit else "they do not fit"
    summary = (
        f"{processes} processes take {short_size(together.used_bytes)} of "
        f"{short_size(capacity_bytes)}: {verdict}. At most {fit} do."
    )
    readings = {"one process": one, f"{processes} processes": together}
    picture = draw_device(
        readings, title=f"{gpu}: what the processes take", capacity_bytes=one.total_bytes
    )
    return View(summary, picture, (_table(readings),))


def _bytes_on_gpu(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def _times(one: DeviceReading, processes: int) -> DeviceReading:
    """Add up what as many processes take; less than nothing is free if they do not fit."""
    return DeviceReading(
        driver_bytes=one.driver_bytes,
        outside_bytes=processes * one.outside_bytes,
        cached_bytes=processes * one.cached_bytes,
        allocated_bytes=processes * one.allocated_bytes,
        free_bytes=one.free_bytes - (processes - 1) * one.used_bytes,
    )


def _table(readings: dict[str, DeviceReading]) -> Table:
    rows = []
    for name, one in readings.items():
        sizes = (one.outside_bytes, one.allocated_bytes, one.cached_bytes, one.used_bytes)
        rows.append((name, *map(format_mib, sizes)))
    header = ("", "CUDA context", "tensors", "cached", "nvidia-smi shows")
    return Table("What nvidia-smi adds up", header, tuple(rows))
