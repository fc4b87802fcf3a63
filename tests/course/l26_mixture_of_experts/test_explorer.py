"""The explorer of experts on ranks: what comes to whom, against arithmetic."""

from __future__ import annotations

from vramlab_course.lessons.l26_mixture_of_experts.explorer import measure_rank
from vramlab_course.lessons.l26_mixture_of_experts.formulas import MoELayer


def test_a_rank_is_measured_as_predicted() -> None:
    sizes = MoELayer(256, 128, 128, experts=4, top_k=2)
    for rank, count in enumerate((256, 128)):
        measured = measure_rank(256, 128, 128, [256, 128, 64, 64], rank, "T4")
        assert measured == sizes.rank_growth_bytes(4 * count)
