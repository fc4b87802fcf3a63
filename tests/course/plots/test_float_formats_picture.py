"""The picture of floating point formats."""

from __future__ import annotations

from vramlab_course.formulas.float_formats import FLOAT16, FORMATS
from vramlab_course.plots import draw_float_formats


def test_every_bit_of_memory_has_a_box() -> None:
    picture = draw_float_formats()
    [axes] = picture.axes
    # 32 + 32 (tf32 with 13 that it does not use) + 16 + 16 + 8 + 8
    assert len(axes.patches) == 112
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"{form.name}\n{form.size_bytes} B" for form in FORMATS
    ]


def test_a_number_is_written_bit_by_bit() -> None:
    picture = draw_float_formats(1.5, formats=(FLOAT16,))
    [axes] = picture.axes
    texts = [text.get_text() for text in axes.texts]
    assert texts == [*"0011111000000000", "1.5"]
    assert axes.get_title(loc="left") == "How 1.5 is stored"
