"""The picture of a verdict: bars that are as long as their numbers, and nothing that can run."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest

from vramlab.units import MIB
from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict
from vramlab_classroom.judge.verdict_picture import describe, picture_html, picture_svg

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


def test_numbers_stand_in_mib_with_the_bytes_behind_them() -> None:
    texts = _texts(_verdict((f"{3 * MIB // 2}", "512")))
    assert "→ 1.5000 MiB (1,572,864 B)" in texts
    assert "512 B" in texts


@pytest.mark.parametrize(
    ("largest_mib", "expected"),
    [
        (4, ["0", "1", "2", "3", "4 MiB"]),
        (300, ["0", "100", "200", "300 MiB"]),
        (0.875, ["0", "0.2", "0.4", "0.6", "0.8 MiB"]),
        (5000, ["0", "1,000", "2,000", "3,000", "4,000", "5,000 MiB"]),
    ],
)
def test_the_axis_has_round_numbers(largest_mib: float, expected: list[str]) -> None:
    texts = _texts(_verdict(("0", f"{int(largest_mib * MIB)}")))
    assert texts[1 : 1 + len(expected)] == expected  # after the task's name


def test_a_task_that_asks_for_no_bytes_has_plain_numbers() -> None:
    texts = _texts(_verdict(("3", "12"), task="processes_that_fit"))
    assert "3" in texts
    assert "12" in texts
    assert not any("MiB" in text for text in texts)


def test_each_case_says_in_words_whether_it_is_right_and_hidden() -> None:
    texts = _texts(_verdict(("4", "512"), ("512", "512")))
    assert "WRONG" in texts
    assert "right, hidden" in texts
    assert "size=0" in texts


@pytest.mark.parametrize(("answer", "arrow"), [(f"1{'0' * 60}", "→"), ("-5", "←")])
def test_an_answer_beyond_the_axis_ends_at_its_edge(answer: str, arrow: str) -> None:
    verdict = _verdict((answer, f"{2 * MIB}"))
    assert max(_bars(verdict)) <= 330
    assert any(text.startswith(arrow) for text in _texts(verdict))


def test_an_answer_that_is_no_number_is_shown_as_text() -> None:
    verdict = _verdict(("'ten\x00'", "512"))
    assert "no number: 'ten\N{REPLACEMENT CHARACTER}'" in _texts(verdict)
    assert len(_bars(verdict)) == 1


def test_zero_everywhere_can_be_drawn() -> None:
    assert _bars(_verdict(("0", "0"))) == [1, 1]  # a line, so that one sees the bar


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


def test_the_alternative_text_says_what_it_shows() -> None:
    verdict = _verdict(("4", "512"), ("512", "512"))
    assert describe(verdict) == (
        "Bars for peak_bytes: your answer beside what was measured, 2 cases, 1 of them wrong. "
        "The table above has the numbers."
    )
    html = picture_html(verdict)
    assert html is not None
    assert f'alt="{describe(verdict)}"' in html


def test_the_same_verdict_gives_the_same_picture() -> None:
    assert picture_svg(_verdict(("4", "512"))) == picture_svg(_verdict(("4", "512")))
