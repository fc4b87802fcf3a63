"""Reductions: when blocks share outputs, and what that costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_events import A100, H200, RTX3090, T4, V100, Events, Model, meta

from vramlab.units import MIB

aten = torch.ops.aten
OUT = ("output", 0)
Takes = Callable[..., list[int]]


@pytest.mark.parametrize(
    ("gpu", "blocks"),
    [
        # 512 threads in a block, as many blocks as run at once:
        (V100, 320),  # 80 multiprocessors * 2048 threads / 512
        (RTX3090, 246),  # 82 * 1536 / 512
        (T4, 80),  # 40 * 1024 / 512
        (A100, 432),  # 108 * 2048 / 512
        (H200, 528),  # 132 * 2048 / 512
    ],
)
def test_a_full_sum_leaves_one_float32_per_block(events: Events, gpu: Model, blocks: int) -> None:
    halves = meta(10240, 1024, dtype=torch.float16)
    assert events(aten.sum.default, halves, gpu=gpu) == [
        OUT,
        ("take", 4 * blocks),
        ("take", 4),  # one counter for the one output
        ("give", 4),
        ("give", 4 * blocks),
    ]


def test_the_gradient_of_a_bias_takes_twice_its_input(events: Events) -> None:
    """(10240, 1024) float32 over its rows: 40 MiB are summed with the help of 80 MiB.

    Each thread computes 4 neighbouring columns, so a block has 128 threads: 32 across, 4 deep, and
    8 blocks cover the 1024 columns. 16 blocks run at once on each of 80 multiprocessors: 1280 / 8 =
    160 blocks to a column, not more than 2560 rows of a thread / 16 = 160.
    The buffer is 4 B * 1024 columns * 160 blocks * 32 threads across * 4 columns of a thread.
    """
    assert events(aten.sum.dim_IntList, meta(10240, 1024), [0], True) == [
        OUT,
        ("take", 80 * MIB),
        ("take", 4 * 8),
        ("give", 4 * 8),
        ("give", 80 * MIB),
    ]


def test_the_gradient_of_sum_is_summed_without_neighbouring_loads(takes: Takes) -> None:
    """Expanded, its strides are 0: 512 threads, 32 across, 16 deep; 2048 / 32 = 64 blocks.

    Four blocks run at once on each of 80 multiprocessors: 320 / 64 = 5 to a column.
    """
    expanded = meta().expand(10240, 2048)
    assert takes(aten.sum.dim_IntList, expanded, [0], True) == [4 * 2048 * 5 * 32, 4 * 64]


def test_rows_are_shared_only_as_far_as_each_thread_has_16_numbers(takes: Takes) -> None:
    """2**19 numbers in each of two rows: 512 threads across, so 1024 numbers for a thread.

    Of the 320 blocks that run at once 160 could share each row, but 1024 / 16 = 64 are enough.
    """
    assert takes(aten.sum.dim_IntList, meta(2, 2**19), [1]) == [4 * 2 * 64, 4 * 2]


def test_integers_and_bools_are_first_cast_to_int64(events: Events) -> None:
    correct = meta(32, 512, dtype=torch.bool)
    # 16384 int64; then 16384 / 512 threads = 32 values each, too few to share
    assert events(aten.sum.default, correct) == [OUT, ("take", 131_072), ("give", 131_072)]


def test_a_wider_result_is_cast_in_the_kernel_from_halves_only(takes: Takes) -> None:
    assert takes(aten.sum.default, meta(64, dtype=torch.float16), dtype=torch.float32) == []
    assert takes(aten.sum.default, meta(64), dtype=torch.float64) == [64 * 8]


def test_more_than_2_gib_are_summed_in_pieces(events: Events) -> None:
    """(32, 512, 50257) float32 logits: 3.07 GiB in two pieces of (16, 512, 50257).

    411,705,344 numbers by 512 threads are 804,112 each: at least 804,112 / 256 = 3142 blocks, which
    is more than the 320 that run at once. 3142 partial sums of 4 B.
    """
    launch = [("take", 12_568), ("take", 4), ("give", 4), ("give", 12_568)]
    assert events(aten.sum.default, meta(32, 512, 50257)) == [OUT, *launch, *launch]


def test_halves_in_pieces_are_accumulated_apart(takes: Takes) -> None:
    logits = meta(64, 512, 50257, dtype=torch.bfloat16)  # two pieces of 823,410,688 numbers
    launches = [25_132, 4] * 2  # 823,410,688 / 512 / 256 = 6283 blocks
    assert takes(aten.sum.default, logits) == [4, *launches]  # 4: float32 for the one output
    assert takes(aten.sum.default, logits, dtype=torch.float32) == launches


@pytest.mark.parametrize(
    ("func", "arguments", "partial_bytes"),
    [
        (aten.sum.default, (), 4),
        (aten.mean.default, (), 4),
        (aten.mean.dim, ([0],), 4),
        (aten.nansum.default, (), 4),
        (aten.prod.default, (), 4),
        (aten.prod.dim_int, (0,), 4),
        (aten.amax.default, (), 4),
        (aten.amin.default, ([0],), 4),
        (aten.max.default, (), 4),
        (aten.any.default, (), 1),
        (aten.all.dim, (0,), 1),
        (aten.max.dim, (0,), 16),  # float32, 4 B of nothing, int64
        (aten.argmin.default, (), 16),
        (aten.argmax.default, (0,), 16),
        (aten.var.correction, (), 16),  # mean, squares, count as int32, count as float32
        (aten.std_mean.correction, ([0],), 16),
        (aten.linalg_vector_norm.default, (), 4),
    ],
)
def test_what_each_op_leaves_per_block(
    takes: Takes, func: object, arguments: tuple[object, ...], partial_bytes: int
) -> None:
    assert takes(func, meta(2**22), *arguments) == [320 * partial_bytes, 4]


@pytest.mark.parametrize(
    ("func", "dtype", "partial_bytes"),
    [
        (aten.sum.default, torch.float64, 8),
        (aten.amax.default, torch.bfloat16, 2),
        (aten.any.default, torch.bool, 1),
        (aten.max.default, torch.uint8, 1),
        (aten.argmax.default, torch.float64, 16),
        (aten.argmax.default, torch.float16, 16),
        (aten.var.correction, torch.float64, 32),
        (aten.linalg_vector_norm.default, torch.bfloat16, 4),
    ],
)
def test_partial_results_by_dtype(
    takes: Takes, func: object, dtype: torch.dtype, partial_bytes: int
) -> None:
    assert takes(func, meta(2**22, dtype=dtype)) == [320 * partial_bytes, 4]


def test_any_and_all_left_what_they_read_before_2_13(takes: Takes) -> None:
    """PyTorch's own code left 4 B of each float32 in 2.11, and leaves a bool in 2.13."""
    for func in (aten.any.default, aten.all.default):
        assert takes(func, meta(2**22), version=(2, 11)) == [320 * 4, 4]
        assert takes(func, meta(2**22), version=(2, 13)) == [320, 4]


def test_maximum_of_everything_wants_its_input_contiguous(takes: Takes) -> None:
    assert takes(aten.max.default, meta(64, 32).t()) == [64 * 32 * 4]
    assert takes(aten.argmax.default, meta(64, 32).t()) == [64 * 32 * 4]
    assert takes(aten.argmax.default, meta(64, 32).t(), 0) == []


def test_count_nonzero_counts_bools_as_int64(takes: Takes) -> None:
    assert takes(aten.count_nonzero.default, meta(100)) == [100, 800]
    assert takes(aten.count_nonzero.default, meta(100, dtype=torch.bool)) == [800]


def test_logsumexp_makes_the_exponentials_of_its_whole_input(events: Events) -> None:
    assert events(aten.logsumexp.default, meta(64, 1000), [1]) == [
        ("take", 64 * 4),  # maxima
        ("take", 64 * 4),  # their magnitudes
        ("take", 64),  # which are infinite
        ("give", 64),
        ("give", 64 * 4),
        ("take", 64 * 1000 * 4),
        OUT,
        ("give", 64 * 1000 * 4),
        ("give", 64 * 4),
    ]
