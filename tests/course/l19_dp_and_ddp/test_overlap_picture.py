"""Buckets are reduced while backward goes on: in time, with the assumptions in the picture."""

from __future__ import annotations

import pytest

from vramlab import catalogue
from vramlab.units import MIB
from vramlab_course.lessons.l19_dp_and_ddp.formulas import buckets
from vramlab_course.lessons.l19_dp_and_ddp.overlap_picture import (
    draw_overlap,
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


def test_what_is_assumed_is_in_the_picture() -> None:
    picture = draw_overlap(
        LAYERS, buckets(LAYERS.values()), card=catalogue.find("T4"), rows=(1024, 64), ranks=4
    )
    assert "Modelled: 4 T4 over PCI Express at full rate, arithmetic at 50% of peak." in picture.alt
    texts = [text.get_text() for text in picture.axes[0].texts]
    assert "2\n30 MiB" in texts
    # 62,914,560 B of gradients: 1.5 times as many over 15.75 GB/s, 1,024 FLOPs for each at 4.05 T/s
    assert picture.alt.startswith("Overlapped with the backward pass: 50% at 1,024 rows, ")
    assert picture.axes[0].get_xlim()[1] == pytest.approx(18.9, abs=0.3)
