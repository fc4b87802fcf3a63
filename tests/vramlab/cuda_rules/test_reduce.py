"""Buffers of the two sums that a training step makes, by hand and against the ops' rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_events import A100, H200, T4, Model, meta

from vramlab.cuda_rules.reduce import GpuThreads, column_sum_bytes, total_sum_bytes
from vramlab.cuda_rules.sizes import block_bytes
from vramlab.units import GIB, MIB

aten = torch.ops.aten
Takes = Callable[..., list[int]]
DTYPES = {4: torch.float32, 2: torch.bfloat16}


def threads(gpu: Model) -> GpuThreads:
    return GpuThreads(gpu.multiprocessors, gpu.max_threads_per_multiprocessor)


@pytest.mark.parametrize(
    ("gpu", "blocks_bytes"),
    [
        (GpuThreads(80, 2048), (1536, 512, 0)),  # V100: 80 x 2048 / 512 = 320 blocks, 1280 B
        (GpuThreads(108, 2048), (2048, 512, 0)),  # A100: 432 blocks, 1728 B
        (GpuThreads(40, 1024), (512, 512, 0)),  # T4: 80 blocks, 320 B
    ],
)
def test_sum_of_a_tensor(gpu: GpuThreads, blocks_bytes: tuple[int, int, int]) -> None:
    assert total_sum_bytes(10240 * 1024, gpu) == blocks_bytes


def test_sum_of_few_elements_takes_nothing() -> None:
    assert total_sum_bytes(1024, GpuThreads(80, 2048)) == (0, 0, 0)


def test_sum_over_rows() -> None:
    # T4: 1024 columns are 8 blocks of 32 x 4; 40 x 1024 / 128 = 320 blocks at once, 40 share each
    # output; 4 B x 1024 x 40 x 128 = 20 MiB.
    assert column_sum_bytes(10240, 1024, threads(T4)) == (20 * MIB, 512, 0)
    # A100: 1728 / 8 = 216 could share, but 10240 / 4 / 160 = 16 values a thread allow 160: 80 MiB.
    a100 = threads(A100)
    assert column_sum_bytes(10240, 1024, a100) == (80 * MIB, 512, 0)
    assert column_sum_bytes(512, 1024, a100) == (0, 0, 0)  # 128 values a thread
    # 1600 columns: 12.5 blocks of 128, so 13; 1728 / 13 = 133 share, 4 B x 1600 x 133 x 128.
    assert column_sum_bytes(10240, 1600, a100) == (108_953_600, 512, 0)
    # 1023 columns: one a thread, blocks of 32 x 16, 432 at once; 32 blocks of columns, so 14 could
    # share, and 10240 / 16 = 640 values a thread allow 40: 4 B x 1023 x 14 x 32.
    assert column_sum_bytes(10240, 1023, a100) == (1_833_472, 512, 0)


def test_sum_over_rows_of_more_than_2_gib_is_made_in_pieces() -> None:
    """Each launch has offsets of 32 bits: 8 GiB are four pieces of 2 GiB, and not one launch."""
    # 2**19 rows of 1024 in float32 are 2 GiB, the last number beginning at 2**31 - 4. On an H200
    # 2112 blocks of 32 x 4 threads run at once: 2112 / 8 = 264 would share an output, but no thread
    # is to add up more than 256 values: 2**19 / 4 / 256 = 512. In one piece it would be 2048.
    assert column_sum_bytes(2**21, 1024, threads(H200)) == (4 * 1024 * 512 * 128, 512, 0)
    # In bfloat16 a piece has 2**20 rows, 1024 blocks share, and sums of pieces are kept in float32.
    staging_bytes, sums_bytes = 4 * 1024 * 1024 * 128, 4 * 1024
    assert column_sum_bytes(2**21, 1024, threads(H200), 2) == (staging_bytes, 512, sums_bytes)


@pytest.mark.parametrize("item_bytes", [4, 2])
@pytest.mark.parametrize("gpu", [T4, A100, H200])
@pytest.mark.parametrize("columns", [1, 100, 128, 768, 1023, 1024, 4096, 30522])
def test_column_sums_are_those_of_the_rule(
    takes: Takes, gpu: Model, columns: int, item_bytes: int
) -> None:
    for gib in (1, 2, 3, 8):  # from 2 GiB on, in pieces
        rows = gib * GIB // (columns * item_bytes) + 1
        taken = takes(
            aten.sum.dim_IntList, meta(rows, columns, dtype=DTYPES[item_bytes]), [0], gpu=gpu
        )
        assert column_sum_bytes(rows, columns, threads(gpu), item_bytes) == largest(taken)


@pytest.mark.parametrize("item_bytes", [4, 2])
@pytest.mark.parametrize("numel", [1, 10_000, 2**20, 2**29, 2**29 + 1, 2**31, 2**33])
def test_total_sums_are_those_of_the_rule(takes: Takes, numel: int, item_bytes: int) -> None:
    taken = takes(aten.sum.default, meta(numel, dtype=DTYPES[item_bytes]), gpu=H200)
    assert total_sum_bytes(numel, threads(H200), item_bytes) == largest(taken)


def largest(taken: list[int]) -> tuple[int, int, int]:
    """The largest staging buffer with its semaphores, and the accumulation buffer before them."""
    accumulation = taken.pop(0) if len(taken) % 2 else 0
    pairs = [
        (block_bytes(staging), block_bytes(counters))
        for staging, counters in zip(taken[::2], taken[1::2], strict=True)
    ]
    return (*max(pairs, key=sum, default=(0, 0)), block_bytes(accumulation))
