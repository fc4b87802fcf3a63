"""One look at torch's memory counters of a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vramlab.cuda_rules.sizes import block_bytes


@dataclass(frozen=True)
class MemoryReading:
    """Counters of torch.cuda and the driver at one moment, in bytes."""

    allocated_bytes: int
    """In live tensors and workspaces, rounding included (torch.cuda.memory_allocated)."""
    peak_allocated_bytes: int
    """Its highest value since the last reset (torch.cuda.max_memory_allocated)."""
    reserved_bytes: int
    """Taken from the driver by the caching allocator (torch.cuda.memory_reserved)."""
    peak_reserved_bytes: int
    """Its highest value since the last reset (torch.cuda.max_memory_reserved)."""
    device_used_bytes: int
    """In use on the device, by every process (total minus free of torch.cuda.mem_get_info);
    0 while this process has not touched CUDA, because asking would create its context."""


def read_memory(device: int | None = None) -> MemoryReading:
    """Read a device's counters without changing any of them.

    Args:
        device: index of the GPU; the current one if None.
    """
    if not torch.cuda.is_initialized():
        return MemoryReading(0, 0, 0, 0, 0)
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return MemoryReading(
        allocated_bytes=torch.cuda.memory_allocated(device),
        peak_allocated_bytes=torch.cuda.max_memory_allocated(device),
        reserved_bytes=torch.cuda.memory_reserved(device),
        peak_reserved_bytes=torch.cuda.max_memory_reserved(device),
        device_used_bytes=total_bytes - free_bytes,
    )


def reset_peaks(device: int | None = None) -> None:
    """Let the peaks start again from what is allocated now; nothing to do before CUDA is used."""
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats(device)


def unsplit_remainder_bytes(device: int = 0) -> int:
    """Add up the unsplit remainders, of at most 1 MiB each, that live blocks hold.

    From torch's snapshot: a block's size less its request, rounded to 512 B.

    Args:
        device: index of the GPU.
    """
    return sum(
        block["size"] - block_bytes(block["requested_size"])
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if segment["device"] == device and block["state"] == "active_allocated"
    )


def held_bytes() -> int:
    """Sum up the allocated bytes on the current GPU, without the unsplit remainders of blocks."""
    return torch.cuda.memory_allocated() - unsplit_remainder_bytes(torch.cuda.current_device())
