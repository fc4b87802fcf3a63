"""The picture of an all-to-all: bars and bands in proportion to tokens."""

from __future__ import annotations

import pytest
from matplotlib.patches import Polygon, Rectangle

from vramlab_course.lessons.l26_mixture_of_experts.dispatch_picture import draw_dispatch

SENT = [[6, 2], [6, 2]]


def test_widths_are_in_proportion_to_tokens() -> None:
    (axes,) = draw_dispatch(SENT, title="T").axes
    bars = [patch for patch in axes.patches if type(patch) is Rectangle]
    by_row: dict[float, list[float]] = {}
    for bar in bars:
        by_row.setdefault(bar.get_y(), []).append(bar.get_width())
    sent, received = (by_row[y] for y in sorted(by_row, reverse=True))
    inch = sent[0] / 8
    assert sent == pytest.approx([8 * inch, 8 * inch])
    assert received == pytest.approx([12 * inch, 4 * inch])
    bands = [patch.get_xy() for patch in axes.patches if isinstance(patch, Polygon)]
    assert len(bands) == 4
    widths = [corners[1][0] - corners[0][0] for corners in bands]
    assert widths == pytest.approx([6 * inch, 2 * inch, 6 * inch, 2 * inch])
    assert [corners[2][0] - corners[3][0] for corners in bands] == pytest.approx(widths)
