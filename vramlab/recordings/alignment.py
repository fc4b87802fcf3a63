"""Divergence of two traces, and the allocations that one of them has and the other lacks.

Two programs that allocate alike have the same allocations in the same order; where blocks lie
follows from sizes and from when blocks are freed. So the sequence of allocations is looked at
first, then everything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from vramlab.recordings.origins import AllocationOrigin
from vramlab.recordings.trace import Trace, TraceEvent
from vramlab.units import MIB

_WINDOW = 60
"""How many allocations are skipped at most to find where the two go on together."""
_AGREEMENT = 3
"""How many allocations have to agree there, unless both end before."""


Pair = tuple[int | None, int | None]
"""Places in two sequences that belong together; None: the other has nothing there."""


@dataclass(frozen=True)
class Divergence:
    """The first event in which two traces differ."""

    stage: str
    number: int
    """Of the event in its stage, from 0."""
    allocation: int
    """How many allocations of the stage came before."""
    recorded: TraceEvent | None
    """None: the recorded stage has ended there."""
    virtual: TraceEvent | None
    """None: the virtual stage has ended there."""
    before: TraceEvent | None
    """The last event in which they agree, if there is one in the stage."""

    @property
    def what(self) -> str:
        """In a few words, what differs."""
        if self.recorded is None or self.virtual is None:
            return "one of them has ended"
        if self.recorded.action != self.virtual.action:
            return "another action"
        if self.recorded.size_bytes != self.virtual.size_bytes:
            return "another size"
        return "another place"


@dataclass(frozen=True)
class ExtraAllocation:
    """Allocations of the same kind that only one of the two has."""

    side: str
    """'recorded' or 'virtual'."""
    size_bytes: int
    origin: AllocationOrigin
    """Without the line, which differs from layer to layer."""
    count: int


def stages_of(*traces: Trace) -> list[str]:
    """Return the stages that have events, in order of appearance."""
    return list(dict.fromkeys(event.stage for trace in traces for event in trace.events))


def same_requests(recorded: Trace, virtual: Trace) -> bool:
    """Return whether both requested the same sizes, and freed the same between two requests.

    In which order blocks are given back between requests makes no difference to what is free then.
    So only where segments lie can make a difference: which of two equal blocks is taken, and with
    it what is split off, merged and asked of the driver.
    """
    return _requests(recorded) == _requests(virtual)


def requests_digest(trace: Trace) -> str:
    """Digest a trace to 16 hexadecimal digits, which are equal where `same_requests` is true."""
    text = repr([(size_bytes, sorted(blocks)) for size_bytes, blocks in _requests(trace)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _requests(trace: Trace) -> list[tuple[int, frozenset[int]]]:
    """Bytes of each request, and the numbers of the blocks given back since the one before."""
    requests, given_back = [], set[int]()
    for event in trace.events:
        if event.action == "free_requested":
            given_back.add(event.block)
        elif event.action == "alloc":
            requests.append((event.size_bytes, frozenset(given_back)))
            given_back.clear()
    return requests


def possibly_allocated(trace: Trace, stage: str) -> tuple[int, int] | None:
    """Return how many bytes the blocks in use at a stage's end have, at least and at most.

    Where segments lie decides only what is not split off them: up to 1 MiB of a block of more than
    1 MiB, and nothing of others. Source: `round_size` and `should_split` in
    c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13.

    Returns:
        None: nothing happened in that stage.
    """
    in_use: dict[int, int] = {}
    ends: tuple[int, int] | None = None
    for event in trace.events:
        if event.action == "alloc":
            in_use[event.block] = -(-event.size_bytes // 512) * 512
        elif event.action == "free_requested":
            in_use.pop(event.block, None)
        if event.stage == stage:
            least = sum(in_use.values())
            ends = least, least + MIB * sum(size_bytes > MIB for size_bytes in in_use.values())
    return ends


def first_divergence(recorded: Trace, virtual: Trace, stage: str) -> Divergence | None:
    """Find the first event in which a stage differs; None if it is the same.

    An allocation of another size comes before a block of the same size in another place.
    """
    ours, theirs = recorded.in_stage(stage), virtual.in_stage(stage)
    allocations = _first_difference(
        [event for event in ours if event.action == "alloc"],
        [event for event in theirs if event.action == "alloc"],
    )
    if allocations is not None:
        number, left, right, before = allocations
        return Divergence(stage, _position(ours, left), number, left, right, before)
    number = 0
    for number, (left_event, right_event) in enumerate(zip_longest(ours, theirs)):
        if left_event is None or right_event is None or left_event.key != right_event.key:
            allocation = sum(event.action == "alloc" for event in ours[:number])
            before = ours[number - 1] if number else None
            return Divergence(stage, number, allocation, left_event, right_event, before)
    return None


def _first_difference(
    recorded: Sequence[TraceEvent], virtual: Sequence[TraceEvent]
) -> tuple[int, TraceEvent | None, TraceEvent | None, TraceEvent | None] | None:
    for number, (left, right) in enumerate(zip_longest(recorded, virtual)):
        if left is None or right is None or _kind(left) != _kind(right):
            return number, left, right, recorded[number - 1] if number else None
    return None


def _position(events: Sequence[TraceEvent], event: TraceEvent | None) -> int:
    return len(events) if event is None else next(n for n, e in enumerate(events) if e is event)


def extra_allocations(recorded: Trace, virtual: Trace, stage: str) -> list[ExtraAllocation]:
    """List allocations that only one of the two has in a stage, the largest sums first.

    Where the sequences part, both are searched for the nearest place from which they agree again.
    """
    ours = [event for event in recorded.in_stage(stage) if event.action == "alloc"]
    theirs = [event for event in virtual.in_stage(stage) if event.action == "alloc"]
    counts: Counter[tuple[str, int, AllocationOrigin]] = Counter()
    for left, right in align([*map(_kind, ours)], [*map(_kind, theirs)]):
        if left is None or right is None:
            side, event = (
                ("virtual", theirs[right or 0]) if left is None else ("recorded", ours[left])
            )
            counts[(side, event.size_bytes, event.origin._replace(line=""))] += 1
    found = [ExtraAllocation(side, size, origin, n) for (side, size, origin), n in counts.items()]
    return sorted(found, key=lambda each: -each.size_bytes * each.count)


def align(ours: Sequence[object], theirs: Sequence[object]) -> Iterator[Pair]:
    """Pair two sequences in their order; what only one has is paired with None.

    Where they part, both are searched for the nearest place from which they agree again.
    """
    left = right = 0
    while left < len(ours) or right < len(theirs):
        both = left < len(ours) and right < len(theirs)
        if both and ours[left] == theirs[right]:
            yield left, right
            left, right = left + 1, right + 1
            continue
        skip_left, skip_right = _resume(ours, left, theirs, right)
        yield from ((place, None) for place in range(left, left + skip_left))
        yield from ((None, place) for place in range(right, right + skip_right))
        left, right = left + skip_left, right + skip_right


def _resume(
    ours: Sequence[object], left: int, theirs: Sequence[object], right: int
) -> tuple[int, int]:
    """Count the allocations to skip on either side until the two agree again."""
    for distance in range(2 * _WINDOW + 1):
        for skip_left in range(max(0, distance - _WINDOW), min(distance, _WINDOW) + 1):
            skip_right = distance - skip_left
            if _agree(ours, left + skip_left, theirs, right + skip_right):
                return skip_left, skip_right
    return max(0, len(ours) - left), max(0, len(theirs) - right)


def _agree(ours: Sequence[object], left: int, theirs: Sequence[object], right: int) -> bool:
    first, second = ours[left : left + _AGREEMENT], theirs[right : right + _AGREEMENT]
    at_end = left + len(first) == len(ours) and right + len(second) == len(theirs)
    enough = len(first) == len(second) and (len(first) == _AGREEMENT or at_end)
    return enough and list(first) == list(second)


def _kind(event: TraceEvent) -> tuple[int, int]:
    return event.size_bytes, event.stream
