"""Where two traces part, and what only one of them has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramlab.recordings.alignment import (
    ExtraAllocation,
    extra_allocations,
    first_divergence,
    possibly_allocated,
    requests_digest,
    same_requests,
)
from vramlab.recordings.origins import UNKNOWN, AllocationOrigin
from vramlab.recordings.trace import Trace, TraceEvent
from vramlab.units import MIB

MM = AllocationOrigin("mm", "", "", "train.py:1 f")


def trace(*sizes: int, stage: str = "forward") -> Trace:
    """Allocations one behind the other in a segment."""
    events, offset = [], 0
    for block, size in enumerate(sizes):
        events.append(TraceEvent("alloc", size, 0, offset, 0, block, stage, MM))
        offset += -(-size // 512) * 512
    return Trace(tuple(events))


def test_equal_traces_do_not_part() -> None:
    assert first_divergence(trace(1, 2, 3), trace(1, 2, 3), "forward") is None
    assert extra_allocations(trace(1, 2, 3), trace(1, 2, 3), "forward") == []


def test_the_first_other_size_is_named() -> None:
    divergence = first_divergence(trace(1, 2, 3), trace(1, 5, 3), "forward")
    assert divergence is not None
    assert (divergence.number, divergence.allocation, divergence.what) == (1, 1, "another size")
    assert divergence.recorded is not None
    assert divergence.virtual is not None
    assert divergence.before is not None
    sizes = (
        divergence.recorded.size_bytes,
        divergence.virtual.size_bytes,
        divergence.before.size_bytes,
    )
    assert sizes == (2, 5, 1)


def test_a_size_goes_before_a_place() -> None:
    """The second lies elsewhere; the third has another size, and is the one that is named."""
    recorded, virtual = trace(1, 2, 3), trace(1, 2, 4)
    moved = TraceEvent("alloc", 2, 7, 0, 0, 1, "forward", MM)
    divergence = first_divergence(
        recorded, Trace((virtual.events[0], moved, virtual.events[2])), "forward"
    )
    assert divergence is not None
    assert (divergence.number, divergence.what) == (2, "another size")


def test_a_missing_allocation_is_told_from_all_that_agree_behind_it() -> None:
    recorded = trace(10, 20, 30, 40, 4096, 50, 60, 70, 4096, 80, 90, 100)
    virtual = trace(10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    nowhere = MM._replace(line="")
    assert extra_allocations(recorded, virtual, "forward") == [
        ExtraAllocation("recorded", 4096, nowhere, 2)
    ]
    assert extra_allocations(virtual, recorded, "forward") == [
        ExtraAllocation("virtual", 4096, nowhere, 2)
    ]


def moved(events: Trace) -> Trace:
    """The same requests, in another segment."""
    return Trace(tuple(replace(event, segment=7) for event in events.events))


@pytest.mark.parametrize(
    ("other", "same"), [(moved(trace(1, 2)), True), (trace(1, 3), False), (trace(1), False)]
)
def test_traces_share_a_digest_if_they_ask_for_the_same(other: Trace, same: bool) -> None:
    assert same_requests(trace(1, 2), other) is same
    assert (requests_digest(trace(1, 2)) == requests_digest(other)) is same


def test_where_segments_lie_decides_only_what_is_not_split_off() -> None:
    """600 B take 1024 B; 3 MiB are of a block that may have up to 1 MiB more."""
    first = trace(600, 3 * MIB)
    assert possibly_allocated(first, "forward") == (1024 + 3 * MIB, 1024 + 4 * MIB)
    freed = TraceEvent("free_requested", 3 * MIB, 0, 1024, 0, 1, "after forward", UNKNOWN)
    both = Trace((*first.events, freed))
    assert possibly_allocated(both, "forward") == (1024 + 3 * MIB, 1024 + 4 * MIB)
    assert possibly_allocated(both, "after forward") == (1024, 1024)
    assert possibly_allocated(both, "backward") is None
