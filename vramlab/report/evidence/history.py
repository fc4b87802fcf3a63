"""Every block of a run, for an interactive timeline.

`PeakWatch` drops blocks that no longer matter, so that long runs fit into memory. To keep all of
them for a timeline:

    keep_histories(watch.devices)           before the program runs
    history_view(watch.devices[0], ...)     afterwards
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby

from vramlab.report.evidence.attribution import category_of
from vramlab.report.evidence.origins import BlockOrigin
from vramlab.report.evidence.peak import LiveBlock, PeakWatch
from vramlab.report.showing.verdict import place, source
from vramlab.viz import TimelineView, ViewBlock

MOST_BLOCKS = 100_000
"""Blocks that are kept of one GPU: the first. A page with more of them opens slowly."""


class BlockHistory:
    """The blocks of one GPU in the order of birth, up to `MOST_BLOCKS`.

    Attributes:
        blocks: kept so far.
        reserved_bytes: (moment, reserved bytes from there on), where they changed.
        full_at: the moment of the first block that was not kept, or None.
    """

    def __init__(self) -> None:
        self.blocks: list[LiveBlock] = []
        self.reserved_bytes: list[tuple[int, int]] = []
        self.full_at: int | None = None

    def add(self, block: LiveBlock, reserved_bytes: int) -> None:
        """Keep a block that has just been allocated.

        Args:
            block: with all that will become of it.
            reserved_bytes: what the allocator has taken from the driver by then.
        """
        if self.full_at is not None:
            return
        if len(self.blocks) == MOST_BLOCKS:
            self.full_at = block.born
            return
        self.blocks.append(block)
        if not self.reserved_bytes or self.reserved_bytes[-1][1] != reserved_bytes:
            self.reserved_bytes.append((block.born, reserved_bytes))


def keep_histories(watches: Iterable[PeakWatch]) -> None:
    """Keep every block of some GPUs from now on."""
    for watch in watches:
        watch.history = BlockHistory()


def history_view(watch: PeakWatch, folder: str, title: str) -> TimelineView:
    """Make the view of what one GPU held.

    Args:
        watch: of the GPU, with a history.
        folder: where the program was started.
        title: what stands above it.
    """
    history = watch.history
    assert history is not None
    end = float("inf") if history.full_at is None else history.full_at
    freed = [block.freed for block in history.blocks if block.freed and block.freed < end]
    moments = sorted([*(block.born for block in history.blocks), *freed])
    events = {moment: number for number, moment in enumerate(moments, start=1)}
    lines: dict[BlockOrigin, str] = {}
    for block in history.blocks:
        if block.origin not in lines:
            lines[block.origin] = _line(block.origin, folder)
    failed = watch.last_out_of_memory
    if history.full_at is not None:
        title = f"{title}: the first {MOST_BLOCKS:,} allocations (--steps makes runs shorter)"
    return TimelineView(
        title=title,
        event_count=len(moments),
        blocks=tuple(
            ViewBlock(
                category=category_of(block),
                name="",
                line=lines[block.origin],
                size_bytes=block.size_bytes,
                start=events[block.born],
                end=events.get(block.freed or 0, len(moments) + 1),
            )
            for block in history.blocks
        ),
        reserved_bytes=tuple((events[moment], level) for moment, level in history.reserved_bytes),
        stages=tuple(_backward_passes(history.blocks, events)),
        out_of_memory=()
        if failed is None
        else ((bisect_right(moments, failed.live.moment), failed.segment_bytes),),
    )


def _line(origin: BlockOrigin, folder: str) -> str:
    if origin.line is None:
        return ""
    words = "backward of " if origin.in_backward else ""
    return f"{words}{place(origin.line, folder)}: {source(origin.line)}".rstrip(": ")


def _backward_passes(
    blocks: Sequence[LiveBlock], events: dict[int, int]
) -> list[tuple[str, int, int]]:
    """Return each backward pass, from its first to its last allocation."""
    found = []
    for in_backward, group in groupby(blocks, key=lambda block: block.origin.in_backward):
        if in_backward:
            born = [events[block.born] for block in group]
            found.append(("backward", born[0] - 1, born[-1]))
    return found
