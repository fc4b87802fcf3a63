"""Parts of a transformer: even cuts of matrices, layers of stages, and what cannot be cut."""

from __future__ import annotations

import math
import re

import pytest

from vramlab.planner import UnevenParts, find_model, one_rank_of
from vramlab.planner.parts import layers_of_stages
from vramlab.programs.transformer_memory import Sizes

LLAMA = find_model("llama-3.1-8b")


def test_one_rank_of_one_has_all() -> None:
    assert one_rank_of(LLAMA).parameter_shapes() == LLAMA.parameter_shapes()


def test_ranks_that_share_matrices_have_equal_parts_of_each() -> None:
    part = one_rank_of(LLAMA, tensor=4)
    # 32 heads, 8 of keys and values, 14336 inside, 128256 words, each by 4; heads stay 128 wide.
    assert (part.heads, part.kv, part.head_size) == (8, 2, 128)
    assert (part.inner, part.vocabulary, part.width) == (3584, 32064, 4096)
    for whole, own in zip(LLAMA.matrices, part.matrices, strict=True):
        assert 4 * math.prod(own) == math.prod(whole)
    # Everything but the norms is cut: two in each of 32 layers, and the last one.
    norms = (2 * 32 + 1) * 4096
    assert 4 * (part.parameters() - norms) == LLAMA.parameters() - norms


def test_heads_keep_their_width_if_it_was_given() -> None:
    sizes = Sizes(vocabulary=1024, width=256, heads=8, head_dim=64)
    assert one_rank_of(sizes, tensor=2).attended_width == 4 * 64


def test_stages_share_the_layers_and_the_ends() -> None:
    stages = [one_rank_of(LLAMA, pipeline=3, stage=stage) for stage in range(3)]
    assert [stage.layers for stage in stages] == [11, 11, 10]
    assert [stage.embeds for stage in stages] == [True, False, False]
    assert [stage.predicts for stage in stages] == [False, False, True]
    assert sum(stage.parameters() for stage in stages) == LLAMA.parameters()


def test_a_tied_head_has_a_weight_of_its_own_in_the_last_stage() -> None:
    sizes = find_model("gpt2")
    parameters = [one_rank_of(sizes, 1, 2, stage).parameters() for stage in range(2)]
    assert sum(parameters) == sizes.parameters() + 50257 * 768


@pytest.mark.parametrize(
    ("layers", "pipeline", "each"),
    [(12, 1, [12]), (12, 4, [3, 3, 3, 3]), (10, 4, [3, 3, 2, 2]), (4, 4, [1, 1, 1, 1])],
)
def test_earlier_stages_have_the_odd_layers(layers: int, pipeline: int, each: list[int]) -> None:
    assert layers_of_stages(layers, pipeline) == each


def test_uneven_cuts_are_named_with_their_numbers() -> None:
    with pytest.raises(UnevenParts) as failed:
        one_rank_of(find_model("gpt2"), tensor=5)
    numbers = re.findall(r"\d+", str(failed.value))
    assert numbers == ["5", "12", "12", "3072", "50257"]
    with pytest.raises(UnevenParts, match=r"^16 tensor-parallel ranks do not divide 8 key"):
        one_rank_of(LLAMA, tensor=16)  # 32 heads can be shared, and all else


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(UnevenParts, match="12 layers are too few for 13"):
        one_rank_of(find_model("gpt2"), pipeline=13)
