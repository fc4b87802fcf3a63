"""An allocation trace, small enough to keep.

A block's place is recorded as the number of its segment, counted as segments are taken from the
driver, and the offset in it: two machines that do the same have the same events. The addresses of
the segments, which only the driver decides, are kept apart. Frees name the allocation that they
end. Each event belongs to a stage, or to the time after one.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from vramlab.errors import VramlabError
from vramlab.recordings.origins import UNKNOWN, AllocationOrigin, OriginReader

_UNIT_BYTES = 512  # every block begins at a multiple of it: kMinBlockSize

_CODES = {
    "alloc": "a",
    "free_requested": "f",
    "free_completed": "c",
    "segment_alloc": "S",
    "segment_free": "s",
    "segment_map": "M",
    "segment_unmap": "U",
    "oom": "o",
}
_ACTIONS = {code: action for action, code in _CODES.items()}


class TraceError(VramlabError):
    """A trace does not fit together, or is no trace."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One thing that the allocator did."""

    action: str
    """As in torch's memory history: alloc, free_requested, free_completed, segment_alloc, ..."""
    size_bytes: int
    """What was asked for; of a free what its allocation asked for; of a segment its size."""
    segment: int
    """Number of the segment, from 0."""
    offset_bytes: int
    """Where in the segment."""
    stream: int
    """Number of the stream, in the order in which streams appear."""
    block: int
    """Which allocation it begins or ends, counted from 0; -1 for segments."""
    stage: str
    """In which stage, or 'after ...'."""
    origin: AllocationOrigin
    """Where an allocation comes from; unknown for other events."""

    @property
    def key(self) -> tuple[str, int, int, int, int]:
        """Return what is equal of two events that are the same: what, how much, where, which."""
        return (self.action, self.size_bytes, self.segment, self.offset_bytes, self.stream)

    def __str__(self) -> str:
        where = f"segment {self.segment} + {self.offset_bytes:,}"
        told = f"{self.action} {self.size_bytes:,} B at {where}"
        return f"{told}: {self.origin}" if self.action == "alloc" else told


@dataclass(frozen=True)
class Trace:
    """Every event of a program, oldest first."""

    events: tuple[TraceEvent, ...]
    addresses: tuple[int, ...] = field(default=(), compare=False)
    """Of each segment, where the driver put it; empty in recordings made before they were kept."""

    def in_stage(self, stage: str) -> tuple[TraceEvent, ...]:
        """Return the events of one stage."""
        return tuple(event for event in self.events if event.stage == stage)

    def to_dict(self) -> dict[str, Any]:
        """Return columns of numbers, for JSON."""
        origins: dict[AllocationOrigin, int] = {}
        data: dict[str, Any] = {
            "actions": "".join(_CODES[event.action] for event in self.events),
            "stages": [(s, len(list(run))) for s, run in groupby(e.stage for e in self.events)],
            "size": [],
            "place": [],
            "origin": [],
            "ends": [],
            "streams": {},
            "addresses": list(self.addresses),
        }
        allocations = 0
        for number, event in enumerate(self.events):
            if event.action == "alloc":
                data["origin"].append(origins.setdefault(event.origin, len(origins)))
                allocations += 1
            if event.action in ("free_requested", "free_completed"):
                data["ends"].append(allocations - event.block)
            else:
                data["size"].append(event.size_bytes)
                data["place"].append((event.segment, event.offset_bytes // _UNIT_BYTES))
            if event.stream:
                data["streams"][str(number)] = event.stream
        data["origins"] = [list(origin) for origin in origins]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trace:
        """Read what `to_dict` wrote.

        Raises:
            TraceError: it is something else.
        """
        try:
            return cls(tuple(_decode(data)), tuple(data.get("addresses", ())))
        except (KeyError, IndexError, StopIteration, TypeError, ValueError, RuntimeError) as error:
            raise TraceError(f"this is no allocation trace ({error!r})") from error


def _decode(data: Mapping[str, Any]) -> Iterable[TraceEvent]:
    origins = [AllocationOrigin(*each) for each in data["origins"]]
    stages = [stage for stage, count in data["stages"] for _ in range(count)]
    sizes, places = iter(data["size"]), iter(data["place"])
    origin_of, ends = iter(data["origin"]), iter(data["ends"])
    begun: list[tuple[int, int, int]] = []
    for number, code in enumerate(data["actions"]):
        action = _ACTIONS[code]
        block, origin = -1, UNKNOWN
        if code in "fc":
            block = len(begun) - next(ends)
            size_bytes, segment, offset_bytes = begun[block]
        else:
            size_bytes = next(sizes)
            segment, offset = next(places)
            offset_bytes = offset * _UNIT_BYTES
            if code == "a":
                block, origin = len(begun), origins[next(origin_of)]
                begun.append((size_bytes, segment, offset_bytes))
        stream = data["streams"].get(str(number), 0)
        yield TraceEvent(
            action, size_bytes, segment, offset_bytes, stream, block, stages[number], origin
        )


def trace_of_history(entries: Sequence[Mapping[str, Any]], stage_names: Mapping[str, str]) -> Trace:
    """Make a trace from one device's trace in torch.cuda.memory._snapshot().

    Args:
        entries: recorded from the process's first allocation on.
        stage_names: what a stage's mark, the `user_metadata` of its events, stands for.

    Raises:
        TraceError: something is freed or used that was never allocated.
    """
    reader = _Reader(stage_names)
    events = tuple(reader.events(entries))
    return Trace(events, tuple(reader.addresses))


class _Reader:
    """Follows a history, and replaces addresses by segments and offsets."""

    def __init__(self, stage_names: Mapping[str, str]) -> None:
        self._stage_names = stage_names
        self._origins = OriginReader()
        self._segments: dict[int, tuple[int, int]] = {}  # address -> number, size in bytes
        self._starts: list[int] = []  # their addresses, in order
        self.addresses: list[int] = []  # of each segment, by number
        self._streams: dict[int, int] = {}
        self._live: dict[int, tuple[int, int]] = {}  # address -> allocation, bytes asked for
        self._pending: dict[int, tuple[int, int]] = {}  # freed, while a stream still uses it
        self._allocations = 0
        self._mark = ""

    def events(self, entries: Sequence[Mapping[str, Any]]) -> Iterable[TraceEvent]:
        for entry in entries:
            if entry["action"] in _CODES:
                yield self._event(entry)

    def _event(self, entry: Mapping[str, Any]) -> TraceEvent:
        action, size_bytes = entry["action"], entry["size"]
        address = entry.get("addr", 0)
        segment, offset_bytes, block, origin = -1, 0, -1, UNKNOWN
        match action:
            case "segment_alloc" | "segment_map":
                segment, offset_bytes = self._add(address, size_bytes, action == "segment_map")
            case "alloc":
                segment, offset_bytes = self._place(address)
                block, origin = self._allocations, self._origins.read(entry.get("frames", ()))
                self._live[address] = (block, size_bytes)
                self._allocations += 1
            case "free_requested":
                segment, offset_bytes = self._place(address)
                block, size_bytes = self._pending[address] = self._end(self._live, address)
            case "free_completed":
                segment, offset_bytes = self._place(address)
                block, size_bytes = self._end(self._pending, address)
            case "segment_free" | "segment_unmap":
                segment, offset_bytes = self._place(address)
                if action == "segment_free":
                    del self._segments[address]
                    self._starts.remove(address)
        stream = self._streams.setdefault(entry["stream"], len(self._streams))
        # A mark belongs to the thread that set it: events of the backward pass's have none.
        self._mark = entry.get("user_metadata") or self._mark
        stage = self._stage_names.get(self._mark, self._mark)
        return TraceEvent(action, size_bytes, segment, offset_bytes, stream, block, stage, origin)

    def _add(self, address: int, size_bytes: int, mapped: bool) -> tuple[int, int]:
        """Note new memory; pages mapped within or behind an expandable segment belong to it."""
        if mapped:
            for start, (number, length) in self._segments.items():
                if start <= address <= start + length:
                    end = max(start + length, address + size_bytes)
                    self._segments[start] = (number, end - start)
                    return number, address - start
        number = len(self.addresses)
        self._segments[address] = (number, size_bytes)
        insort(self._starts, address)
        self.addresses.append(address)
        return number, 0

    def _place(self, address: int) -> tuple[int, int]:
        before = bisect_right(self._starts, address)
        start = self._starts[before - 1] if before else address
        if not before or address >= start + self._segments[start][1]:
            raise TraceError(
                f"the history uses address {address:#x} and does not show where it was taken from "
                "the driver: it was not switched on before the process's first allocation"
            )
        return self._segments[start][0], address - start

    def _end(self, blocks: dict[int, tuple[int, int]], address: int) -> tuple[int, int]:
        try:
            return blocks.pop(address)
        except KeyError:
            raise TraceError(
                f"the history frees {address:#x} and does not show its allocation: it was not "
                "switched on before the process's first allocation, or entries are missing"
            ) from None
