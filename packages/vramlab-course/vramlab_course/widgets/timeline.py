"""An interactive timeline: hover a block for its tensor, line, bytes and lifetime.

    with record_timeline() as recording:
        ...
    show_timeline(recording.timeline, title="The peak is in backward")

It needs no kernel behind it: it also answers in the pages that nbconvert makes. Where a page runs
no scripts, the picture of `draw_timeline` stands in its place, with its alternative text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramlab.measure import Timeline
from vramlab.viz import timeline_html
from vramlab.viz.recorded import view_of
from vramlab_course.plots import Picture, draw_timeline
from vramlab_course.plots.picture import title_html


class ShownTimeline:
    """Leave it as a cell's last line to show it.

    Attributes:
        picture: what stands in its place where a page runs no scripts.
    """

    def __init__(self, timeline: Timeline, title: str, notes: Mapping[int, str]) -> None:
        self.picture: Picture = draw_timeline(timeline, title=title, notes=notes)
        self._view = view_of(timeline, title, notes)

    def to_html(self) -> str:
        """Write it as a piece of HTML that needs nothing else."""
        still = title_html(self.picture.alt) + self.picture.to_html()
        return timeline_html(self._view, still)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": self.picture.alt}


def show_timeline(
    timeline: Timeline,
    title: str = "Memory over time",
    *,
    notes: Mapping[int, str] | None = None,
) -> ShownTimeline:
    """Show what lives on the GPU over the allocator's events, block by block, to be asked.

    Args:
        timeline: such as `recording.timeline`.
        title: what it shows; best a finding.
        notes: what a block is, by its place in `timeline.blocks`; its size is written behind it.
            `largest_born(timeline, "backward")` finds one.

    Raises:
        IndexError: the timeline has no such block.
    """
    return ShownTimeline(timeline, title, notes or {})
