"""Timelines of random programs, compared with the allocator's own counters."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, snapshot
from vramlab.errors import OutOfDeviceMemory
from vramlab.measure import Timeline, timeline_from_snapshots
from vramlab.units import GIB, KIB, MIB

CONFIGURATIONS = (
    "",
    "max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "expandable_segments:True",
    "garbage_collection_threshold:0.6",
)
SIZES = st.one_of(
    st.integers(1, 4 * KIB), st.integers(500 * KIB, 3 * MIB), st.integers(4 * MIB, 90 * MIB)
)
PROGRAMS = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), SIZES),
        st.tuples(st.just("free"), st.integers(0, 10**6)),
        st.tuples(st.just("free, used elsewhere"), st.integers(0, 10**6)),
        st.tuples(st.just("empty cache"), st.just(0)),
    ),
    max_size=60,
)


def run(allocator: CachingAllocator, program: list[tuple[str, int]]) -> list[int]:
    """Run a program; give allocated bytes after each of its steps."""
    live, allocated_bytes = [], []
    for step, number in program:
        if step == "malloc":
            with suppress(OutOfDeviceMemory):
                live.append(allocator.malloc(number))
        elif step == "empty cache":
            allocator.empty_cache()
        elif live:
            block = live.pop(number % len(live))
            if step == "free, used elsewhere":
                allocator.record_stream(block, 1)
            allocator.free(block)
        allocated_bytes.append(allocator.allocated_bytes)
    return allocated_bytes


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CONFIGURATIONS), PROGRAMS, PROGRAMS)
def test_every_size_is_found_again(
    configuration: str, before: list[tuple[str, int]], recorded: list[tuple[str, int]]
) -> None:
    allocator = CachingAllocator(
        DeviceMemory(1 * GIB), AllocatorSettings.parse(configuration), device=0
    )
    run(allocator, before)
    allocator.record_history()
    first = snapshot([allocator])
    allocator.reset_peak_stats()
    allocated_bytes = run(allocator, recorded)
    last = snapshot([allocator])

    timeline: Timeline = timeline_from_snapshots(
        first,
        last,
        measured_peak_bytes=allocator.stats()["allocated_bytes"]["all"]["peak"],
    )

    assert timeline.unexplained_bytes == 0
    assert all(block.size_known for block in timeline.blocks)
    assert timeline.allocated_bytes[-1] == allocator.allocated_bytes
    assert timeline.reserved_bytes[-1] == allocator.reserved_bytes
    assert set(allocated_bytes) <= set(timeline.allocated_bytes)
    live = {
        (block.address, block.size_bytes, block.requested_bytes)
        for block in timeline.blocks
        if block.freed is None
    }
    assert live == {
        (block["address"], block["size"], block["requested_size"])
        for segment in last["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
