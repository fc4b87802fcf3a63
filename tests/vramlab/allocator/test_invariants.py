"""The conservation check finds every kind of disagreement, and says it with numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from allocator_invariants import check

from vramlab.allocator import CachingAllocator, DeviceMemory
from vramlab.errors import AllocatorInvariantError
from vramlab.units import GIB, MIB


def grow_block(allocator: CachingAllocator) -> None:
    next(iter(allocator.reserve.segments.values())).first.size_bytes += 512


def shorten_segment(allocator: CachingAllocator) -> None:
    next(iter(allocator.reserve.segments.values())).size_bytes -= 512


def overlap_segments(allocator: CachingAllocator) -> None:
    segment = min(allocator.reserve.segments.values(), key=lambda each: each.address)
    segment.size_bytes += 2 * GIB
    segment.blocks()[-1].size_bytes += 2 * GIB


def forget_cached_block(allocator: CachingAllocator) -> None:
    allocator.large_pool.cached[0].pop()


def shuffle_cache(allocator: CachingAllocator) -> None:
    allocator.large_pool.cached[0].reverse()


def leave_neighbours_apart(allocator: CachingAllocator) -> None:
    block = next(iter(allocator.reserve.segments.values())).first
    block.allocated = False
    block.free = True


def lose_allocated_bytes(allocator: CachingAllocator) -> None:
    allocator.statistics.all.allocated_bytes.current -= 512


def lose_track_of_frees(allocator: CachingAllocator) -> None:
    allocator.statistics.all.active.freed = -1


def lose_reserved_bytes(allocator: CachingAllocator) -> None:
    allocator.reserve.reserved_bytes -= 512


def forget_waiting_block(allocator: CachingAllocator) -> None:
    allocator._awaiting_free.clear()


def take_memory_behind_its_back(allocator: CachingAllocator) -> None:
    allocator.memory.unmap_pages(40 * MIB)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (grow_block, r"does not follow on 0x"),
        (shorten_segment, r"end of its blocks: \d+, but the blocks say \d+"),
        (overlap_segments, r"where the one before ends at 0x"),
        (forget_cached_block, r"large_pool: addresses in the cache"),
        (shuffle_cache, r"large_pool: order of the cache"),
        (leave_neighbours_apart, r"is not merged with <Block 0x"),
        (lose_allocated_bytes, r"allocated_bytes\.all\.current: \d+, but the blocks say \d+"),
        (lose_track_of_frees, r"active\.all cannot be: {'current': 5, .* 'freed': -1}"),
        (lose_reserved_bytes, r"reserved_bytes: \d+, but the blocks say \d+"),
        (forget_waiting_block, r"blocks that wait for a stream: \[\], but the blocks say \[\d+\]"),
        (take_memory_behind_its_back, r"\d+ bytes are reserved of \d+ that the process uses"),
    ],
)
def test_damage_is_found(damage: Callable[[CachingAllocator], None], message: str) -> None:
    allocator = CachingAllocator(DeviceMemory(GIB))
    blocks = [allocator.malloc(3 * MIB) for _ in range(4)]
    waiting, whole = allocator.malloc(30 * MIB), allocator.malloc(12 * MIB)
    allocator.record_stream(waiting, 1)
    allocator.free(waiting)
    allocator.free(blocks[1])
    del whole
    check(allocator)
    damage(allocator)
    with pytest.raises(AllocatorInvariantError, match=message):
        check(allocator)
