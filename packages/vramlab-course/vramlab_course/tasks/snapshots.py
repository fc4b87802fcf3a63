"""Snapshots of programs that learners do not see: what several tasks diagnose.

The evidence is the history of a snapshot of PyTorch, without names: which blocks came and went.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramlab_classroom.judge.lazy import torch

Trace = list[dict[str, Any]]
"""One entry for each block that came or went, in order: its "action" ("alloc" or "free"), "address"
and "size" in bytes."""

_ACTIONS = {"alloc": "alloc", "free_completed": "free"}


def trace_of(program: Callable[[], object]) -> Trace:
    """Run a program on the attached GPU, and give what PyTorch's memory history says of it.

    What the program returns is held until the end.
    """
    torch.cuda.memory._record_memory_history(context=None)
    try:
        kept = program()
        trace = trace_so_far()
        del kept
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    return trace


def trace_so_far() -> Trace:
    """Return the history of the program that `trace_of` runs, as far as it is."""
    return [
        {"action": _ACTIONS[entry["action"]], "address": entry["addr"], "size": entry["size"]}
        for entry in torch.cuda.memory._snapshot()["device_traces"][0]
        if entry["action"] in _ACTIONS
    ]


# What answers are made of: to name mistakes by, not to grade


def live(trace: Trace, until: int | None = None) -> list[int]:
    """Return the sizes of the blocks that are there after so many entries; after all, if None."""
    there: dict[int, int] = {}
    for entry in trace[:until]:
        if entry["action"] == "alloc":
            there[entry["address"]] = entry["size"]
        else:
            there.pop(entry["address"], None)
    return list(there.values())


def sums(trace: Trace) -> list[int]:
    """Return the bytes that have come and not gone, after each entry."""
    sums_bytes, now = [], 0
    for entry in trace:
        now += entry["size"] if entry["action"] == "alloc" else -entry["size"]
        sums_bytes.append(now)
    return sums_bytes


def most_at_once(trace: Trace, size_bytes: int) -> int:
    """Count how many blocks of a size are there at the same time, at most."""
    same = [entry for entry in trace if entry["size"] == size_bytes]
    return max([0, *(total // size_bytes for total in sums(same))])


def position_of_peak(trace: Trace) -> int:
    """Return the number of the entry after which most is there."""
    totals = sums(trace)
    return totals.index(max(totals))
