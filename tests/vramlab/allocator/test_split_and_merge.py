"""Which block serves a request, when it is split, and how pieces grow together again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vramlab.allocator import CachingAllocator, segments
from vramlab.units import GIB, MIB

MakeAllocator = Callable[..., CachingAllocator]


def block_sizes(allocator: CachingAllocator) -> list[int]:
    return [block["size"] for segment in segments(allocator) for block in segment["blocks"]]


def test_the_smallest_tensor_takes_512_bytes_of_a_2_mib_segment(
    allocator: CachingAllocator,
) -> None:
    allocator.malloc(4)
    assert allocator.allocated_bytes == 512
    assert allocator.reserved_bytes == 2 * MIB
    assert allocator.memory.free_bytes == 16 * GIB - 2 * MIB
    assert block_sizes(allocator) == [512, 2 * MIB - 512]


def test_small_blocks_share_a_segment_until_it_is_full(allocator: CachingAllocator) -> None:
    for _ in range(4096):  # 4096 x 512 B = 2 MiB
        allocator.malloc(512)
    assert allocator.reserved_bytes == 2 * MIB
    allocator.malloc(512)
    assert allocator.reserved_bytes == 4 * MIB


def test_one_mib_is_small_and_one_byte_more_is_large(allocator: CachingAllocator) -> None:
    allocator.malloc(MIB)
    assert allocator.reserved_bytes == 2 * MIB
    allocator.malloc(MIB + 1)
    assert allocator.reserved_bytes == (2 + 20) * MIB


def test_requests_below_10_mib_share_segments_of_20_mib(allocator: CachingAllocator) -> None:
    for _ in range(4):  # 4 x 5 MiB = 20 MiB
        allocator.malloc(5 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.malloc(10 * MIB)
    assert allocator.reserved_bytes == (20 + 10) * MIB


def test_a_large_rest_of_exactly_1_mib_is_not_split_off(allocator: CachingAllocator) -> None:
    block = allocator.malloc(19 * MIB)  # its segment: 20 MiB, rounded up from 19
    assert block.size_bytes == 20 * MIB
    assert allocator.allocated_bytes == 20 * MIB  # the rest counts as allocated
    assert allocator.stats()["requested_bytes"]["all"]["current"] == 19 * MIB


def test_a_large_rest_of_512_bytes_more_is_split_off(allocator: CachingAllocator) -> None:
    block = allocator.malloc(19 * MIB - 512)
    assert block.size_bytes == 19 * MIB - 512
    assert block_sizes(allocator) == [19 * MIB - 512, MIB + 512]


def test_the_front_is_used_and_the_tail_stays_free(allocator: CachingAllocator) -> None:
    first = allocator.malloc(2 * MIB)
    second = allocator.malloc(3 * MIB)
    assert second.address == first.address + 2 * MIB


def test_the_smallest_block_that_is_large_enough_serves(allocator: CachingAllocator) -> None:
    holes = [allocator.malloc(size * MIB) for size in (40, 20, 30)]
    addresses = [hole.address for hole in holes]
    for hole in holes:
        allocator.free(hole)
    assert allocator.malloc(16 * MIB).address == addresses[1]  # of 20, not of 30 or 40 MiB


def test_of_equal_blocks_the_one_at_the_lowest_address_serves(allocator: CachingAllocator) -> None:
    holes = [allocator.malloc(12 * MIB) for _ in range(3)]
    addresses = [hole.address for hole in holes]
    for hole in (holes[2], holes[0], holes[1]):
        allocator.free(hole)
    assert [allocator.malloc(12 * MIB).address for _ in range(3)] == sorted(addresses)


def test_freed_memory_stays_reserved_and_serves_the_next_request(
    allocator: CachingAllocator,
) -> None:
    first = allocator.malloc(50 * MIB)
    address = first.address
    allocator.free(first)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 50 * MIB)
    assert allocator.malloc(50 * MIB).address == address
    assert allocator.stats()["num_device_alloc"] == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_pieces_merge_whatever_the_order_they_are_freed_in(
    allocator: CachingAllocator, order: tuple[int, int, int]
) -> None:
    blocks = [allocator.malloc(5 * MIB) for _ in range(3)]
    for index in order:
        allocator.free(blocks[index])
    assert block_sizes(allocator) == [20 * MIB]


def test_a_block_between_two_in_use_stays_a_hole(allocator: CachingAllocator) -> None:
    blocks = [allocator.malloc(5 * MIB) for _ in range(3)]
    allocator.free(blocks[1])
    assert block_sizes(allocator) == [5 * MIB] * 4
    split = allocator.stats()["inactive_split_bytes"]["all"]
    # fell from the 15 MiB tail of the first split to 10 and 5; the hole adds 5 again
    assert split == {
        "current": 10 * MIB,
        "peak": 15 * MIB,
        "allocated": 20 * MIB,
        "freed": 10 * MIB,
    }
    assert allocator.stats()["inactive_split"]["all"]["current"] == 2


def test_empty_cache_gives_back_whole_segments_only(allocator: CachingAllocator) -> None:
    whole = allocator.malloc(30 * MIB)
    kept, gone = allocator.malloc(5 * MIB), allocator.malloc(5 * MIB)
    allocator.free(whole)
    allocator.free(gone)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 20 * MIB  # of the 30 + 20: one block of it is in use
    assert allocator.memory.free_bytes == 16 * GIB - 20 * MIB
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
    assert allocator.memory.free_bytes == 16 * GIB


class TestMaxSplitSize:
    """With a limit of 100 MiB, blocks from 100 MiB on are oversize."""

    @pytest.fixture
    def limited(self, make_allocator: MakeAllocator) -> CachingAllocator:
        return make_allocator("max_split_size_mb:100")

    def cache(self, allocator: CachingAllocator, *sizes_mib: int) -> None:
        for block in [allocator.malloc(size * MIB) for size in sizes_mib]:
            allocator.free(block)

    def test_an_oversize_block_is_not_taken_for_a_lesser_request(
        self, limited: CachingAllocator
    ) -> None:
        self.cache(limited, 100)
        limited.malloc(50 * MIB)
        assert limited.reserved_bytes == (100 + 50) * MIB

    def test_an_oversize_request_takes_a_block_up_to_20_mib_larger_whole(
        self, limited: CachingAllocator
    ) -> None:
        self.cache(limited, 118)
        limited.malloc(100 * MIB)  # 118 < 100 + 20
        assert (limited.allocated_bytes, limited.reserved_bytes) == (118 * MIB, 118 * MIB)

    def test_oversize_blocks_are_counted(self, limited: CachingAllocator) -> None:
        self.cache(limited, 100, 150, 60)
        stats = limited.stats()
        assert stats["max_split_size"] == 100 * MIB
        assert stats["oversize_allocations"] == {
            "current": 0, "peak": 2, "allocated": 2, "freed": 2
        }  # fmt: skip
        assert stats["oversize_segments"]["current"] == 2

    def test_when_memory_runs_out_one_oversize_block_goes_first(
        self, make_allocator: MakeAllocator
    ) -> None:
        allocator = make_allocator("max_split_size_mb:100", total_bytes=500 * MIB)
        self.cache(allocator, 150, 200, 60)
        allocator.malloc(120 * MIB)  # 500 - 410 = 90 are free; of 150 and 200, the 150 goes
        assert allocator.reserved_bytes == (200 + 60 + 120) * MIB
        assert allocator.stats()["num_alloc_retries"] == 0  # the cache as a whole stayed

    def test_or_several_of_them_the_largest_first(self, make_allocator: MakeAllocator) -> None:
        allocator = make_allocator("max_split_size_mb:100", total_bytes=500 * MIB)
        self.cache(allocator, 110, 120, 130, 60)
        allocator.malloc(240 * MIB)  # 130 + 120 >= 240
        assert allocator.reserved_bytes == (110 + 60 + 240) * MIB
        assert allocator.stats()["num_alloc_retries"] == 0

    def test_if_they_do_not_suffice_the_whole_cache_goes(
        self, make_allocator: MakeAllocator
    ) -> None:
        allocator = make_allocator("max_split_size_mb:100", total_bytes=500 * MIB)
        self.cache(allocator, 110, 120, 60, 70)
        allocator.malloc(450 * MIB)
        assert allocator.reserved_bytes == 450 * MIB
        assert allocator.stats()["num_alloc_retries"] == 1


def test_freeing_twice_is_an_error(allocator: CachingAllocator) -> None:
    block = allocator.malloc(512)
    allocator.free(block)
    with pytest.raises(ValueError, match="it is not allocated"):
        allocator.free(block)
