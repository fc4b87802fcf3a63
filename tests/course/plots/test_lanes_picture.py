"""Lanes above, in proportion to time; what is held and its target below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vramlab.units import MIB
from vramlab_course.plots import Lanes, Span, Target, draw_lanes

RUN = Lanes(
    title="f: 3 MiB of 2 MiB",
    time="steps",
    spans=[Span("rank 0", "forward", "0", 0, 1), Span("rank 1", "backward", "0", 1, 3)],
    curves={"GPU 0": [(0, MIB), (1, 3 * MIB), (2, MIB)]},
    target=Target(2 * MIB),
    remark="At the peak: much.",
)


def test_bars_memory_and_target_are_there() -> None:
    picture = draw_lanes(RUN)
    above, below = picture.axes
    drawn = [np.asarray(each.get_paths()[0].vertices) for each in above.collections]
    assert [(box[:, 0].min(), box[:, 0].max()) for box in drawn] == [(0, 1), (1, 3)]
    line, target, peak = below.get_lines()
    # what is held at a moment is held until the next; the axis ends with the last bar
    assert list(line.get_xdata()) == [0, 1, 2, 3]
    assert list(line.get_ydata()) == [1, 3, 1, 1]
    assert list(target.get_ydata()) == [2, 2]
    assert (list(peak.get_xdata()), list(peak.get_ydata())) == ([1], [3])
    legend = [text.get_text() for text in picture.legends[0].get_texts()]
    assert legend == ["forward", "backward"]


def test_a_target_in_time_is_a_line_across_both_halves() -> None:
    picture = draw_lanes(replace(RUN, target=Target(2 * MIB, 2)))
    above, below = picture.axes
    assert [list(line.get_xdata()) for line in above.get_lines()] == [[2, 2]]
    assert [2, 2] in [list(line.get_xdata()) for line in below.get_lines()]
    assert "target: 2 " in [text.get_text() for text in below.texts]
    assert "the target is 2.00 MiB, and to end at 2." in picture.alt
    # A run that ends early has room for the line.
    assert draw_lanes(replace(RUN, target=Target(2 * MIB, 9))).axes[0].get_xlim() == (0, 9)


def test_without_memory_there_are_lanes_only() -> None:
    picture = draw_lanes(replace(RUN, curves={}, target=None, remark=""))
    (axes,) = picture.axes
    assert axes.get_xlabel() == "steps"
    assert picture.alt == "f: 3 MiB of 2 MiB. rank 0: 1 bars; rank 1: 1 bars."
