"""Garbage collection: old cached blocks go before the driver is asked for more."""

from __future__ import annotations

from collections.abc import Callable

from vramlab.allocator import CachingAllocator
from vramlab.units import MIB

MakeAllocator = Callable[..., CachingAllocator]

# 1000 MiB, of which 500 are allowed; above 40 % of those, 200 MiB, garbage is collected
SETTINGS = "garbage_collection_threshold:0.4,per_process_memory_fraction:0.5"


def test_nothing_happens_below_the_threshold(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(SETTINGS, total_bytes=1000 * MIB)
    for block in [allocator.malloc(100 * MIB) for _ in range(2)]:
        allocator.free(block)
    allocator.malloc(120 * MIB)
    assert allocator.reserved_bytes == 320 * MIB  # 200 were not above 200


def test_blocks_of_at_least_average_age_go(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(SETTINGS, total_bytes=1000 * MIB)
    old, young, in_use = (allocator.malloc(size * MIB) for size in (100, 110, 30))
    allocator.free(old)
    for _ in range(3):
        allocator.malloc(12 * MIB, stream=1)  # a search; each makes what is cached older
    allocator.free(young)
    allocator.malloc(130 * MIB)
    # 276 reserved are 76 above 200. Ages 4 and 1, average 2.5: the old one goes, and 100 >= 76
    assert allocator.reserved_bytes == (110 + 30 + 3 * 12 + 130) * MIB
    assert in_use.allocated
    assert allocator.stats()["num_alloc_retries"] == 0


def test_it_goes_on_until_enough_is_collected(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(SETTINGS, total_bytes=1000 * MIB)
    blocks = [allocator.malloc(size * MIB) for size in (100, 120, 140)]
    for block in blocks:
        allocator.free(block)
        allocator.malloc(12 * MIB, stream=1)  # a search, so that each is older than the next
    # 396 reserved are 196 above 200. Ages 3, 2, 1 and average 2: 100 + 120 = 220 go
    allocator.malloc(130 * MIB, stream=2)
    assert allocator.reserved_bytes == (140 + 3 * 12 + 130) * MIB


def test_split_blocks_and_small_ones_are_not_collected(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(SETTINGS, total_bytes=1000 * MIB)
    allocator.free(allocator.malloc(512))
    segment = allocator.malloc(300 * MIB)
    allocator.free(segment)
    allocator.malloc(100 * MIB)  # of the 300: the rest is a piece of a segment in use
    allocator.malloc(150 * MIB, stream=1)
    assert allocator.reserved_bytes == (2 + 300 + 150) * MIB


def test_without_a_memory_fraction_there_is_none(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator("garbage_collection_threshold:0.1", total_bytes=1000 * MIB)
    for block in [allocator.malloc(100 * MIB) for _ in range(5)]:
        allocator.free(block)
    allocator.malloc(200 * MIB)
    assert allocator.reserved_bytes == 700 * MIB
