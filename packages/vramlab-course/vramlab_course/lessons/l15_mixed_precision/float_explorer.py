"""Type a number, and see how each floating point format stores it."""

from __future__ import annotations

import math
from typing import Annotated

from vramlab.measure import Table
from vramlab_course.formulas.float_formats import FORMATS, FloatFormat, store
from vramlab_course.plots import draw_float_formats
from vramlab_course.widgets.controls import text
from vramlab_course.widgets.explorer import View, explorer


@explorer("How a number is stored", height_px=720)
def float_explorer(
    number: Annotated[
        str, text("Number", "such as 0.1, 65505 or 1e-8"), "such as '65505' or '1e-8'"
    ] = "0.1",
) -> View:
    """Show the bits of a number in six formats, and how far each is from it."""
    value = _parse(number)
    lost = [form.name for form in FORMATS if value and store(value, form).value == 0]
    large = [form.name for form in FORMATS if math.isinf(store(value, form).value)]
    summary = f"{value:g}"
    if lost:
        summary += f" becomes 0 in {', '.join(lost)}"
    if large:
        summary += f" {'and ' if lost else ''}becomes infinite in {', '.join(large)}"
    if not lost and not large:
        summary += " has a neighbour in every format"
    table = Table(
        f"{value!r} in six formats",
        ("format", "stored", "error", "relative error"),
        tuple(_row(value, form) for form in FORMATS),
    )
    return View(f"{summary}.", draw_float_formats(value), (table,))


def _row(value: float, form: FloatFormat) -> tuple[str, str, str, str]:
    stored = store(value, form).value
    error = stored - value
    relative = f"{abs(error / value):.2g}" if value and math.isfinite(error) else "-"
    return form.name, f"{stored!r}", f"{error:.3g}", relative


def _parse(number: str) -> float:
    try:
        value = float(number.replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{number!r} is not a number: enter one such as 0.1, 65505 or 1e-8")
    return value
