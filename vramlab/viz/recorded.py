"""The view of a timeline that was recorded from a program."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vramlab.measure.categories import attribute
from vramlab.measure.code_lines import CodeLine, user_frame
from vramlab.measure.timeline import Timeline
from vramlab.units import short_size
from vramlab.viz.timeline_view import TimelineView, ViewBlock


def view_of(
    timeline: Timeline,
    title: str = "Memory over time",
    notes: Mapping[int, str] = MappingProxyType({}),
) -> TimelineView:
    """Make the view of a recorded timeline.

    Args:
        timeline: such as `recording.timeline`.
        title: what stands above it.
        notes: what a block is, by its place in `timeline.blocks`; its size is written behind it.
    """
    lines: dict[Any, str] = {}
    blocks = []
    for block, found in zip(timeline.blocks, attribute(timeline), strict=True):
        frame = user_frame(block)
        if frame not in lines:
            line = CodeLine(frame, 0, 0)
            lines[frame] = "" if frame is None else f"{line}: {line.source}".rstrip(": ")
        end = timeline.event_count if block.freed is None else block.freed
        blocks.append(
            ViewBlock(
                category=found.category,
                name=found.label,
                line=lines[frame],
                size_bytes=block.size_bytes,
                start=block.born + 1,
                end=end + 1,
            )
        )
    reserved = timeline.reserved_bytes
    return TimelineView(
        title=title,
        event_count=timeline.event_count,
        blocks=tuple(blocks),
        reserved_bytes=tuple(
            (position, reserved[position])
            for position in range(len(reserved))
            if position == 0 or reserved[position] != reserved[position - 1]
        ),
        stages=tuple((stage.name, stage.start, stage.end) for stage in timeline.stages),
        out_of_memory=tuple(
            (failure.position, failure.requested_bytes) for failure in timeline.out_of_memory
        ),
        notes=tuple(
            (blocks[number].start, f"{words}: {short_size(blocks[number].size_bytes)}")
            for number, words in notes.items()
        ),
    )
