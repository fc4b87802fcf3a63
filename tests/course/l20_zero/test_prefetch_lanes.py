"""Stage 3 in time: the next layer travels while this one computes."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l20_zero.prefetch_lanes import (
    LayerTimes,
    prefetch_lanes,
    waiting_share,
)


def test_a_fast_link_hides_behind_computing() -> None:
    computes, sends = prefetch_lanes(2, LayerTimes(forward_s=4, gather_s=1, scatter_s=1))
    # Layer 1 is gathered first; forward 4 each; layer 2 is freed, and gathered again; backward 8.
    assert [(span.start_s, span.end_s) for span in computes] == [(1, 5), (5, 9), (10, 18), (18, 26)]
    assert [(span.label, span.start_s) for span in sends] == [
        ("1", 0),
        ("2", 1),
        ("2", 9),
        ("1", 10),
        ("2", 18),
        ("1", 26),
    ]
    assert waiting_share(computes) == pytest.approx(2 / 26)


def test_a_slow_link_makes_the_gpu_wait() -> None:
    computes, sends = prefetch_lanes(2, LayerTimes(forward_s=1, gather_s=4, scatter_s=4))
    assert [span.start_s for span in computes] == [4, 8, 13, 17]
    # Layer 2's gradients are ready at 15, when layer 1 is still on its way until 17.
    assert [span.start_s for span in sends] == [0, 4, 9, 13, 17, 21]
