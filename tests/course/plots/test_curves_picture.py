"""Curves: what is drawn, and what the alternative text says."""

from __future__ import annotations

import pytest

from vramlab.units import MIB
from vramlab_course.plots import draw_curves

CURVES = {
    "square": [(x, x * x * MIB) for x in (1, 2, 4, 8)],
    "line": [(x, x * MIB) for x in (1, 2, 4, 8)],
}


def test_each_curve_is_drawn_in_the_unit_of_the_axis() -> None:
    axes = draw_curves(CURVES, title="Two", x_label="tokens").axes[0]
    square, line = axes.get_lines()
    assert list(square.get_ydata()) == [1, 4, 16, 64]  # MiB
    assert list(line.get_ydata()) == [1, 2, 4, 8]
    assert axes.get_ylabel() == "MiB"
    assert axes.get_xlabel() == "tokens"
    assert square.get_marker() != line.get_marker()
    assert square.get_linestyle() != line.get_linestyle()


def test_logarithmic_axes_leave_out_what_is_nothing() -> None:
    curves = {"from nothing": [(1, 0), (2, MIB), (4, 2 * MIB)]}
    axes = draw_curves(curves, title="One", x_label="tokens", logarithmic=True).axes[0]
    assert list(axes.get_lines()[0].get_xdata()) == [2, 4]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_ticks_of_logarithmic_axes_have_their_own_unit() -> None:
    curves = {"wide": [(1, MIB), (64, 4096 * MIB)]}
    picture = draw_curves(curves, title="One", x_label="tokens", logarithmic=True)
    picture.to_png()  # places the ticks
    labels = [label.get_text() for label in picture.axes[0].get_yticklabels()]
    assert {"1 MiB", "64 MiB", "4 GiB"} <= set(labels)
    assert picture.axes[0].get_ylabel() == ""
    assert draw_curves(curves, title="One", x_label="tokens").axes[0].get_ylabel() == "GiB"


def test_names_stand_at_the_ends_apart_from_each_other_in_the_order_of_the_ends() -> None:
    curves = {"high": [(1, 4 * MIB)], "low": [(1, MIB)], "a little higher": [(1, MIB + 1)]}
    picture = draw_curves(curves, title="", x_label="", capacity_bytes=8 * MIB)
    assert picture.legends == []
    names = [text for text in picture.axes[0].texts if text.get_text() in curves]
    assert [name.get_text() for name in names] == ["low", "a little higher", "high"]
    low, higher, high = (name.xyann[1] for name in names)
    assert higher - low == pytest.approx(0.075)  # of the axes' height: as close as words may be
    assert high - higher > 0.075
