"""Which numbers a format reaches, in words and as drawn."""

from __future__ import annotations

import pytest

from vramlab_course.formulas.float_formats import FLOAT8_E4M3, FLOAT8_E5M2
from vramlab_course.lessons.l28_eight_bits_and_fewer.reach_picture import describe_reach, draw_reach

FORMATS = (FLOAT8_E5M2, FLOAT8_E4M3)
GRADIENTS = {-20: 25, -12: 50, -9: 25}  # E5M2 begins at 2**-16, E4M3 at 2**-9


def test_says_what_is_lost() -> None:
    described = describe_reach({"gradients": GRADIENTS}, formats=FORMATS)
    assert "float8_e5m2: 25% too small" in described
    assert "float8_e4m3fn: 75% too small" in described
    assert "float8_e4m3fn: 50% too large" in describe_reach({"x": {8: 1, 9: 1}}, formats=FORMATS)


def test_little_is_told_from_nothing() -> None:
    described = describe_reach({"x": {0: 999, -10: 1}}, formats=FORMATS)
    assert "float8_e4m3fn: under 1% too small" in described
    assert "float8_e5m2: all within" in described


def test_draws_a_row_for_each_tensor() -> None:
    picture = draw_reach({"gradients": GRADIENTS, "scaled": {0: 3}}, formats=FORMATS)
    assert [axes.get_title() or axes.get_title("left") for axes in picture.axes] == [
        "gradients",
        "scaled",
    ]
    assert picture.alt.startswith("float8_e4m3fn: gradients, 75% too small; scaled, all within.")


def test_zeros_alone_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="no number but zeros in x"):
        draw_reach({"x": {}})
