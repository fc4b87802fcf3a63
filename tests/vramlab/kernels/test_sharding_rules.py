"""What FSDP2's copies take: the numbers that one kernel works from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_events import A100, T4, Events, meta

aten = torch.ops.aten
Takes = Callable[..., list[int]]


def test_unpacking_takes_a_number_for_each_block(takes: Takes) -> None:
    """8 chunks of 131072 numbers, 512 KiB each: 256 tiles of 2 KiB.

    A T4 has room for 40 * 1024 / 128 * 2 = 640 blocks; 8 * 256 tiles are 3.2 times as many. So a
    block does 4: 2 tiles of 2 chunks each, which makes 128 blocks. Beside them there are two
    addresses, a size, and where blocks begin and end.
    """
    received, parts = meta(8, 131_072), [meta(8, 131_072)]
    split = aten.split_with_sizes_copy.out
    assert takes(split, received, [131_072], 1, out=parts, gpu=T4) == [8 * (3 + 2 + 128)]
    # An A100 has room for 108 * 2048 / 128 * 2 = 3456 blocks: one tile each.
    assert takes(split, received, [131_072], 1, out=parts, gpu=A100) == [8 * (3 + 2 + 256)]


def test_parts_of_several_sizes_have_blocks_of_their_own(takes: Takes) -> None:
    """1000 and 24 numbers of 4 B: 2 tiles and 1."""
    received, parts = meta(8, 1024), [meta(8, 1000), meta(8, 24)]
    split = aten.split_with_sizes_copy.out
    assert takes(split, received, [1000, 24], -1, out=parts) == [8 * (3 * 2 + 3 + 2 + 1)]


def test_scattered_parts_are_ordinary_copies(takes: Takes) -> None:
    received, split = meta(8, 1024), aten.split_with_sizes_copy.out
    assert takes(split, received, [1024], 1, out=[meta(8, 2048)[:, ::2]]) == []


def test_packing_takes_a_number_for_each_block(events: Events) -> None:
    """Gradients of 1000 x 3 and of 7, for 8 ranks: 125 rows of 12 B and one of 4: a tile each.

    After the result: 6 numbers for each, where bytes and blocks begin, and the blocks.
    """
    gradients = [meta(1000, 3), meta(7)]
    size = 8 * (6 * 2 + 2 + 1 + 1)
    expected = [("output", 0), ("take", size), ("give", size)]
    assert events(aten._chunk_cat.default, gradients, 0, 8) == expected


def test_packing_may_widen_bfloat16_alone(takes: Takes) -> None:
    packed, chunk_cat = meta(8, 2048), aten._chunk_cat.out
    # 8 ranks get 2048 numbers of 4 B each: 4 tiles.
    widened = [meta(8, 2048, dtype=torch.bfloat16)]
    assert takes(chunk_cat, widened, 0, 8, out=packed) == [8 * (6 + 2 + 4)]
    assert takes(chunk_cat, [meta(8, 2048, dtype=torch.float16)], 0, 8, out=packed) == []
    assert takes(chunk_cat, [meta(2048, 8).t()], 0, 8, out=packed) == []


@pytest.mark.skipif(
    not hasattr(torch.ops.fsdp, "chunk_cat_mixed_dtype"), reason="PyTorch before 2.15"
)
def test_packing_gradients_of_several_dtypes(takes: Takes) -> None:
    """Of 8 x 2048 numbers and of 8: for each of 8 ranks 4 tiles, and one."""
    chunk_cat = torch.ops.fsdp.chunk_cat_mixed_dtype.default
    bfloat16, float32 = meta(8, 2048, dtype=torch.bfloat16), meta(8)
    packed = meta(8, 2049)
    assert takes(chunk_cat, [bfloat16, float32], 0, 8, out=packed) == [8 * (6 * 2 + 4 + 1)]
    assert takes(chunk_cat, [bfloat16], 0, 8, out=meta(8, 2048)) == [8 * (6 + 2 + 4)]
    # float16 is cast first.
    float16 = meta(8, 2048, dtype=torch.float16)
    expected = [8 * 2048 * 4, 8 * (6 * 2 + 2 + 4 + 1)]
    assert takes(chunk_cat, [float16, float32], 0, 8, out=packed) == expected


def test_fsdps_own_ops_have_the_same_rules_once_they_are_there() -> None:
    """They come with a package that is imported after the table was first asked."""
    from vramlab.kernels import TABLE

    TABLE.find(aten.mm.default)
    import torch.distributed.fsdp

    for own, ours in (
        (torch.ops.fsdp.split_with_sizes_copy.default, aten.split_with_sizes_copy.out),
        (torch.ops.fsdp.chunk_cat.default, aten._chunk_cat.out),
    ):
        assert TABLE.find(own) is TABLE.find(ours) is not None
