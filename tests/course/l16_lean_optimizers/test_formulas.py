"""What lean optimizers keep, by hand."""

from __future__ import annotations

import torch

from vramlab_course.lessons.l16_lean_optimizers.formulas import (
    adafactor_bytes,
    blockwise_bytes,
    gpt2_shapes,
)


def test_adafactor_by_hand() -> None:
    # 1024 rows and 512 columns, 4 B each
    assert adafactor_bytes((1024, 512)) == 4096 + 2048
    assert adafactor_bytes((1000,)) == 4096  # 4000 B
    # rows (33, 70) and columns (33, 5): 9240 B and 660 B
    assert adafactor_bytes((33, 70, 5)) == 9728 + 1024
    assert adafactor_bytes((1024, 512), momentum=True) == 2**21 + 6144
    assert adafactor_bytes((1024, 512), root_mean_square=True) == 6144 + 512


def test_blockwise_by_hand() -> None:
    # two states of 2^19 B, and of 2048 scales of 4 B
    assert blockwise_bytes((1024, 512)) == 2 * (2**19 + 8192)
    assert blockwise_bytes((1024, 512), block=2048) == 2 * (2**19 + 1024)
    assert blockwise_bytes((4095,)) == 2 * 16384  # float32: 16380 B
    assert blockwise_bytes((4096,)) == 2 * (4096 + 512)  # 16 scales of 4 B


def test_gpt2_has_as_many_parameters_as_it_is_known_for() -> None:
    def count(layers: int, width: int) -> int:
        return sum(torch.Size(shape).numel() for shape in gpt2_shapes(layers, width))

    assert count(12, 768) == 124_439_808
    assert count(48, 1600) == 1_557_611_200
