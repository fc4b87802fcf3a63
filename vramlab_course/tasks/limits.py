"""So much of the GPUs' memory for a program, and no more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vramlab_classroom.judge.lazy import torch


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
