"""The picture of a verdict: bars that are as long as their numbers, and nothing that can run."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest

from vramlab.units import MIB
from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict
from vramlab_classroom.judge.verdict_picture import picture_html, picture_svg

SVG = "{http://www.w3.org/2000/svg}"


def _verdict(*pairs: tuple[str, str], task: str = "peak_bytes") -> Verdict:
    cases = tuple(
        CaseResult({"size": number}, answered == truth, answered, truth, visible=number == 0)
        for number, (answered, truth) in enumerate(pairs)
    )
    return Verdict(task, 2, Grade.FAILED, "You forgot to round.", cases)


def _drawn(verdict: Verdict) -> ElementTree.Element:
    svg = picture_svg(verdict)
    assert svg is not None
    return ElementTree.fromstring(svg)


def _bars(verdict: Verdict) -> list[float]:
    """Widths of the bars, from top to bottom: answer, measured, answer, measured, ..."""
    return [
        float(rect.attrib["width"])
        for rect in _drawn(verdict).findall(f"{SVG}rect")
        if rect.attrib.get("x") == "250" and rect.attrib["width"] != "18"
    ]


def _texts(verdict: Verdict) -> list[str]:
    return [text.text or "" for text in _drawn(verdict).iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_numbers() -> None:
    verdict = _verdict((f"{2 * MIB}", f"{4 * MIB}"), (f"{3 * MIB}", f"{3 * MIB}"))
    # The axis ends at 4 MiB, 330 pixels from its start.
    assert _bars(verdict) == [165, 330, 247.5, 247.5]


@pytest.mark.parametrize(("answer", "arrow"), [(f"1{'0' * 60}", "→"), ("-5", "←")])
def test_an_answer_beyond_the_axis_ends_at_its_edge(answer: str, arrow: str) -> None:
    verdict = _verdict((answer, f"{2 * MIB}"))
    assert max(_bars(verdict)) <= 330
    assert any(text.startswith(arrow) for text in _texts(verdict))


def test_an_answer_that_is_no_number_is_shown_as_text() -> None:
    verdict = _verdict(("'ten\x00'", "512"))
    assert "no number: 'ten\N{REPLACEMENT CHARACTER}'" in _texts(verdict)
    assert len(_bars(verdict)) == 1


def test_there_is_no_picture_without_numbers_to_compare() -> None:
    assert picture_html(_verdict(("rounding", "rounding"))) is None
    assert picture_html(Verdict("f", 1, Grade.UNANSWERED, "")) is None


def test_nothing_of_an_answer_is_part_of_the_page() -> None:
    attack = "'\"><script>alert(1)</script>'"
    html = picture_html(_verdict((attack, "512")))
    assert html is not None
    assert "script" not in html
    match = re.fullmatch(
        r'<img src="data:image/svg\+xml;base64,([\w+/=]+)" alt="[^"<>]+" [^<>]+>', html
    )
    assert match is not None
    # Inside of the picture it is text.
    root = ElementTree.fromstring(base64.b64decode(match[1]))
    assert not list(root.iter(f"{SVG}script"))
