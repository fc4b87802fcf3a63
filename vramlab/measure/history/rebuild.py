"""Rebuild a timeline from two snapshots of torch.cuda.memory._snapshot().

The first snapshot gives the blocks that are there already and the map of free memory; the trace in
the last one gives every event since. Moments within the trace are identified by the number
of allocations and frees since the first snapshot: torch counts those in memory_stats(), so marking
a moment costs no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vramlab.errors import VramlabError
from vramlab.measure.history.replay import Replay, SplitRules
from vramlab.measure.timeline import (
    BlockLife,
    Frame,
    OutOfMemoryEvent,
    Sighting,
    Timeline,
    TimelineStage,
)

COUNTED = ("alloc", "free_requested")
"""Allocations and frees in a trace."""
_MOMENTS = (*COUNTED, "oom")
"""The events by which moments are counted: a failed request belongs to the stage that made it."""


class IncompleteTraceError(VramlabError):
    """The trace does not hold every allocation and free that torch counted."""


def timeline_from_snapshots(
    first: Mapping[str, Any],
    last: Mapping[str, Any],
    device: int = 0,
    *,
    marks: Sequence[tuple[str | None, int]] = (),
    sightings: Sequence[tuple[int, int, str, str]] = (),
    backward_passes: Sequence[tuple[int, int]] = (),
    counted: int | None = None,
    measured_peak_bytes: int | None = None,
) -> Timeline:
    """Rebuild the timeline of one device between two snapshots of the same process.

    Args:
        first: taken right after the memory history was switched on.
        last: taken before it was switched off.
        device: index of the GPU.
        marks: (name, n): a stage of that name begins after n allocations, frees and failed requests
            since `first`, and ends where the next mark stands; no stage begins where the name is
            None.
        sightings: (n, address, category, label): a tensor's storage was at that address then.
        backward_passes: (n, m): autograd's engine ran from n to m such events since `first`.
        counted: such events between the snapshots by torch's own count, to check the trace; None:
            trust the trace.
        measured_peak_bytes: torch.cuda.max_memory_allocated() over the same time.

    Raises:
        IncompleteTraceError: events are missing from the trace.
    """
    seen = len(first["device_traces"][device])
    events = last["device_traces"][device][seen:]
    moments = _moments(events)
    recorded = len(moments) - 1
    if len(last["device_traces"][device]) < seen or (counted is not None and counted != recorded):
        raise IncompleteTraceError(
            f"the trace of cuda:{device} holds {recorded} allocations and frees, but torch counted "
            f"{counted if counted is not None else 'more'}. While a timeline is recorded, do not "
            "call torch.cuda.memory._record_memory_history() or "
            "torch.cuda.reset_accumulated_memory_stats(); for a longer trace, raise max_entries"
        )
    segments = [segment for segment in first["segments"] if segment["device"] == device]
    history = _History(segments, SplitRules.from_snapshot(first))
    for event in events:
        history.apply(event)
    return Timeline(
        device=device,
        event_count=len(events),
        blocks=history.blocks(),
        stages=_stages(marks, moments, len(events)),
        sightings=tuple(
            Sighting(moments[n], address, category, label)
            for n, address, category, label in sightings
        ),
        allocated_bytes=tuple(history.allocated_bytes),
        reserved_bytes=tuple(history.reserved_bytes),
        out_of_memory=tuple(history.out_of_memory),
        backward_passes=tuple((moments[begin], moments[end]) for begin, end in backward_passes),
        measured_peak_bytes=measured_peak_bytes,
    )


def _moments(events: Iterable[Mapping[str, Any]]) -> list[int]:
    """Positions by count: the n-th entry is where n events of `_MOMENTS` have just happened."""
    return [
        0,
        *(number for number, event in enumerate(events, start=1) if event["action"] in _MOMENTS),
    ]


def _stages(
    marks: Sequence[tuple[str | None, int]], moments: Sequence[int], end: int
) -> tuple[TimelineStage, ...]:
    bounds = [*(moments[n] for _, n in marks), end]
    return tuple(
        TimelineStage(name, *bounds[number : number + 2])
        for number, (name, _) in enumerate(marks)
        if name is not None
    )


class _History:
    """Applies events one after the other; keeps the running sums and the lives of the blocks."""

    def __init__(self, segments: list[dict[str, Any]], rules: SplitRules) -> None:
        self._rules = rules
        self._replay = Replay(segments, rules)
        self._born: list[BlockLife] = []
        self._freed: dict[int, int] = {}  # number of a block -> index of its free event
        self._live: dict[int, int] = {}  # address -> number of the block that lives there
        # By identity, so that each stack and each line of the snapshot is stored once.
        self._stacks: dict[int, tuple[Frame, ...]] = {}
        self._lines: dict[int, Frame] = {}
        for segment in segments:
            self._take_over(segment)
        self.allocated_bytes = [sum(block.size_bytes for block in self._born)]
        self.reserved_bytes = [sum(segment["total_size"] for segment in segments)]
        self.out_of_memory: list[OutOfMemoryEvent] = []

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one trace entry into account."""
        allocated_bytes, reserved_bytes = self.allocated_bytes[-1], self.reserved_bytes[-1]
        match event["action"]:
            case "alloc":
                allocated_bytes += self._allocate(event)
            case "free_requested":
                allocated_bytes -= self._free(event)
            case "free_completed":
                self._replay.complete_free(event["addr"])
            case "segment_alloc" | "segment_map" as action:
                expandable = action == "segment_map"
                self._replay.add_memory(event["addr"], event["size"], expandable=expandable)
                reserved_bytes += event["size"]
            case "segment_free" | "segment_unmap":
                self._replay.remove_memory(event["addr"], event["size"])
                reserved_bytes -= event["size"]
            case "oom":
                position = len(self.allocated_bytes)
                self.out_of_memory.append(
                    OutOfMemoryEvent(position, event["size"], event["device_free"])
                )
        self.allocated_bytes.append(allocated_bytes)
        self.reserved_bytes.append(reserved_bytes)

    def blocks(self) -> tuple[BlockLife, ...]:
        """All blocks, now that their ends are known."""
        return tuple(
            block if number not in self._freed else replace(block, freed=self._freed[number])
            for number, block in enumerate(self._born)
        )

    def _take_over(self, segment: Mapping[str, Any]) -> None:
        """Note the blocks of a segment that are allocated before the first event."""
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                requested_bytes = block["requested_size"]
                rounded_bytes = min(self._rules.rounded(requested_bytes), block["size"])
                self._begin(
                    BlockLife(
                        address=address,
                        requested_bytes=requested_bytes,
                        rounded_bytes=rounded_bytes,
                        size_bytes=block["size"],
                        stream=segment["stream"],
                        born=-1,
                        freed=None,
                        frames=self._frames_of(block),
                    )
                )
            address += block["size"]

    def _allocate(self, event: Mapping[str, Any]) -> int:
        rounded_bytes = self._rules.rounded(event["size"])
        size_bytes = self._replay.allocate(event["addr"], event["size"])
        block = BlockLife(
            address=event["addr"],
            requested_bytes=event["size"],
            rounded_bytes=rounded_bytes,
            size_bytes=rounded_bytes if size_bytes is None else size_bytes,
            stream=event["stream"],
            born=len(self.allocated_bytes) - 1,
            freed=None,
            frames=self._frames_of(event),
            size_known=size_bytes is not None,
        )
        self._begin(block)
        return block.size_bytes

    def _free(self, event: Mapping[str, Any]) -> int:
        number = self._live.pop(event["addr"], None)
        if number is None:
            raise IncompleteTraceError(
                f"a block at {event['addr']:#x} is freed that neither the first snapshot nor the "
                "trace knows: the two snapshots do not belong together"
            )
        self._freed[number] = len(self.allocated_bytes) - 1
        return self._born[number].size_bytes

    def _begin(self, block: BlockLife) -> None:
        self._live[block.address] = len(self._born)
        self._born.append(block)

    def _frames_of(self, entry: Mapping[str, Any]) -> tuple[Frame, ...]:
        """Return the frames of a trace entry or of a block, innermost first, as torch does."""
        frames = entry.get("frames", ())
        if id(frames) not in self._stacks:
            self._stacks[id(frames)] = tuple(map(self._line, frames))
        return self._stacks[id(frames)]

    def _line(self, frame: Mapping[str, Any]) -> Frame:
        if id(frame) not in self._lines:
            line = Frame(frame["filename"], frame["line"], frame["name"])
            self._lines[id(frame)] = line
        return self._lines[id(frame)]
