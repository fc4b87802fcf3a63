"""Private pools: who gets their blocks, and when their segments can be freed."""

from __future__ import annotations

import pytest
from allocator_invariants import check

from tests.vramlab.allocator.conftest import MakeAllocator
from vramlab.allocator import CachingAllocator, DeviceMemory, segments
from vramlab.errors import OutOfDeviceMemory
from vramlab.units import GIB, MIB

GRAPH, POOL = (1, 0), (0, 1)
SIDE = 5


def all_streams(stream: int) -> bool:
    return True


def reserved(allocator: CachingAllocator, pool_id: tuple[int, int]) -> int:
    current = allocator.stats()["reserved_bytes_by_private_pools"][pool_id]["all"]["current"]
    assert isinstance(current, int)
    return current


def test_a_pool_gets_segments_of_its_own(allocator: CachingAllocator) -> None:
    cached = allocator.malloc(4 * MIB)
    allocator.free(cached)
    allocator.begin_allocate_to_pool(GRAPH, lambda stream: stream == SIDE)
    inside, outside = allocator.malloc(4 * MIB, SIDE), allocator.malloc(4 * MIB)
    allocator.end_allocate_to_pool(GRAPH)
    later = allocator.malloc(4 * MIB, SIDE)
    pools = [block.segment.pool.id for block in (inside, outside, later)]
    assert pools == [GRAPH, (0, 0), (0, 0)]
    # Requests below 10 MiB share segments of 20 MiB, each pool and stream its own.
    assert allocator.reserved_bytes == 3 * 20 * MIB
    assert reserved(allocator, GRAPH) == 20 * MIB
    assert [s["segment_pool_id"] for s in segments(allocator, pool_id=GRAPH)] == [GRAPH]


def test_segments_stay_until_the_last_user_goes(allocator: CachingAllocator) -> None:
    for _ in range(2):
        allocator.begin_allocate_to_pool(GRAPH, all_streams)
        block = allocator.malloc(12 * MIB)
        allocator.free(block)
        allocator.end_allocate_to_pool(GRAPH)
    assert allocator.pool_use_count(GRAPH) == 2
    assert allocator.reserved_bytes == 12 * MIB
    allocator.release_pool(GRAPH)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 12 * MIB
    allocator.release_pool(GRAPH)
    assert allocator.reserved_bytes == 12 * MIB
    allocator.empty_cache()
    assert allocator.reserved_bytes == reserved(allocator, GRAPH) == 0
    numbers = allocator.stats()["reserved_bytes_by_private_pools"][GRAPH]["large_pool"]
    assert numbers == {
        "current": 0, "peak": 12 * MIB, "allocated": 12 * MIB, "freed": 12 * MIB
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="INTERNAL ASSERT FAILED"):
        allocator.pool_use_count(GRAPH)


def test_a_block_outlives_its_pools_users(allocator: CachingAllocator) -> None:
    allocator.create_or_retain_pool(POOL)
    allocator.begin_allocate_to_pool(POOL, all_streams)
    block = allocator.malloc(12 * MIB)
    allocator.end_allocate_to_pool(POOL)
    allocator.release_pool(POOL)
    allocator.release_pool(POOL)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 12 * MIB
    with pytest.raises(RuntimeError, match="use_count > 0 INTERNAL ASSERT FAILED"):
        allocator.create_or_retain_pool(POOL)
    allocator.free(block)
    allocator.empty_cache(pool_id=POOL)
    assert allocator.reserved_bytes == 0
    allocator.create_or_retain_pool(POOL)
    assert allocator.pool_use_count(POOL) == 1


def test_the_latest_pool_is_asked_first(allocator: CachingAllocator) -> None:
    allocator.begin_allocate_to_pool((0, 1), all_streams)
    allocator.begin_allocate_to_pool((0, 2), all_streams)
    inner = allocator.malloc(512)
    with pytest.raises(RuntimeError, match="already recording to mempool_id"):
        allocator.begin_allocate_to_pool((0, 1), all_streams)
    allocator.end_allocate_to_pool((0, 2))
    outer = allocator.malloc(512)
    allocator.end_allocate_to_pool((0, 1))
    assert [inner.segment.pool.id, outer.segment.pool.id] == [(0, 2), (0, 1)]
    assert allocator.pool_use_count((0, 1)) == 2  # also of the call that failed
    with pytest.raises(RuntimeError, match="not currently recording to mempool_id"):
        allocator.end_allocate_to_pool((0, 1))


def test_while_a_graph_is_captured_streams_are_not_asked(allocator: CachingAllocator) -> None:
    before, during = allocator.malloc(4 * MIB), allocator.malloc(4 * MIB)
    allocator.record_stream(before, SIDE)
    allocator.begin_capture()
    allocator.record_stream(during, SIDE)
    allocator.free(before)
    allocator.free(during)
    allocator.malloc(512)
    allocator.empty_cache()
    assert allocator.awaiting_free == (before, during)
    assert allocator.stats()["num_sync_all_streams"] == 0
    check(allocator)
    allocator.history.configure("all")
    allocator.end_capture()
    allocator.malloc(512)
    # The captured work is done with its block at once; the other one waits for its stream first.
    freed = [each for each in allocator.history.events() if each.action == "free_completed"]
    assert [each.address for each in freed] == [during.address, before.address]
    assert allocator.awaiting_free == ()


def test_pools_count_as_captures_up_to_2_12() -> None:
    counted = []
    for pools_count_as_captures in (False, True):
        allocator = CachingAllocator(
            DeviceMemory(GIB), pools_count_as_captures=pools_count_as_captures
        )
        allocator.free(allocator.malloc(12 * MIB))
        allocator.begin_allocate_to_pool(POOL, all_streams)
        allocator.empty_cache()
        counted.append(allocator.reserved_bytes)
        allocator.end_allocate_to_pool(POOL)
        check(allocator)
    assert counted == [0, 12 * MIB]


def test_a_pool_helps_out_before_memory_runs_out(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(total_bytes=GIB)
    allocator.create_or_retain_pool(POOL)
    allocator.set_use_on_oom(POOL, True)
    allocator.begin_allocate_to_pool(POOL, all_streams)
    allocator.free(allocator.malloc(600 * MIB))
    allocator.end_allocate_to_pool(POOL)
    allocator.release_pool(POOL)
    block = allocator.malloc(500 * MIB)
    assert block.segment.pool.id == POOL
    assert allocator.reserved_bytes == 600 * MIB
    assert allocator.stats()["num_alloc_retries"] == 0
    allocator.free(block)
    allocator.set_use_on_oom(POOL, False)
    with pytest.raises(OutOfDeviceMemory) as raised:
        allocator.malloc(500 * MIB)
    # The free blocks of private pools count as allocated in the message.
    assert (
        "Of the allocated memory 600.00 MiB is allocated by PyTorch, with 600.00 MiB allocated in "
        "private pools (e.g., CUDA Graphs), and 0 bytes is reserved by PyTorch but unallocated."
    ) in str(raised.value)


def test_a_captured_request_does_not_empty_the_cache(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(total_bytes=GIB)
    allocator.free(allocator.malloc(600 * MIB))
    allocator.begin_allocate_to_pool(GRAPH, all_streams)
    allocator.begin_capture()
    with pytest.raises(OutOfDeviceMemory):
        allocator.malloc(500 * MIB)
    allocator.end_capture()
    assert allocator.stats()["num_alloc_retries"] == 0
    block = allocator.malloc(500 * MIB)
    assert (block.segment.pool.id, allocator.reserved_bytes) == (GRAPH, 500 * MIB)


def test_blocks_of_a_pool_can_stay_whole(allocator: CachingAllocator) -> None:
    allocator.create_or_retain_pool(POOL)
    allocator.set_no_split(POOL)
    allocator.begin_allocate_to_pool(POOL, all_streams)
    small, large = allocator.malloc(512), allocator.malloc(2 * MIB)
    assert (small.size_bytes, large.size_bytes) == (2 * MIB, 20 * MIB)


def test_expandable_segments_of_a_pool(make_allocator: MakeAllocator) -> None:
    """Pages of 20 MiB: 16 and 16 MiB are two of them, 40 MiB."""
    allocator = make_allocator("expandable_segments:True")
    allocator.begin_allocate_to_pool(GRAPH, all_streams)
    blocks = [allocator.malloc(16 * MIB), allocator.malloc(16 * MIB)]
    allocator.end_allocate_to_pool(GRAPH)
    assert reserved(allocator, GRAPH) == 40 * MIB
    check(allocator)
    for block in blocks:
        allocator.free(block)
    allocator.empty_cache()
    assert reserved(allocator, GRAPH) == 40 * MIB
    allocator.release_pool(GRAPH)
    allocator.empty_cache()
    assert reserved(allocator, GRAPH) == 0
