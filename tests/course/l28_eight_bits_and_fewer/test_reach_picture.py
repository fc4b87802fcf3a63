"""Which numbers a format reaches, in words and as drawn."""

from __future__ import annotations

from vramlab_course.formulas.float_formats import FLOAT8_E4M3, FLOAT8_E5M2
from vramlab_course.lessons.l28_eight_bits_and_fewer.reach_picture import draw_reach

FORMATS = (FLOAT8_E5M2, FLOAT8_E4M3)
GRADIENTS = {-20: 25, -12: 50, -9: 25}  # E5M2 begins at 2**-16, E4M3 at 2**-9


def test_draws_a_row_for_each_tensor() -> None:
    picture = draw_reach({"gradients": GRADIENTS, "scaled": {0: 3}}, formats=FORMATS)
    assert [axes.get_title() or axes.get_title("left") for axes in picture.axes] == [
        "gradients",
        "scaled",
    ]
    assert picture.alt.startswith("float8_e4m3fn: gradients, 75% too small; scaled, all within.")
