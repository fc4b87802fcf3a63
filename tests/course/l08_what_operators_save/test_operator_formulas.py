"""What operators and the MLP block keep, by hand."""

from __future__ import annotations

import pytest

from vramlab.units import MIB
from vramlab_course.lessons.l08_what_operators_save.mlp_block_formulas import MLPBlock
from vramlab_course.lessons.l08_what_operators_save.operators_formulas import (
    KEEPS,
    OperatorSizes,
    held_bytes,
)


@pytest.mark.parametrize(
    ("name", "per_element"),
    [("relu", 4), ("gelu", 4), ("dropout", 1), ("x * y", 8), ("x + y", 0), ("max_pool2d", 6)],
)
def test_bytes_for_each_element_of_a_mebi_of_floats(name: str, per_element: int) -> None:
    # Pooled: a quarter of the outputs, an index of 8 B for each: 2 B for each input.
    outputs = MIB // 4 if name == "max_pool2d" else MIB
    sizes = OperatorSizes(first=MIB, second=MIB, output=outputs)
    assert held_bytes(name, sizes) == per_element * MIB


def test_half_precision_halves_everything_but_masks_and_indices() -> None:
    sizes = OperatorSizes(first=MIB, second=4096, output=MIB)
    assert held_bytes("gelu", sizes, "float16") == 2 * MIB
    assert held_bytes("dropout", sizes, "float16") == MIB
    assert held_bytes("x[i]", sizes, "float16") == 4096 * 8


def test_statistics_are_float32_and_small() -> None:
    sizes = OperatorSizes(first=4096 * 1024, output=4096 * 1024, groups=4096)
    # the input, and for each row a mean and a scale
    assert held_bytes("layer_norm", sizes, "float16") == 8 * MIB + 2 * 4096 * 4
    assert held_bytes("rms_norm", sizes, "float16") == 8 * MIB + 4096 * 4


def test_cross_entropy_keeps_what_log_softmax_gave() -> None:
    sizes = OperatorSizes(first=4096 * 1024, second=4096)
    # 16 MiB of log-probabilities, the classes, and the sum of their weights
    assert held_bytes("cross_entropy", sizes) == 16 * MIB + 4096 * 8 + 512


def test_every_operator_says_what_it_keeps() -> None:
    assert len(KEEPS) == 38
    assert sum(not kept for kept in KEEPS.values()) == 8  # + - * by a number, sum, cat, views


def test_the_documents_block_finished() -> None:
    block = MLPBlock(batch=8, sequence=512, width=1024)
    bsh = 8 * 512 * 1024
    assert block.elements == bsh == 4 * MIB
    assert list(block.kept().values()) == [4 * bsh, 16 * bsh, 16 * bsh, bsh]
    assert block.kept_bytes == 37 * bsh


def test_in_16_bit_it_is_the_papers() -> None:
    block = MLPBlock(batch=8, sequence=512, width=1024, dtype="float16")
    # What arXiv 2205.05198 §4.1 counts: 19 bytes for each element.
    assert block.kept_bytes == (2 + 8 + 8 + 1) * block.elements


def test_relu_shares_its_output_with_the_next_layer() -> None:
    gelu = MLPBlock(batch=8, sequence=512, width=1024)
    relu = MLPBlock(batch=8, sequence=512, width=1024, activation="relu")
    assert gelu.kept_bytes - relu.kept_bytes == 16 * gelu.elements


def test_growth_leaves_out_the_input_and_has_the_output() -> None:
    block = MLPBlock(batch=8, sequence=512, width=1024, dropout=False)
    assert block.kept_bytes == 36 * block.elements
    assert block.growth_bytes == (36 - 4 + 4) * block.elements
