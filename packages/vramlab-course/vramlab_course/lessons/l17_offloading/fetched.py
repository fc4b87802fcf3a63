"""Name the blocks that parameters from the host take while their layer is on the GPU."""

from __future__ import annotations

from vramlab.measure import Timeline
from vramlab.programs.offloading import StreamedLayers

FETCHED = "fetched parameters"


def fetched_parameters(timeline: Timeline) -> dict[int, str]:
    """Name what `StreamedLayers` fetches, by its place in `timeline.blocks`."""
    fetches = StreamedLayers._fetch.__name__
    return {
        number: FETCHED
        for number, block in enumerate(timeline.blocks)
        if any(frame.function.rpartition(".")[2] == fetches for frame in block.frames)
    }
