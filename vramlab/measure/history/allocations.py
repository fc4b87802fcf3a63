"""Every allocation of a timeline as a row: its size, what it is, and in which stages it lives."""

from __future__ import annotations

from vramlab.measure.categories import WORKSPACE_BYTES, Attribution, attribute
from vramlab.measure.timeline import Timeline
from vramlab.table import Table
from vramlab.units import MIB

_STILL_THERE = "-"
_BEFORE = "before"


def allocations_table(
    timeline: Timeline,
    position: int | None = None,
    workspace_bytes: tuple[int, ...] = WORKSPACE_BYTES,
) -> Table:
    """List a timeline's allocations, one row each, in the order in which they were made.

    Args:
        timeline: with its sightings and stages.
        position: list only what lives there (0 to `timeline.event_count`), such as
            `timeline.peak().position`; everything if None.
        workspace_bytes: sizes that a cuBLAS workspace may have, in requested bytes.
    """
    attributions = attribute(timeline, workspace_bytes)
    numbered = [
        (number, block, attribution)
        for number, (block, attribution) in enumerate(
            zip(timeline.blocks, attributions, strict=True), start=1
        )
        if position is None or block.lives_at(position)
    ]
    rows = tuple(
        (
            str(number),
            f"{block.size_bytes / MIB:,.4f}",
            f"{block.size_bytes:,}",
            _what(attribution),
            _BEFORE if block.born < 0 else _stage(timeline, block.born + 1),
            _STILL_THERE if block.freed is None else _stage(timeline, block.freed + 1),
        )
        for number, block, attribution in numbered
    )
    total_bytes = sum(block.size_bytes for _, block, _ in numbered)
    moment = "" if position is None else f" that live after allocator event {position}"
    return Table(
        caption=f"{len(numbered)} allocations{moment}: {total_bytes / MIB:,.4f} MiB in all",
        header=("number", "MiB", "bytes", "what", "allocated in", "freed in"),
        rows=rows,
    )


def _what(attribution: Attribution) -> str:
    """Return the category, and the tensor's name if one was seen there."""
    category = str(attribution.category)
    return f"{category}: {attribution.label}" if attribution.label else category


def _stage(timeline: Timeline, position: int) -> str:
    return timeline.stage_at(position) or "between stages"
