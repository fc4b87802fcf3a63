"""Durations are drawn in a unit that fits, and told in words."""

from __future__ import annotations

import pytest

from vramlab_course.plots import describe_durations, draw_durations
from vramlab_course.plots.durations import short_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (2e-9, "2 ns"),
        (8.125e-6, "8.12 µs"),
        (0.2384, "238 ms"),
        (1.0, "1 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_three_digits(seconds: float, text: str) -> None:
    assert short_time(seconds) == text


def test_a_bar_for_each_kind_in_each_group() -> None:
    groups = {"T4": {"compute": 0.25, "link": 0.5}, "A100-40GB": {"compute": 0.05, "link": 0.25}}
    picture = draw_durations(groups, title="A step")
    (axes,) = picture.axes
    assert [patch.get_width() for patch in axes.patches] == [250, 500, 50, 250]  # ms
    assert axes.get_xlabel() == "ms"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["T4", "A100-40GB"]
    assert picture.alt == describe_durations(groups, title="A step")
    assert "T4: compute 250 ms, link 500 ms; A100-40GB: compute 50 ms" in picture.alt
