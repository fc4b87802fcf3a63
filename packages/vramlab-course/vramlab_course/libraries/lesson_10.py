"""Lesson 10: the largest batch of a small GPT-2 under a limit, by bisection and by accelerate."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from vramlab.units import GIB
from vramlab_course.libraries.lesson_13 import small_gpt2
from vramlab_course.libraries.measuring import begin, library, meet_cublas
from vramlab_course.libraries.results import LibraryRow, versioned

LIMIT_BYTES, LENGTH = 4 * GIB, 256


def measure() -> list[LibraryRow]:
    """Search for the batch by bisection, and down from two batches that do not fit."""
    meet_cublas(torch.float32)
    torch.cuda.set_per_process_memory_fraction(LIMIT_BYTES / torch.cuda.mem_get_info()[1])
    try:
        name = versioned("accelerate", "find_executable_batch_size, from {start}")
        searches = {"the course: bisection": _bisect} | {
            name.format(start=start): _accelerate(start) for start in (64, 100)
        }
        return [_row(name, search) for name, search in searches.items()]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def _row(name: str, search: Callable[[Callable[[int], int]], int]) -> LibraryRow:
    begin()
    model: Any = small_gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tried = 0

    def step(batch: int) -> int:
        nonlocal tried
        tried += 1
        optimizer.zero_grad()  # what a failed step has left
        tokens = torch.zeros(batch, LENGTH, dtype=torch.long, device="cuda")
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        return batch

    step(1)  # AdamW's states, before the search
    tried = 0
    batch = search(step)
    steps = tried
    begin()
    step(batch)
    peak_bytes = torch.cuda.max_memory_allocated()
    return LibraryRow(
        f"{name}: {batch} texts after {steps} steps",
        {"peak": peak_bytes, "left below the limit": LIMIT_BYTES - peak_bytes},
    )


def _bisect(step: Callable[[int], int]) -> int:
    low, high = 1, 128
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(step, middle) else (low, middle)
    return low


def _fits(step: Callable[[int], int], batch: int) -> bool:
    try:
        step(batch)
    except torch.OutOfMemoryError:
        fits = False
    else:
        fits = True
    gc.collect()
    torch.cuda.empty_cache()  # as accelerate does
    return fits


def _accelerate(start: int) -> Callable[[Callable[[int], int]], int]:
    def search(step: Callable[[int], int]) -> int:
        found: int = library("accelerate.utils").find_executable_batch_size(step, start)()
        return found

    return search
