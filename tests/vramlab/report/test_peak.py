"""The peak, followed event by event, against the plain way: every live set kept."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramlab.allocator import Block, CachingAllocator, DeviceMemory
from vramlab.errors import OutOfDeviceMemory
from vramlab.report.evidence.origins import BlockOrigin
from vramlab.report.evidence.peak import LiveBlocks, PeakWatch
from vramlab.units import GIB, MIB

NOWHERE = BlockOrigin(line=None, caller=None, in_backward=False, owner=None)


def watched(total_bytes: int = GIB) -> tuple[CachingAllocator, PeakWatch]:
    allocator = CachingAllocator(DeviceMemory(total_bytes))
    return allocator, PeakWatch(allocator, itertools.count(1).__next__, lambda: NOWHERE)


def contents(live: LiveBlocks) -> list[tuple[int, int]]:
    return [(block.address, block.size_bytes) for block in live.blocks]


sizes = st.one_of(st.integers(1, 4096), st.integers(MIB // 2, 30 * MIB))
actions = st.lists(st.one_of(sizes, st.floats(0, 1, exclude_max=True)), max_size=60)


@given(actions)
def test_it_remembers_what_lived_at_the_first_highest_moment(actions: list[float]) -> None:
    """An action is a size to allocate, or (below 1) the share of the live blocks to free at."""
    allocator, watch = watched()
    live: list[Block] = []
    highest_bytes, at_highest = 0, list[tuple[int, int]]()
    for action in actions:
        if isinstance(action, int):
            live.append(allocator.malloc(action))
        elif live:
            allocator.free(live.pop(int(action * len(live))))
        if allocator.allocated_bytes > highest_bytes:
            highest_bytes = allocator.allocated_bytes
            at_highest = sorted((block.address, block.size_bytes) for block in live)
    peak = watch.peak()
    assert peak.allocated_bytes == highest_bytes
    assert contents(peak) == at_highest
    assert contents(watch.now()) == sorted((block.address, block.size_bytes) for block in live)
    assert watch.peak_reserved_bytes == allocator.stats()["reserved_bytes"]["all"]["peak"]


def test_blocks_count_with_the_remainder_that_was_not_split_off() -> None:
    allocator, watch = watched()
    allocator.free(allocator.malloc(12 * MIB))
    allocator.malloc(12 * MIB - 512 * 1024)  # the rest, 512 KiB, is below the 1 MiB to split off
    assert contents(watch.now())[0][1] == 12 * MIB


def test_a_reserved_peak_outlives_empty_cache_and_reset_counters() -> None:
    allocator, watch = watched()
    allocator.free(allocator.malloc(100 * MIB))
    allocator.empty_cache()
    allocator.reset_peak_stats()
    allocator.malloc(2 * MIB)
    assert watch.peak_reserved_bytes == 100 * MIB
    assert watch.peak().allocated_bytes == 100 * MIB


def test_out_of_memory_keeps_what_lived_then_and_counts() -> None:
    allocator, watch = watched(100 * MIB)
    block = allocator.malloc(60 * MIB)
    for _ in range(2):
        with pytest.raises(OutOfDeviceMemory):
            allocator.malloc(50 * MIB)
    allocator.free(block)
    failed = watch.last_out_of_memory
    assert failed is not None
    assert (watch.out_of_memory_count, failed.segment_bytes) == (2, 50 * MIB)
    assert contents(failed.live) == [(block.address, 60 * MIB)]


def test_a_block_that_another_stream_uses_counts_until_it_is_freed() -> None:
    allocator, watch = watched()
    first = allocator.malloc(10 * MIB)
    allocator.record_stream(first, 7)
    allocator.free(first)
    second = allocator.malloc(5 * MIB)
    # torch's allocated bytes fall with the request to free, even if a stream still uses the block.
    assert watch.peak().allocated_bytes == 10 * MIB
    assert contents(watch.now()) == [(second.address, second.size_bytes)]
