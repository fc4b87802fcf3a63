"""A lesson that tells an answer too early is found, wherever it tells it."""

from __future__ import annotations

import nbformat
import pytest
from given_away import given_away
from lesson_parts import Cell

ASK = """guess = predict("05.forward")
guess"""
ANSWER = (
    "<details><summary>The answer to: What does it take?</summary>"
    "<p>360.27 MiB, 377,770,476 B</p></details>"
)


def text(cell_id: str, source: str) -> Cell:
    return nbformat.v4.new_markdown_cell(source, id=cell_id)


def code(cell_id: str, source: str, *, html: str = "", printed: str = "") -> Cell:
    outputs = [nbformat.v4.new_output("stream", text=printed)] if printed else []
    if html:
        outputs.append(nbformat.v4.new_output("display_data", {"text/html": html}))
    return nbformat.v4.new_code_cell(source, id=cell_id, outputs=outputs)


def lesson(
    title: str = "", before: str = "", picture: str = "", printed: str = "", after: str = ""
) -> list[Cell]:
    return [
        text("title", title),
        code("picture", "draw()", html=f'<img alt="{picture}">'),
        text("before", before),
        code("ask", ASK),
        code("reveal", "guess.reveal(measured)", html=ANSWER, printed=printed),
        text("after", after),
        text("later", "It took 360.27 MiB."),
    ]


def test_nothing_is_found_where_nothing_is_told() -> None:
    assert given_away(lesson(before="The batch takes 40 MiB.", after="A copy of ones.")) == []


@pytest.mark.parametrize("place", ["title", "before", "picture", "printed", "after"])
def test_an_answer_is_found_wherever_it_is_told(place: str) -> None:
    cell_id = {"printed": "reveal"}.get(place, place)
    assert given_away(lesson(**{place: "A step takes 360 MiB."})) == [(cell_id, "360 MiB")]


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        ("360.3 MiB", True),
        ("361 MiB", False),  # 360.27 rounds to 360
        ("360 KiB", False),
        ("377,770,476 bytes", True),
        ("0.35 GiB", False),  # 360.27 / 1024 = 0.352; a number below 10 is met everywhere
        ("360 MiB/s", False),  # a speed
    ],
)
def test_an_answer_is_told_by_a_number_that_it_rounds_to(words: str, is_told: bool) -> None:
    assert given_away(lesson(before=f"It is {words}.")) == ([("before", words)] if is_told else [])


def test_what_is_folded_tells_nothing() -> None:
    folded = "<details><summary>Why?</summary>\n\nIt is 360 MiB.\n</details>"
    assert given_away(lesson(after=folded)) == []
