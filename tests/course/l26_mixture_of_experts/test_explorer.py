"""The explorer of experts on ranks: what comes to whom, against arithmetic."""

from __future__ import annotations

from vramlab_course.lessons.l26_mixture_of_experts.explorer import measure_rank, moe_explorer
from vramlab_course.lessons.l26_mixture_of_experts.formulas import MoELayer


def test_a_rank_is_measured_as_predicted() -> None:
    sizes = MoELayer(256, 128, 128, experts=4, top_k=2)
    for rank, count in enumerate((256, 128)):
        measured = measure_rank(256, 128, 128, [256, 128, 64, 64], rank, "T4")
        assert measured == sizes.rank_growth_bytes(4 * count)


def test_a_quarter_is_even_with_eight_ranks_and_more_is_a_crowd() -> None:
    small = {"tokens": 256, "width": 128, "inner": 128}
    even = moe_explorer.view(**small, ranks=8, share=25).summary
    # 8 x 64 tokens of expert 0; the other 448 choices of a rank go to 7 experts
    assert even.startswith("Rank 0 gets 512 tokens and rank 1 512:")
    crowd = moe_explorer.view(**small, ranks=8, share=100).summary
    assert crowd.startswith("Rank 0 gets 2,048 tokens and rank 1 ")
