"""Floating point formats bit by bit: what each bit is for, and the bits of a number."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from vramlab_course.formulas.float_formats import FORMATS, FloatFormat, Stored, store
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look

_LOOKS = {
    "sign": Look(style.FAINT, text_color="white"),
    "exponent": Look(style.GREY),
    "fraction": Look(style.PALE),
    "unused": Look("white", "xx"),
}
_COLUMNS = 32
_TEXT_FROM = _COLUMNS + 1.0


def draw_float_formats(
    number: float | None = None,
    *,
    formats: Sequence[FloatFormat] = FORMATS,
    title: str | None = None,
) -> Picture:
    """Draw a row of bits for each format: sign, exponent, fraction.

    Args:
        number: write its bits into the boxes, and beside them what they stand for. Without one, the
            formats' limits are written there.
        formats: from top to bottom.
        title: the picture's title.
    """
    title = title or _title(number)
    with style.house_style():
        picture = new_picture(1.1 + 0.5 * len(formats))
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        for row, form in enumerate(formats):
            stored = None if number is None else store(number, form)
            _draw_bits(axes, row, form, stored)
            text = _limits(form) if stored is None else _stored(stored)
            axes.text(_TEXT_FROM, row + 0.4, text, va="center", fontsize=style.SMALL_FONT_SIZE)
        axes.set_xlim(0, _COLUMNS + 20)
        axes.set_ylim(len(formats), -0.2)
        axes.set_yticks(
            [row + 0.4 for row in range(len(formats))],
            [f"{form.name}\n{form.size_bytes:g} B" for form in formats],
        )
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        for side in ("bottom", "left"):
            axes.spines[side].set_visible(False)
        used = {kind for form in formats for kind in _kinds(form)}
        picture.explain({kind: look for kind, look in _LOOKS.items() if kind in used})
    picture.alt = describe_float_formats(number, formats=formats, title=title)
    return picture


def describe_float_formats(
    number: float | None = None,
    *,
    formats: Sequence[FloatFormat] = FORMATS,
    title: str | None = None,
) -> str:
    """Describe what `draw_float_formats` draws."""
    rows = []
    for form in formats:
        bits = f"{form.exponent_bits} exponent and {form.fraction_bits} fraction bits"
        if number is None:
            rows.append(f"{form.name}: {bits}, {_limits(form)}")
        else:
            stored = store(number, form)
            rows.append(f"{form.name}: {' '.join(stored.parts)}, {_stored(stored)}")
    return f"{title or _title(number)}. " + "; ".join(rows) + "."


def _title(number: float | None) -> str:
    return "Floating point formats, bit by bit" if number is None else f"How {number:g} is stored"


def _unused_bits(form: FloatFormat) -> int:
    """Bits in memory that no part of the number uses; only tf32 has some."""
    return int(8 * form.size_bytes) - form.bits


def _kinds(form: FloatFormat) -> list[str]:
    return [
        "sign",
        *["exponent"] * form.exponent_bits,
        *["fraction"] * form.fraction_bits,
        *["unused"] * _unused_bits(form),
    ]


def _draw_bits(axes: Axes, row: int, form: FloatFormat, stored: Stored | None) -> None:
    for column, kind in enumerate(_kinds(form)):
        look = _LOOKS[kind]
        axes.add_patch(
            Rectangle(
                (column, row),
                1,
                0.8,
                facecolor=look.color,
                hatch=look.hatch,
                edgecolor=style.INK,
                linewidth=0.6,
            )
        )
        if stored is not None and kind != "unused":
            style.write_label(axes, column + 0.5, row + 0.4, stored.pattern[column], look, pad=0.5)


def _limits(form: FloatFormat) -> str:
    return (
        f"largest {_largest(form.largest)}, smallest normal {form.smallest_normal:.3g},\n"
        f"smallest {form.smallest:.3g}, step after 1: {form.epsilon:.3g}"
    )


def _largest(number: float) -> str:
    return f"{number:,.0f}" if number < 1e6 and number.is_integer() else f"{number:.5g}"


def _stored(stored: Stored) -> str:
    return f"{stored.value:.9g}"
