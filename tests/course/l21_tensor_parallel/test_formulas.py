"""The closed forms of lesson 21, by hand."""

from __future__ import annotations

import pytest

from vramlab.programs.transformer_memory import paper_layer_bytes
from vramlab_course.lessons.l21_tensor_parallel import formulas as tp

SBH = 2048 * 4 * 1024  # s = 2048, b = 4, h = 1024, and a = 16: 5 as/h = 160
SIZES = {"batch": 4, "sequence": 2048, "width": 1024, "heads": 16}


def test_the_papers_three_lines() -> None:
    assert tp.paper_kept_bytes(**SIZES, ranks=8, division="whole") == SBH * (34 + 160)
    assert tp.paper_kept_bytes(**SIZES, ranks=8) == SBH * (10 + 24 // 8 + 160 // 8)
    assert tp.paper_kept_bytes(**SIZES, ranks=8, division="sequence") == SBH * (34 + 160) // 8
    assert paper_layer_bytes(4, 2048, 1024, 16) == SBH * (34 + 160)


def test_pytorch_keeps_statistics_and_what_it_has_gathered() -> None:
    statistics = 2 * 2 * 4 * 4 * 2048  # two norms, two float32 for each of b s rows
    for division, extra in (
        ("whole", statistics),
        ("tensor", statistics),
        # two gathered inputs of 2 sbh, of which the paper keeps an eighth
        ("sequence", statistics // 8 + 2 * 2 * SBH * 7 // 8),
    ):
        paper = tp.paper_kept_bytes(**SIZES, ranks=8, division=division)
        assert tp.kept_bytes(**SIZES, ranks=8, division=division) == paper + extra


def test_parts_are_the_papers_summands() -> None:
    outside, attention, feed_forward = tp.kept_parts(**SIZES, ranks=8, division="tensor").values()
    assert outside == 10 * SBH + 2 * 2 * 4 * 4 * 2048  # and statistics
    assert attention == (8 + 160) * SBH // 8
    assert feed_forward == 16 * SBH // 8


def test_without_dropout_softmax_is_kept_once() -> None:
    # masks: sbh twice, and a s^2 b; the product's operand: 2 a s^2 b. a s^2 b is 32 sbh.
    less = SBH * (1 + 1 + 32 + 2 * 32)
    assert tp.kept_bytes(**SIZES) - tp.kept_bytes(**SIZES, dropout=False) == less


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_parameters(ranks: int) -> None:
    h = 2048
    # q, k, v, output: 4 h^2; up and down: 8 h^2. Biases: 3 h and 4 h cut; h and h, and two norms
    assert tp.parameters(h, ranks) == (12 * h * h + 7 * h) // ranks + 6 * h
    assert tp.parameters_bytes(h, ranks) == 2 * tp.parameters(h, ranks)  # all fill their blocks
    assert len(tp.parameter_shapes(h, ranks)) == 16


def test_collectives_of_a_layer_are_of_what_goes_from_block_to_block() -> None:
    calls = {division: tp.layer_calls(4, 2048, 1024, division) for division in tp.DIVISIONS}
    assert calls["whole"] == []
    assert calls["tensor"] == [("all-reduce", 2 * SBH)] * 2
    assert [kind for kind, _ in calls["sequence"]] == ["all-gather", "reduce-scatter"] * 2
    # an all-reduce is a reduce-scatter and an all-gather
    assert tp.sent_bytes(calls["tensor"], 8) == tp.sent_bytes(calls["sequence"], 8)
    assert tp.sent_bytes(calls["tensor"], 8) == 2 * 2 * 7 * 2 * SBH // 8
    alone = tp.layer_calls(4, 2048, 1024, "tensor", backward=True, shared_input=False)
    assert len(alone) == 3 + 1  # query, key and value each, and feed-forward


def test_flops_and_logits() -> None:
    # 2 FLOPs for each of 12 h^2 weights and token, 2 x 2 s h for scores and their use; three times
    assert tp.layer_flops(4, 2048, 1024) == 3 * 4 * 2048 * (24 * 1024**2 + 4 * 2048 * 1024)
    assert 8 * tp.layer_flops(4, 2048, 1024, 8) == tp.layer_flops(4, 2048, 1024)
    assert tp.logits_kept_bytes(2048, 32768, 8) == 2 * 2048 * 32768 // 8
