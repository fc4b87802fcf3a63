"""Who has a GPU's memory at one moment: what NVML and torch.cuda tell together.

NVML (the library behind nvidia-smi, and the module `pynvml`) sees the whole GPU and knows nothing
of tensors. torch.cuda sees this process's tensors and nothing else. Side by side they tell who has
what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from vramlab.table import Table
from vramlab.units import MIB


@dataclass(frozen=True)
class DeviceReading:
    """The bytes of one GPU, by who has them. The five parts add up to `total_bytes`."""

    driver_bytes: int
    """Kept by the driver for itself; nvidia-smi does not count it as used."""
    outside_bytes: int
    """Used, but not by PyTorch's allocator: the CUDA context of this process with the kernels it
    loaded, and all that other processes have."""
    cached_bytes: int
    """Reserved by PyTorch and held by no tensor."""
    allocated_bytes: int
    """Held by tensors."""
    free_bytes: int
    """What any process could still have."""

    @property
    def reserved_bytes(self) -> int:
        """Return what PyTorch took from the driver: cached and allocated."""
        return self.cached_bytes + self.allocated_bytes

    @property
    def used_bytes(self) -> int:
        """Return the memory that nvidia-smi shows as used."""
        return self.outside_bytes + self.reserved_bytes

    @property
    def total_bytes(self) -> int:
        """The whole GPU, as nvidia-smi counts it."""
        return self.driver_bytes + self.used_bytes + self.free_bytes


def read_device(index: int = 0) -> DeviceReading:
    """Read who has the memory of GPU `index`. Needs nvidia-ml-py; makes no CUDA context.

    Source: `nvmlMemory_v2_t` in nvml.h: version 2 keeps apart what the driver has for itself.
    """
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    finally:
        pynvml.nvmlShutdown()
    reserved_bytes = torch.cuda.memory_reserved(index)
    allocated_bytes = torch.cuda.memory_allocated(index)
    return DeviceReading(
        driver_bytes=memory.reserved,
        outside_bytes=memory.used - reserved_bytes,
        cached_bytes=reserved_bytes - allocated_bytes,
        allocated_bytes=allocated_bytes,
        free_bytes=memory.free,
    )


def device_table(readings: Mapping[str, DeviceReading]) -> Table:
    """Tabulate nvidia-smi's and torch.cuda's numbers at each moment, and the difference.

    Args:
        readings: from `read_device`, by the name of the moment.
    """
    rows = tuple(
        (
            moment,
            *(
                f"{size_bytes / MIB:,.4f}"
                for size_bytes in (
                    reading.used_bytes,
                    reading.reserved_bytes,
                    reading.allocated_bytes,
                    reading.outside_bytes,
                )
            ),
        )
        for moment, reading in readings.items()
    )
    header = ("moment", "nvidia-smi", "reserved", "allocated", "nvidia-smi - reserved")
    return Table("All readings, in MiB", header, rows)
