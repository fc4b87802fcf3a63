"""Sorting, running sums, and adding by index."""

from __future__ import annotations

from collections.abc import Callable

import torch
from kernel_events import A100, Events, meta

from vramlab import catalogue
from vramlab.cuda_rules.cub import radix_sort_bytes, scan_bytes, segmented_sort_bytes

aten = torch.ops.aten
Takes = Callable[..., list[int]]
OUT = ("output", 0)


def test_short_rows_are_sorted_in_place(events: Events) -> None:
    assert events(aten.sort.default, meta(64, 4096)) == [
        OUT,
        ("output", 1),
        ("take", 8 * 4096),
        ("give", 8 * 4096),
    ]
    assert ("take", 8 * 64) in events(aten.sort.stable, meta(64, 4097), stable=True, dim=0)


def test_one_long_row_is_sorted_by_radix(takes: Takes) -> None:
    storage = radix_sort_bytes(50_257, 4, 8, A100)
    assert takes(aten.sort.default, meta(50_257), gpu=A100) == [8 * 50_257, storage]
    storage = radix_sort_bytes(50_257, 2, 8, A100)
    sizes = takes(aten.sort.default, meta(50_257, dtype=torch.bfloat16), gpu=A100)
    assert sizes == [8 * 50_257, storage]


def test_keys_of_one_and_two_bytes_are_counted_by_block_before_hopper() -> None:
    # 108 multiprocessors x 8 blocks x 5, 128 digits each, and 5,632 more, of 8 bytes; keys, values
    counts = 8 * (108 * 8 * 5 * 128 + 5632)
    assert radix_sort_bytes(102_400, 2, 8, A100) == counts + 10 * 102_400 + 255
    # in Hopper's one sweep: two digits of 256 counts, 19 tiles of 5,632, keys, values, two counters
    sweep = 2 * 256 * 8 + 19 * 256 * 4 + 10 * 102_400 + 256
    assert radix_sort_bytes(102_400, 2, 8, catalogue.find("H200")) == sweep + 255


def test_a_few_long_rows_are_sorted_as_one(takes: Takes) -> None:
    count = 4 * 50_257
    by_number = radix_sort_bytes(count, 4, 8, A100)
    by_row = radix_sort_bytes(count, 8, 0, A100, bits=2)  # 4 rows
    sizes = takes(aten.sort.default, meta(4, 50_257), gpu=A100)
    assert sizes == [8 * count, 8 * count, 4 * count, by_number, by_row]


def test_many_long_rows_are_sorted_as_segments(takes: Takes) -> None:
    count = 128 * 5000
    assert takes(aten.sort.default, meta(128, 5000)) == [
        8 * count,
        segmented_sort_bytes(count, 4, 8),
    ]


def test_another_dimension_is_first_brought_innermost(takes: Takes) -> None:
    count = 5000 * 128
    assert takes(aten.sort.default, meta(5000, 128), 0) == [
        4 * count,
        4 * count,
        8 * count,
        8 * count,
        segmented_sort_bytes(count, 4, 8),
    ]


def test_running_sums(takes: Takes) -> None:
    assert takes(aten.cumsum.default, meta(8, 100), 1) == []
    assert takes(aten.cumsum.default, meta(50_257), 0) == [scan_bytes(50_257, 4)]
    assert takes(aten.cumsum.default, meta(8, 100, dtype=torch.bool), 1) == [8 * 800]
    assert takes(aten.cumsum.default, meta(100, 8).t(), 1) == [4 * 800]
    assert takes(aten.cumsum.default, meta(), 0) == []


def rows(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return meta(*shape, dtype=dtype)


def test_indices_that_broadcast_differently_are_laid_out_alike(takes: Takes) -> None:
    table = meta(1000, 64)
    assert takes(aten.index.Tensor, table, [rows(32, 1), rows(1, 16)]) == [4096, 4096]
    assert takes(aten.index.Tensor, table, [rows(32), rows(32)]) == []


def test_adding_by_index_sorts_the_rows(events: Events) -> None:
    """5000 rows of a table of 1000: keys up to 999 have 10 bits, two passes."""
    table, index, values = meta(1000, 64), rows(5000), meta(5000, 64)
    size, sort = 8 * 5000, radix_sort_bytes(5000, 8, 8, A100, bits=10)
    arguments = (table, [index], values, True, True)
    assert events(aten._index_put_impl_.default, *arguments, gpu=A100) == [
        OUT,
        ("take", size),  # wrapped
        ("take", size),  # linear
        ("give", size),
        ("take", size),  # sorted
        ("take", size),  # places before
        ("take", size),  # places in order
        ("take", sort),
        ("give", sort),
        ("give", size),
        ("give", size),
        ("give", size),
        ("give", size),
    ]


def test_adding_by_index_looks_at_the_range_unless_told_not_to(takes: Takes) -> None:
    table, index, values = meta(1000, 64), rows(16), meta(16, 64)
    sort = 1  # one tile
    unchecked = takes(aten._index_put_impl_.default, table, [index], values, True, True)
    assert unchecked == [128, 128, 128, 128, 128, sort]
    # the smallest and the largest index, and whether each is in range
    assert takes(aten.index_put_.default, table, [index], values, True) == [8, 8, 1, 1, *unchecked]


def test_a_value_for_all_rows_is_expanded(takes: Takes) -> None:
    sizes = takes(aten.index_put_.default, meta(1000, 64), [rows(16)], meta(64), True)
    assert 16 * 64 * 4 in sizes


def test_a_second_index_is_added_to_the_first(events: Events) -> None:
    arguments = (meta(100, 100, 8), [rows(16), rows(16)], meta(16, 8), True, True)
    happened = events(aten._index_put_impl_.default, *arguments)
    assert happened[:7] == [
        OUT,
        ("take", 128),
        ("take", 128),
        ("give", 128),
        ("take", 128),
        ("take", 128),
        ("give", 128),
    ]
    assert happened[7] == ("give", 128)
