"""Expandable segments: few, mapped page by page, and unmapped again when empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vramlab.allocator import AllocatorSettings, CachingAllocator, segments, traces
from vramlab.errors import AllocatorConfigError, OutOfDeviceMemory
from vramlab.units import GIB, MIB

MakeAllocator = Callable[..., CachingAllocator]


@pytest.fixture
def growing(make_allocator: MakeAllocator) -> CachingAllocator:
    return make_allocator("expandable_segments:True", total_bytes=GIB)


def test_pages_are_2_mib_in_the_small_pool_and_20_in_the_large(growing: CachingAllocator) -> None:
    growing.malloc(512)
    assert growing.reserved_bytes == 2 * MIB
    growing.malloc(2 * MIB)
    assert growing.reserved_bytes == (2 + 20) * MIB
    growing.malloc(30 * MIB)  # 18 of the first page are free; 12 more need another
    assert growing.reserved_bytes == (2 + 40) * MIB


def test_the_page_of_the_large_pool_can_be_set(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator("expandable_segments:True,large_segment_size_mb:32")
    allocator.malloc(33 * MIB)
    assert allocator.reserved_bytes == 64 * MIB


def test_cuda_cannot_map_an_odd_number_of_mebibytes(make_allocator: MakeAllocator) -> None:
    with pytest.raises(AllocatorConfigError, match="pages of 21 MiB: CUDA maps multiples of 2 MiB"):
        make_allocator("expandable_segments:True,large_segment_size_mb:21")


def test_blocks_of_one_segment_lie_side_by_side(growing: CachingAllocator) -> None:
    first, second = growing.malloc(50 * MIB), growing.malloc(70 * MIB)
    assert second.address == first.address + 50 * MIB
    (segment,) = segments(growing)
    assert segment["is_expandable"] is True
    assert segment["total_size"] == 120 * MIB  # 6 pages


def test_a_freed_block_grows_into_what_a_larger_one_needs(growing: CachingAllocator) -> None:
    block = growing.malloc(40 * MIB)
    address = block.address
    growing.free(block)
    assert growing.malloc(60 * MIB).address == address
    assert growing.reserved_bytes == 60 * MIB


def test_mapping_counts_as_reserved_but_not_as_a_segment(growing: CachingAllocator) -> None:
    growing.malloc(50 * MIB)
    stats = growing.stats()
    assert stats["reserved_bytes"]["large_pool"]["current"] == 60 * MIB
    assert stats["segment"]["all"]["allocated"] == 0
    assert stats["inactive_split"]["all"]["allocated"] == 0  # 10 MiB are free, but could go
    assert stats["num_device_alloc"] == 1


def test_a_rest_of_512_bytes_is_split_off_in_the_large_pool_too(growing: CachingAllocator) -> None:
    assert growing.malloc(20 * MIB - 512).size_bytes == 20 * MIB - 512


def test_only_whole_empty_pages_are_unmapped(growing: CachingAllocator) -> None:
    first, hole, last = (growing.malloc(size * MIB) for size in (30, 60, 10))
    growing.record_history()
    growing.free(hole)  # 30 to 90 MiB; its whole pages are 40 to 80
    growing.empty_cache()
    assert growing.reserved_bytes == (100 - 40) * MIB
    unmapped = [entry for entry in traces(growing) if entry["action"] == "segment_unmap"]
    assert [(entry["addr"], entry["size"]) for entry in unmapped] == [
        (first.address + 40 * MIB, 40 * MIB)
    ]
    below, above = segments(growing)  # one for each stretch that is mapped
    assert (below["address"], below["total_size"]) == (first.address, 40 * MIB)
    assert (above["address"], above["total_size"]) == (first.address + 80 * MIB, 20 * MIB)
    assert last.address == above["address"] + 10 * MIB


def test_a_hole_is_filled_before_the_end_grows(growing: CachingAllocator) -> None:
    first, hole, last = (growing.malloc(size * MIB) for size in (20, 60, 20))
    growing.free(hole)
    growing.empty_cache()
    assert growing.malloc(40 * MIB).address == first.address + 20 * MIB
    assert growing.malloc(40 * MIB).address == last.address + 20 * MIB  # 20 MiB of hole are left


def test_emptying_gives_back_the_addresses(growing: CachingAllocator) -> None:
    address = growing.malloc(100 * MIB).segment.address
    (block,) = [piece for piece in growing.reserve.segments[address].blocks() if piece.allocated]
    growing.free(block)
    growing.empty_cache()
    assert growing.reserve.segments == {}
    assert growing.memory.free_bytes == GIB
    assert growing.malloc(2 * MIB).segment.address == address


def test_each_stream_and_pool_has_its_own_segment(growing: CachingAllocator) -> None:
    for stream in (0, 1):
        growing.malloc(512, stream)
        growing.malloc(2 * MIB, stream)
    assert sorted(
        (segment["stream"], segment["segment_type"]) for segment in segments(growing)
    ) == [(0, "large"), (0, "small"), (1, "large"), (1, "small")]


def test_addresses_are_reserved_for_an_eighth_more_than_the_gpu_has(
    growing: CachingAllocator,
) -> None:
    segment = growing.malloc(2 * MIB).segment
    # 1024 x 9 / 8 = 1152 MiB are 57.6 pages of 20 MiB
    assert segment.size_bytes == 58 * 20 * MIB


def test_the_best_fit_counts_what_a_block_could_grow_to(growing: CachingAllocator) -> None:
    """The block at the end is the smallest that fits, but a larger one in a hole is taken."""
    hole, pin, end = (growing.malloc(size * MIB) for size in (40, 10, 30))
    address = hole.address
    growing.free(hole)
    growing.free(end)
    assert growing.malloc(25 * MIB).address == address
    assert pin.allocated


def test_what_cannot_be_mapped_is_out_of_memory(growing: CachingAllocator) -> None:
    growing.malloc(900 * MIB)
    with pytest.raises(OutOfDeviceMemory, match=r"Tried to allocate 200\.00 MiB"):
        growing.malloc(200 * MIB)
    growing.malloc(100 * MIB)


def test_turned_off_again_its_blocks_are_passed_over(growing: CachingAllocator) -> None:
    growing.free(growing.malloc(40 * MIB))
    growing.settings = growing.settings.updated("expandable_segments:False")
    block = growing.malloc(40 * MIB)
    assert not block.segment.expandable
    growing.settings = AllocatorSettings.parse("expandable_segments:True")
    assert growing.malloc(40 * MIB).segment.expandable
    assert growing.reserved_bytes == 80 * MIB


def test_a_smaller_reserve_makes_more_segments(make_allocator: MakeAllocator) -> None:
    settings = "expandable_segments:True,expandable_segments_reserve:0.15G"
    allocator = make_allocator(settings, total_bytes=GIB)
    # 0.15 GiB are 153.6 MiB, in pages of 20: each segment has addresses for 160 MiB.
    for size_bytes in (153 * MIB, 160 * MIB):
        allocator.malloc(size_bytes)
    assert [segment["total_size"] for segment in segments(allocator)] == [160 * MIB, 160 * MIB]
    # The message of PyTorch 2.15.0 on the native engine, where the same requests pass and fail.
    with pytest.raises(OutOfDeviceMemory) as caught:
        allocator.malloc(161 * MIB)
    assert (
        "Tried to allocate 162.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which "
        "704.00 MiB is free."
    ) in str(caught.value)
    assert str(caught.value).endswith(
        "unallocated. This allocation exceeds the expandable-segment reserve of 153.60 MiB for "
        "this stream, and a single allocation cannot span expandable segments. Raise "
        "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or "
        "expandable_segments_reserve_by_class (or unset it) so that a segment is at least "
        "162.00 MiB."
    )
    assert allocator.reserved_bytes == 320 * MIB


@pytest.mark.parametrize("reserve", ["2", "1e20G"])
def test_a_larger_reserve_than_the_gpu_has_changes_nothing(
    make_allocator: MakeAllocator, reserve: str
) -> None:
    settings = f"expandable_segments:True,expandable_segments_reserve:{reserve}"
    allocator = make_allocator(settings, total_bytes=GIB)
    # An eighth more than the GPU has is 1152 MiB, in pages of 20.
    assert allocator.malloc(30 * MIB).segment.size_bytes == 1160 * MIB
