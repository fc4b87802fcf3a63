"""Copies in 8 bits, their scales, and what layers keep, by arithmetic."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab.units import KIB, MIB
from vramlab_course.lessons.l28_eight_bits_and_fewer.experiment import (
    RECIPES,
    states_per_parameter,
)
from vramlab_course.lessons.l28_eight_bits_and_fewer.formulas import (
    Recipe,
    Scaling,
    copy_bytes,
    gelu_chain_bytes,
    linear_kept_bytes,
    scales_bytes,
)


@pytest.mark.parametrize(
    ("rows", "columns", "scaling", "scales"),
    [
        (4096, 4096, "tensor", 4),
        (4096, 4096, "rows", 4 * 4096),
        (4096, 4096, "blocks", 4096 * 4096 // 32),
        (1, 32, "blocks", 128 * 4),  # a tile is the least there is
        (129, 160, "blocks", 256 * 8),  # two tiles of rows; 5 blocks, filled up to 8
    ],
)
def test_a_copy_has_scales(rows: int, columns: int, scaling: Scaling, scales: int) -> None:
    assert scales_bytes(rows, columns, scaling) == scales
    assert copy_bytes(rows, columns, scaling) == rows * columns + scales


@pytest.mark.parametrize(
    ("recipe", "readers", "kept"),
    [
        ("16 bits", 1, 2 * MIB + 512 * KIB),  # 1024 x 1024 x 2 B, and 1024 x 256 x 2 B
        ("16 bits", 3, 2 * MIB + 3 * 512 * KIB),  # the input once
        ("8 bits, cast again", 3, 2 * MIB),
        ("8 bits, kept", 1, MIB + 256 * KIB + 2 * 512),  # two scales, a block each
        ("8 bits, kept", 3, 3 * (MIB + 256 * KIB + 2 * 512)),
    ],
)
def test_layers_that_read_the_same(recipe: Recipe, readers: int, kept: int) -> None:
    assert linear_kept_bytes(1024, 1024, 256, recipe, readers) == kept


def test_a_chain_keeps_what_gelu_reads_in_16_bits() -> None:
    # 1024 x 1024: the layer's 1 MiB and 1 MiB, and 2 MiB for GELU
    assert gelu_chain_bytes(1024, 1024, 2, "8 bits, kept") == 2 * (4 * MIB + 2 * 512)


def test_products_in_8_bits_save_none_of_the_states() -> None:
    with VirtualGPU("H100"):
        found = {recipe: states_per_parameter(recipe, width=256) for recipe in RECIPES}
    states = {"weights": 4, "gradients": 4, "AdamW": 8}
    assert found == {
        "16 bits": {**states, "casts": 2},
        "8 bits, cast again": states,
        "8 bits, kept": {**states, "casts": 1},
    }
