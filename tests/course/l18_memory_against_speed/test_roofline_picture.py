"""Roofs bend where the catalogue says, and work stands under the first of them."""

from __future__ import annotations

from vramlab import catalogue
from vramlab_course.lessons.l18_memory_against_speed.roofline_picture import (
    draw_roofline,
)

T4 = catalogue.find("T4")  # 320 GB/s; 8.1 and 65 TFLOPS


def test_roofs_and_points() -> None:
    work = {"relu": 0.125, "a large product": 341.0}
    axes = draw_roofline(T4, work, ("float32", "float16")).axes[0]
    roof, half_roof, relu, product = axes.get_lines()
    assert list(roof.get_xdata())[1] == 8.1e12 / 320e9
    assert list(roof.get_ydata())[1:] == [8.1, 8.1]
    assert list(half_roof.get_xdata())[1] == 65e12 / 320e9
    assert list(relu.get_ydata()) == [0.125 * 0.32]  # 0.32 TB/s
    assert list(product.get_ydata()) == [8.1]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
