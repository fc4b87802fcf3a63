"""Roofs bend where the catalogue says, and work stands under the first of them."""

from __future__ import annotations

import pytest

from vramlab import catalogue
from vramlab_course.lessons.l18_memory_against_speed.roofline_picture import (
    describe_roofline,
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


def test_points_have_their_names_beside_them_once() -> None:
    axes = draw_roofline(T4, {"add": 0.125, "relu": 0.125, "a large product": 341.0}).axes[0]
    assert [text.get_text() for text in axes.texts] == [
        "float32: 8.1 TFLOP/s, from 25.3 FLOPs per byte",  # on its roof
        "add, relu",
        "a large product",
    ]


def test_the_text_says_what_waits_for_what() -> None:
    text = describe_roofline(T4, {"relu": 0.125, "a large product": 341.0})
    assert "float32: memory-bound below 25.3 FLOPs per byte, 8.1 TFLOP/s above" in text
    assert "relu has 0.125 and is memory-bound" in text
    assert "a large product has 341 and is compute-bound" in text


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="T4 has no units for tf32"):
        draw_roofline(T4, {}, ("tf32",))
    with pytest.raises(ValueError, match="4 roofs in one picture; at most 3"):
        draw_roofline(T4, {}, ("float32",) * 4)
