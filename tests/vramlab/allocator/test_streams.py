"""Streams: a block serves its own stream, and waits for the others that were recorded on it."""

from __future__ import annotations

from vramlab.allocator import CachingAllocator, segments
from vramlab.units import MIB


def test_a_cached_block_serves_its_own_stream_only(allocator: CachingAllocator) -> None:
    block = allocator.malloc(30 * MIB, stream=7)
    address = block.address
    allocator.free(block)
    assert allocator.malloc(30 * MIB, stream=0).address != address
    assert allocator.malloc(30 * MIB, stream=7).address == address
    assert allocator.reserved_bytes == 60 * MIB


def test_a_block_used_elsewhere_is_freed_in_two_steps(allocator: CachingAllocator) -> None:
    block = allocator.malloc(30 * MIB - 5)
    allocator.record_stream(block, 1)
    allocator.free(block)
    stats = allocator.stats()
    assert stats["allocated_bytes"]["all"]["current"] == 0  # falls at once
    assert stats["allocation"]["all"]["current"] == 0
    assert stats["active_bytes"]["all"]["current"] == 30 * MIB  # these when it is done
    assert stats["active"]["all"]["current"] == 1
    assert stats["requested_bytes"]["all"]["current"] == 30 * MIB - 5
    ((shown,),) = (segment["blocks"] for segment in segments(allocator))
    assert shown["state"] == "active_pending_free"
    assert segments(allocator)[0]["active_size"] == 30 * MIB
    assert segments(allocator)[0]["allocated_size"] == 0
    allocator.malloc(512)  # looks at what the streams have done
    assert allocator.stats()["active_bytes"]["all"]["current"] == 512
    assert allocator.stats()["requested_bytes"]["all"]["current"] == 512


def test_the_next_request_gets_the_block_already(allocator: CachingAllocator) -> None:
    block = allocator.malloc(30 * MIB)
    address = block.address
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert allocator.malloc(30 * MIB).address == address


def test_synchronize_looks_too(allocator: CachingAllocator) -> None:
    block = allocator.malloc(30 * MIB)
    allocator.record_stream(block, 1)
    allocator.record_stream(block, 2)
    allocator.free(block)
    assert allocator.awaiting_free == (block,)
    allocator.synchronize()
    assert len(allocator.awaiting_free) == 0
    assert allocator.stats()["active_bytes"]["all"]["current"] == 0


def test_emptying_the_cache_waits_for_every_stream(allocator: CachingAllocator) -> None:
    block = allocator.malloc(30 * MIB)
    allocator.record_stream(block, 1)
    allocator.free(block)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
    assert allocator.stats()["num_sync_all_streams"] == 1


def test_a_block_that_waits_does_not_merge(allocator: CachingAllocator) -> None:
    first, second = allocator.malloc(5 * MIB), allocator.malloc(15 * MIB)
    allocator.record_stream(first, 1)
    allocator.free(first)
    allocator.free(second)
    ((waits, free),) = (segment["blocks"] for segment in segments(allocator))
    assert (waits["size"], free["size"]) == (5 * MIB, 15 * MIB)
    allocator.synchronize()
    assert [block["size"] for block in segments(allocator)[0]["blocks"]] == [20 * MIB]
