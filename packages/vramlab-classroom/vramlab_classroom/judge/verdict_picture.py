"""A picture of a verdict: what was answered beside what was measured, case by case.

It is written as SVG without a plotting library: the pages of a class need thousands of them, and
one takes less than a millisecond. In the page it is an `<img>`, so that nothing of a learner's
answer is ever part of the page itself; the numbers stand as text in the verdict's table.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from xml.etree import ElementTree

from vramlab.units import MIB
from vramlab_classroom.judge.verdict import CaseResult, Verdict

# Greys, as predicted and measured numbers have in all pictures: colours mean kinds of memory.
# Answers are hatched, too.
_ANSWER_COLOR = "#DDDDDD"
_MEASURED_COLOR = "#5A5A5A"
_INK = "#222222"
_GRID = "#DDDDDD"

WIDTH_PX = 860
_LABEL_PX = 250
_BARS_PX = 330
_BAR_PX = 11
_ROW_PX = 36
_TOP_PX = 34
_BOTTOM_PX = 44
_MAX_LABEL_CHARACTERS = 38
_MAX_NUMBER_CHARACTERS = 24

_CLIP_FACTOR = 1.5
"""Answers beyond this many times the largest measured value end at the edge, with an arrow."""


@dataclass(frozen=True)
class _Scale:
    """The axis: from 0 to `end`, in units of `unit`."""

    unit_name: str
    unit: int
    end: float

    def px(self, value: int) -> float:
        """Return the length of a bar; what lies outside of the axis ends at its edge."""
        # Whole numbers first: an answer may be larger than any float.
        clipped = min(max(value, 0), int(self.end * self.unit) + 1)
        return min(_BARS_PX * clipped / (self.end * self.unit), float(_BARS_PX))

    def holds(self, value: int) -> bool:
        return 0 <= value <= int(self.end * self.unit) + 1

    def number(self, value: int) -> str:
        """Write a value in the axis's unit, with the bytes behind it."""
        exact = _cut(f"{value:,}", _MAX_NUMBER_CHARACTERS)
        if self.unit == 1:
            return exact
        if not self.unit // 100 <= abs(value) < 2**60:
            return f"{exact} B"
        return f"{value / self.unit:,.4f} {self.unit_name} ({exact} B)"


def picture_html(verdict: Verdict) -> str | None:
    """Draw a verdict as an `<img>` element; None if its cases have no numbers to compare."""
    svg = picture_svg(verdict)
    if svg is None:
        return None
    data = base64.b64encode(svg.encode()).decode("ascii")
    return (
        f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(describe(verdict))}" '
        f'width="{WIDTH_PX}" style="max-width: 100%; height: auto;">'
    )


def describe(verdict: Verdict) -> str:
    """Say in words what the picture shows; the numbers are in the verdict's own table."""
    wrong = sum(not case.right for case in verdict.cases)
    return (
        f"Bars for {verdict.task}: your answer beside what was measured, "
        f"{len(verdict.cases)} cases, {wrong} of them wrong. The table above has the numbers."
    )


def picture_svg(verdict: Verdict) -> str | None:
    """Draw a verdict as SVG; None if its cases have no numbers to compare."""
    truths = [_as_int(case.truth) for case in verdict.cases]
    measured = [truth for truth in truths if truth is not None]
    if not measured or len(measured) < len(truths):
        return None
    scale = _scale(verdict, measured)
    height_px = _TOP_PX + _ROW_PX * len(verdict.cases) + _BOTTOM_PX
    svg = _element(
        None,
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH_PX} {height_px}",
        width=WIDTH_PX,
        height=height_px,
        role="img",
        font_family="DejaVu Sans, Verdana, sans-serif",
        font_size=11,
        fill=_INK,
    )
    _text(svg, "title", describe(verdict))
    _draw_pattern(svg)
    _element(svg, "rect", width=WIDTH_PX, height=height_px, fill="white")
    _text(svg, "text", verdict.task, x=8, y=20, font_size=13, font_weight="bold")
    _draw_axis(svg, scale, height_px - _BOTTOM_PX)
    for row, (case, truth) in enumerate(zip(verdict.cases, measured, strict=True)):
        _draw_case(svg, case, truth, scale, _TOP_PX + _ROW_PX * row)
    _draw_legend(svg, height_px)
    return ElementTree.tostring(svg, encoding="unicode")


def _scale(verdict: Verdict, measured: Sequence[int]) -> _Scale:
    answers = [_as_int(case.answered) for case in verdict.cases]
    limit = int(_CLIP_FACTOR * max(measured)) or 1
    largest = max([*measured, *(min(answer, limit) for answer in answers if answer is not None)])
    # A name says its unit: `peak_bytes` is bytes, `processes_that_fit` is a number of them.
    name, unit = ("MiB", MIB) if verdict.task.endswith("bytes") else ("", 1)
    return _Scale(name, unit, max(largest / unit, 1e-6))


def _draw_pattern(svg: ElementTree.Element) -> None:
    pattern = _element(
        _element(svg, "defs"),
        "pattern",
        id="answer",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    _element(pattern, "rect", width=6, height=6, fill=_ANSWER_COLOR)
    _element(pattern, "line", x1=0, y1=0, x2=0, y2=6, stroke=_INK, stroke_width=1)


def _draw_axis(svg: ElementTree.Element, scale: _Scale, bottom_px: float) -> None:
    ticks = _ticks(scale.end)
    for tick in ticks:
        x = _LABEL_PX + _BARS_PX * tick / scale.end
        _element(svg, "line", x1=x, y1=_TOP_PX - 4, x2=x, y2=bottom_px, stroke=_GRID)
        unit = f" {scale.unit_name}" if tick == ticks[-1] else ""
        label = f"{tick:,.6g}{unit}"
        _text(svg, "text", label, x=x, y=bottom_px + 13, text_anchor="middle", font_size=10)


def _ticks(end: float) -> list[float]:
    """Return three to six round numbers from 0 to `end`."""
    power = 10.0 ** math.floor(math.log10(end / 5))
    step = next(each * power for each in (1, 2, 5, 10) if each * power * 5 >= end)
    return [step * count for count in range(math.floor(end / step) + 1)]


def _draw_case(
    svg: ElementTree.Element, case: CaseResult, truth: int, scale: _Scale, top_px: float
) -> None:
    label = _cut(case.name, _MAX_LABEL_CHARACTERS)
    sign = "right" if case.right else "WRONG"
    _text(svg, "text", label, x=_LABEL_PX - 8, y=top_px + 11, text_anchor="end")
    _text(
        svg,
        "text",
        f"{sign}, hidden" if not case.visible else sign,
        x=_LABEL_PX - 8,
        y=top_px + 24,
        text_anchor="end",
        font_weight="normal" if case.right else "bold",
    )
    answer = _as_int(case.answered)
    if answer is None:
        shown = _cut(case.answered, _MAX_NUMBER_CHARACTERS)
        _text(svg, "text", f"no number: {shown}", x=_LABEL_PX + 4, y=top_px + 10)
    else:
        _draw_bar(svg, answer, scale, top_px, "url(#answer)")
    _draw_bar(svg, truth, scale, top_px + _BAR_PX + 2, _MEASURED_COLOR)


def _draw_bar(
    svg: ElementTree.Element, value: int, scale: _Scale, top_px: float, fill: str
) -> None:
    width_px = scale.px(value)
    _element(
        svg,
        "rect",
        x=_LABEL_PX,
        y=top_px,
        width=f"{max(width_px, 1):.1f}",
        height=_BAR_PX,
        fill=fill,
        stroke=_INK,
        stroke_width=0.6,
    )
    arrow = (
        ""
        if scale.holds(value)
        else "\N{LEFTWARDS ARROW} "
        if value < 0
        else "\N{RIGHTWARDS ARROW} "
    )
    number = f"{arrow}{scale.number(value)}"
    _text(svg, "text", number, x=f"{_LABEL_PX + width_px + 5:.1f}", y=top_px + 10, font_size=10)


def _draw_legend(svg: ElementTree.Element, height_px: float) -> None:
    y = height_px - 18
    for x, fill, name in (
        (_LABEL_PX, "url(#answer)", "your answer"),
        (_LABEL_PX + 130, _MEASURED_COLOR, "measured"),
    ):
        _element(
            svg,
            "rect",
            x=x,
            y=y,
            width=18,
            height=_BAR_PX,
            fill=fill,
            stroke=_INK,
            stroke_width=0.6,
        )
        _text(svg, "text", name, x=x + 24, y=y + 10)


def _element(
    parent: ElementTree.Element | None, tag: str, **attributes: object
) -> ElementTree.Element:
    texts = {
        name.replace("_", "-"): f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in attributes.items()
    }
    if parent is None:
        return ElementTree.Element(tag, texts)
    return ElementTree.SubElement(parent, tag, texts)


def _text(parent: ElementTree.Element, tag: str, text: str, **attributes: object) -> None:
    # XML has no place for control characters, and a learner's text may have any.
    printable = "".join(
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text
    )
    _element(parent, tag, **attributes).text = printable


def _as_int(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 400 else None


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
