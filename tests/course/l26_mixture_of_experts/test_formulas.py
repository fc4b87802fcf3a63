"""Mixtures of experts by hand; experiments compare the sizes with measurements."""

from __future__ import annotations

from vramlab.units import MIB
from vramlab_course.lessons.l26_mixture_of_experts.formulas import (
    MoELayer,
    capacity,
    dispatched_bytes,
    dropped,
    expert_parameters,
    layer_parameters,
    unused_parameters,
)


def test_experts_and_router() -> None:
    assert expert_parameters(4096, 14336, matrices=3) == 176_160_768
    assert layer_parameters(8, 16, experts=4) == 4 * (2 * 8 * 16 + 8)
    # 6 of Mixtral's 8 experts, in 32 layers
    assert unused_parameters(32, 4096, 14336, 8, 2, matrices=3) == 32 * 6 * 176_160_768


def test_capacity_and_what_is_dropped() -> None:
    # 4096 tokens, 2 of 8 experts: 1024 each, and a quarter more
    assert capacity(4096, 8, top_k=2) == 1024
    assert capacity(4096, 8, 1.25, top_k=2) == 1280
    assert capacity(10, 3) == 4  # 3.33, rounded up
    assert dropped([5, 3, 1], room=3) == 2
    assert dropped([3, 3, 3], room=3) == 0


def test_seven_of_eight_pairs_leave_the_rank() -> None:
    assert dispatched_bytes(4096, 1024, 2, 8, "float32") == 4096 * 2 * 1024 * 4 * 7 // 8


def test_a_layer_keeps_by_pairs_of_token_and_expert() -> None:
    sizes = MoELayer(4096, 1024, 2048, experts=8, top_k=2)
    assert sizes.pairs == 8192
    assert sizes.kept() == {
        # scores 4096 x 8 x 4 B; three indices of 8 B and a weight of 4 B for each pair
        "router": 4096 * 8 * 4 + 8192 * (3 * 8 + 4),
        "copies of tokens": 32 * MIB,  # 8192 x 1024 x 4 B
        "hidden, before the activation": 64 * MIB,
        "hidden, after it": 64 * MIB,
        "outputs of experts": 32 * MIB,
        "the same, weighted": 32 * MIB,
    }
    assert sizes.growth_bytes == sum(sizes.kept().values()) + 16 * MIB
    # evenly, as many come as are sent: the copies are those that came
    assert sizes.rank_growth_bytes(8192) == sizes.growth_bytes
    assert sizes.rank_growth_bytes(16384) - sizes.growth_bytes == (32 + 64 + 64) * MIB


def test_blocks_are_rounded_for_each_expert() -> None:
    sizes = MoELayer(3, 8, 16, experts=2, top_k=1, counts=(1, 2))
    # 1 x 16 and 2 x 16 numbers: a block of 512 B each
    assert sizes.kept()["hidden, after it"] == 2 * 512
