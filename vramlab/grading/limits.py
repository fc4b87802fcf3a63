"""The trial of a repaired program: so much of a GPU to use, and a question where it needs more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vramlab.grading.task import NotFixed
from vramlab.units import format_bytes


def limit_memory(limit_bytes: int, gpu: int | None = None) -> None:
    """Let this process reserve so much of a GPU's memory, to the byte.

    Args:
        limit_bytes: together with what is reserved already; at most what the GPU has.
        gpu: its index; the current GPU by default.
    """
    import torch

    _, total_bytes = torch.cuda.mem_get_info(gpu)
    # The allocator rounds the product with this fraction down, so it must not be too small.
    fraction = math.nextafter(limit_bytes / total_bytes, 1.0)
    torch.cuda.set_per_process_memory_fraction(fraction, gpu)


@contextmanager
def limited(limit_bytes: int, where: Callable[[int], str]) -> Iterator[None]:
    """Let the body reserve so much of the current GPU's memory, and no more.

    Args:
        limit_bytes: what may be reserved, together with what is reserved already; at most what the
            GPU has.
        where: says where the program has ended, and asks what may help: "in step 2 of 3, where it
            holds ... Which tensors ...?" It is called with the most bytes that were allocated,
            while the tensors of the program are still there.

    Raises:
        NotFixed: the body has run out of memory.
    """
    import torch

    before = torch.cuda.get_per_process_memory_fraction()
    limit_memory(limit_bytes)
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        question = where(torch.cuda.max_memory_allocated())
        raise NotFixed(
            f"With {format_bytes(limit_bytes)} to use, it runs out of memory {question}"
        ) from error
    finally:
        torch.cuda.set_per_process_memory_fraction(before)


def peak_report(limit_bytes: int) -> str:
    """The verdict's remark on a program that fits: its peak on the current GPU, and the limit."""
    import torch

    peak_bytes = torch.cuda.max_memory_allocated()
    return f"peak {format_bytes(peak_bytes)} of {format_bytes(limit_bytes)}"
