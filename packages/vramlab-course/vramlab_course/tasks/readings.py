"""What a piece of a program adds to the memory of the attached GPU."""

from __future__ import annotations

from collections.abc import Callable

from vramlab_classroom.judge.lazy import torch


def growth_bytes(run: Callable[[], object]) -> int:
    """Run something; give what it adds to the allocated bytes, its result included."""
    before_bytes = torch.cuda.memory_allocated()
    result = run()
    after_bytes = torch.cuda.memory_allocated()
    del result
    return after_bytes - before_bytes


def peak_growth_bytes(run: Callable[[], object]) -> int:
    """Run something; give the most that it adds to the allocated bytes at any moment."""
    before_bytes = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated() - before_bytes
