"""Products of many matrices in one op: one kernel on new GPUs, one product after another else."""

from __future__ import annotations

import torch
from kernel_events import A100, H200, Events, meta

aten = torch.ops.aten
OUT = ("output", 0)
BF16 = torch.bfloat16


def test_one_kernel_takes_arguments_of_each_group(events: Events) -> None:
    offsets = meta(3, dtype=torch.int32)
    # 3 groups, 4 with padding: 3 pointers of 8 B; then 3 strides of 8 B and 3 sizes of 4 B
    size = 4 * 3 * 8 + 3 * (3 * 8 + 3 * 4)
    of_three = events(
        aten._grouped_mm.default, meta(64, 32, dtype=BF16), meta(3, 32, 16, dtype=BF16), offsets,
        gpu=H200,
    )  # fmt: skip
    assert of_three == [OUT, ("take", size), ("give", size)]


def test_a_batch_needs_no_offsets(events: Events) -> None:
    size = 2 * 3 * 8 + 2 * (3 * 8 + 3 * 4)
    batches = meta(2, 64, 32, dtype=BF16), meta(2, 32, 16, dtype=BF16)
    assert events(aten._grouped_mm.default, *batches, gpu=H200)[1] == ("take", size)


def test_other_gpus_use_cublas(events: Events) -> None:
    batches = meta(2, 64, 32, dtype=BF16), meta(2, 32, 16, dtype=BF16)
    expected = [OUT, ("workspace", "CUBLAS")]
    assert events(aten._grouped_mm.default, *batches, gpu=A100) == expected
