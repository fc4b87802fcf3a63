"""The picture of floating point formats."""

from __future__ import annotations

from vramlab_course.formulas.float_formats import FLOAT16, FORMATS, TF32
from vramlab_course.plots import describe_float_formats, draw_float_formats


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


def test_in_words() -> None:
    assert describe_float_formats(formats=(FLOAT16,)) == (
        "Floating point formats, bit by bit. float16: 5 exponent and 10 fraction bits, largest "
        "65,504, smallest normal 6.1e-05,\nsmallest 5.96e-08, step after 1: 0.000977."
    )
    assert describe_float_formats(0.1, formats=(TF32,)) == (
        "How 0.1 is stored. tf32: 0 01111011 1001100110, 0.0999755859."
    )
    assert draw_float_formats(0.1).alt == describe_float_formats(0.1)
