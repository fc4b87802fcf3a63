"""So much of the GPUs' memory for a program, and no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from vramlab_classroom.judge.lazy import torch

if TYPE_CHECKING:
    from vramlab import VirtualGPU


def limit_memory(limit_bytes: int, gpu: int | None = None) -> None:
    """Let this process reserve so much of a GPU's memory, to the byte.

    Args:
        limit_bytes: together with what is reserved already; at most what the GPU has.
        gpu: its index; the current GPU by default.
    """
    _, total_bytes = torch.cuda.mem_get_info(gpu)
    # The allocator rounds the product with this fraction down, so it must not be too small.
    fraction = math.nextafter(limit_bytes / total_bytes, 1.0)
    torch.cuda.set_per_process_memory_fraction(fraction, gpu)


@contextmanager
def limited(limits_bytes: Sequence[int]) -> Iterator[None]:
    """Let the body reserve so much of each GPU's memory, and no more.

    Args:
        limits_bytes: of each GPU, from the first on: see `limit_memory`.
    """
    gpus = range(len(limits_bytes))
    before = [torch.cuda.get_per_process_memory_fraction(gpu) for gpu in gpus]
    for gpu in gpus:
        limit_memory(limits_bytes[gpu], gpu)
    try:
        yield
    finally:
        for gpu in gpus:
            torch.cuda.set_per_process_memory_fraction(before[gpu], gpu)


@dataclass
class Peaks:
    """The peaks of one GPU, also if PyTorch's counters were reset meanwhile."""

    index: int
    noted_allocated_bytes: int = 0
    noted_reserved_bytes: int = 0

    @property
    def allocated_bytes(self) -> int:
        """The most that was allocated."""
        return max(self.noted_allocated_bytes, torch.cuda.max_memory_allocated(self.index))

    @property
    def reserved_bytes(self) -> int:
        """The most that was reserved."""
        return max(self.noted_reserved_bytes, torch.cuda.max_memory_reserved(self.index))

    def reset(self, counters: Callable[[], None]) -> None:
        """Note the peaks so far before counters are reset."""
        self.noted_allocated_bytes = self.allocated_bytes
        self.noted_reserved_bytes = self.reserved_bytes
        counters()


@contextmanager
def keeping_peaks(gpu: VirtualGPU) -> Iterator[list[Peaks]]:
    """Keep the peaks of an attached virtual GPU's devices, which programs may reset in the body."""
    peaks = [Peaks(index) for index in range(gpu.count)]
    with ExitStack() as undo:
        for each, device in zip(peaks, gpu.machine.devices, strict=True):
            allocator = device.allocator
            reset = partial(each.reset, allocator.reset_peak_stats)
            allocator.reset_peak_stats = reset  # type: ignore[method-assign]
            undo.callback(delattr, allocator, "reset_peak_stats")
        yield peaks
