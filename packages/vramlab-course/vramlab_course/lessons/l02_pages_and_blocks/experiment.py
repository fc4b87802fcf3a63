"""Lesson 02: how the caching allocator turns tensors into blocks, and blocks into segments."""

from __future__ import annotations

import torch

from vramlab.units import MIB
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.packing import packed

SIZES_BYTES = (
    4,
    4,
    1 * MIB,
    1 * MIB + 1,
    9 * MIB,
    10 * MIB,
    10 * MIB + 512,
)
"""One tensor of each, so chosen that every rule of the allocator is met once."""


@experiment(
    "pages-and-blocks",
    lesson="02",
    question="Which block and which segment does a tensor of a given size get?",
    source="001 §1.2, 003",
)
def pages_and_blocks(sizes_bytes: tuple[int, ...] = SIZES_BYTES) -> Outcome:
    """Allocate tensors one after the other, all kept; then delete all; then empty the cache.

    Args:
        sizes_bytes: of the tensors.
    """
    trial = Trial("pages-and-blocks", sizes_bytes=list(sizes_bytes))
    kept = []
    for count, size_bytes in enumerate(sizes_bytes, start=1):
        allocated_bytes, reserved_bytes = packed(sizes_bytes[:count])
        with trial.stage(
            f"{count}: {_name(size_bytes)}",
            expected("allocated", allocated_bytes),
            expected("reserved", reserved_bytes),
        ):
            kept.append(torch.empty(size_bytes, dtype=torch.uint8, device="cuda"))
    _, reserved_bytes = packed(sizes_bytes)
    with trial.stage("del", expected("allocated", 0), expected("reserved", reserved_bytes)):
        kept.clear()
    with trial.stage("empty_cache", expected("allocated", 0), expected("reserved", 0)):
        torch.cuda.empty_cache()
    return trial.outcome()


def _name(size_bytes: int) -> str:
    """Whole MiB as such, with the bytes beyond; small sizes in bytes."""
    whole_mib, rest_bytes = divmod(size_bytes, MIB)
    if not whole_mib:
        return f"{size_bytes:,} B"
    return f"{whole_mib} MiB" + (f" + {rest_bytes:,} B" if rest_bytes else "")
