"""Buckets are reduced while backward goes on: in time, with the assumptions in the picture."""

from __future__ import annotations

from vramlab.units import MIB
from vramlab_course.lessons.l19_dp_and_ddp.formulas import buckets
from vramlab_course.lessons.l19_dp_and_ddp.overlap_picture import (
    overlap_lanes,
    overlapped_share,
)

LAYERS = {"head": 30 * MIB, "layer 2": 20 * MIB, "layer 1": 10 * MIB}


def test_a_bucket_is_sent_when_it_is_full_and_the_link_is_free() -> None:
    filled = buckets(LAYERS.values())
    assert filled == [[0], [1, 2]]
    # A second for each MiB of backward, half a second for each MiB of all-reduce.
    computes, sends = overlap_lanes(LAYERS, filled, 1 / MIB, 0.5 / MIB)
    assert [(span.start_s, span.end_s) for span in computes] == [(0, 30), (30, 50), (50, 60)]
    assert [(span.start_s, span.end_s) for span in sends] == [(30, 45), (60, 75)]
    assert overlapped_share(computes, sends) == 0.5
    # Four times as slow a link: the second bucket waits for the first.
    computes, sends = overlap_lanes(LAYERS, filled, 1 / MIB, 2 / MIB)
    assert [(span.start_s, span.end_s) for span in sends] == [(30, 90), (90, 150)]
    assert overlapped_share(computes, sends) == 30 / 120
