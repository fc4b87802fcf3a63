"""Temporary storage of CUB's algorithms, by hand."""

from __future__ import annotations

import pytest
from kernel_events import A100, H200, RTX3090, T4, Model

from vramlab.cuda_rules.cub import (
    aliased_bytes,
    key_bits,
    radix_sort_bytes,
    scan_bytes,
    segmented_sort_bytes,
    unique_by_key_bytes,
)


def test_parts_are_aligned_to_256_bytes_and_so_is_the_whole() -> None:
    assert aliased_bytes([1, 256, 0]) == 256 + 256 + 0 + 255


@pytest.mark.parametrize(
    ("gpu", "tile"),
    [
        (T4, 256 * 11),  # 23 * 4 B / 8 B = 11 items a thread
        (A100, 384 * 10),  # 21 * 4 B / 8 B = 10
        (RTX3090, 384 * 10),
        (H200, 384 * 12),  # 24 * 4 B / 8 B = 12
    ],
)
def test_a_sort_of_int64_pairs_keeps_two_more_copies(gpu: Model, tile: int) -> None:
    count = 16_384
    tiles = -(-count // tile)
    assert radix_sort_bytes(count, 8, 8, gpu) == (
        8 * 256 * 8  # digits of each of 8 passes
        + tiles * 256 * 4  # look-back of each tile
        + 2 * count * 8  # keys and values between passes
        + 256  # counters of 8 passes, 32 B
        + 255
    )


def test_a_sort_of_one_tile_needs_nothing_to_speak_of() -> None:
    assert radix_sort_bytes(256 * 9, 8, 8, A100) == 1
    assert radix_sort_bytes(256 * 19, 4, 4, A100) == 1
    assert radix_sort_bytes(256 * 19 + 1, 4, 4, A100) > 2 * 4 * 256 * 19


def test_a_sort_of_int32_pairs_has_four_passes() -> None:
    count, tile = 100_000, 384 * 17
    assert radix_sort_bytes(count, 4, 4, A100) == (
        4 * 256 * 8 + -(-count // tile) * 1024 + 2 * 400_128 + 256 + 255
    )  # 400,000 B is aligned to 400,128


def test_a_sort_in_portions_has_digits_for_each_portion() -> None:
    tile = 384 * 10
    portion = (2**28 - 1) // tile * tile
    count = portion + 256
    expected = 2 * 8 * 256 * 8 + portion // tile * 1024 + 2 * count * 8 + 256 + 255
    assert radix_sort_bytes(count, 8, 8, A100) == expected


def test_few_bits_are_one_pass_and_need_no_copies() -> None:
    assert radix_sort_bytes(100_000, 8, 8, A100, bits=8) == 256 * 8 + 27 * 1024 + 256 + 255
    assert [key_bits(largest) for largest in (0, 1, 2, 255, 256)] == [1, 1, 2, 8, 9]


def test_keys_without_values_have_tiles_of_their_own() -> None:
    """384 threads * 15 items of 8 B on Hopper; * 19 of 4 B."""
    assert radix_sort_bytes(100_000, 8, 0, H200, bits=8) == 256 * 8 + 18 * 1024 + 256 + 255
    assert radix_sort_bytes(100_000, 4, 0, H200, bits=8) == 256 * 8 + 14 * 1024 + 256 + 255


def test_a_sort_within_segments_keeps_a_second_copy() -> None:
    assert segmented_sort_bytes(1000, 4, 8) == 4096 + 8192 + 255  # 4000 B and 8000 B, aligned


def test_other_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="keys of 3 bytes: a radix sort has keys of 1, 2, 4 or 8"):
        radix_sort_bytes(10, 3, 2, A100)


def test_a_scan_keeps_a_state_of_each_tile_and_of_32_more() -> None:
    # 16384 int64 in tiles of 128 threads * 7 items = 19 tiles: 51 * 16 B = 816 B -> 1024 B.
    # The state is aligned within storage that is: 1024 + 255 -> 1280 B.
    assert scan_bytes(16_384, 8) == 1280 + 255
    # int32: 128 * 15 = 1920 a tile, 9 tiles: 41 * 8 B = 328 B -> 512 B; 512 + 255 -> 768 B
    assert scan_bytes(16_384, 4) == 768 + 255
    # bfloat16: not more than 30 a thread, 3840 a tile, 5 tiles: 37 statuses of 4 B, and two sums
    # of 2 B each: 256 B for each of the three; 768 + 255 -> 1024 B
    assert scan_bytes(16_384, 2) == 1024 + 255
    assert scan_bytes(2**20, 2) == 3072 + 255  # 306 * 4 B -> 1280 B, twice 306 * 2 B -> 768 B


@pytest.mark.parametrize(
    ("gpu", "tile"),
    [(T4, 320), (A100, 1792), (RTX3090, 320), (H200, 4480), (Model(148, 2048, (10, 0)), 3840)],
)
def test_a_selection_keeps_a_state_of_each_tile_and_of_32_more(gpu: Model, tile: int) -> None:
    states = -(-100_000 // tile) + 32
    state_bytes = -(-states * 16 // 256) * 256
    assert unique_by_key_bytes(100_000, gpu) == state_bytes + 256 + 255
