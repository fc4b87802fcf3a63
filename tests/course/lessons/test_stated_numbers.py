"""A sentence whose number no output shows any more is found, and no other."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from lesson_parts import Cell
from numbers_without_output import WITHOUT_OUTPUT
from stated_numbers import stated, stated_only

LESSONS = Path(__file__).parents[3] / "lessons"


def lesson(sentence: str, shown: str = "", *, html: str = "", code: str = "f()") -> list[Cell]:
    """A lesson whose first section has an output, and whose last is far from it."""
    outputs = [nbformat.v4.new_output("stream", text=shown)] if shown else []
    if html:
        outputs.append(nbformat.v4.new_output("display_data", {"text/html": html}))
    return [
        nbformat.v4.new_markdown_cell("# A lesson", id="title"),
        nbformat.v4.new_code_cell(code, id="measure", outputs=outputs),
        nbformat.v4.new_markdown_cell(sentence, id="explained"),
        nbformat.v4.new_markdown_cell("## Next", id="next"),
        nbformat.v4.new_markdown_cell("## And next", id="after-next"),
        nbformat.v4.new_markdown_cell("It was 360 MiB.", id="far"),
    ]


def found(sentence: str, shown: str, **other: str) -> list[str]:
    cells = lesson(sentence, f"{shown}, 360 MiB", **other)
    return [words for cell_id, words in stated_only(cells) if cell_id != "far"]


@pytest.mark.parametrize(
    ("sentence", "shown", "stale"),
    [
        # Sentences that went stale when the engine got better.
        ("AdamW's states have 0.17 MiB less.", "841.0273 MiB, 841.0273 MiB", "0.17 MiB"),
        ("The 16 MiB that are missing.", "4196.0 MiB, 4116.0 MiB, 4e-16", "16 MiB"),
        ("From 180 million to nearly two billion.", "180 and 1,716 million", "two billion"),
        ("Four times as large as today.", "2.3 times; 4 GiB; 4 labels", "Four times"),
        # What has a number in its output.
        ("It is 168 MiB.", "168.125 MiB", ""),
        ("It is 168.2 MiB.", "168.125 MiB", "168.2 MiB"),
        ("About 2.5 GiB.", "2,560 MiB", ""),
        ("It is 12.5 %.", "12.54%", ""),
        ("It is 12 %.", "12 MiB", "12 %"),
        ("It is 1.7 billion.", "1,716 million", ""),
        ("Four times as many.", "3.9x", ""),
        ("It is 512 bytes.", "512", ""),
        ("Each takes 4 bytes.", "", ""),  # everyone knows what a float32 takes
        # No claims: quotations, code, and questions to check oneself.
        ('> It takes 99 MiB.\n\n"98 MiB", `97 MiB`', "", ""),
        ("### Check yourself\n\nYour GPU shows 9 GiB.", "", ""),
    ],
)
def test_a_number_that_no_output_shows_is_found(sentence: str, shown: str, stale: str) -> None:
    assert found(sentence, shown) == ([stale] if stale else [])


def test_an_output_counts_near_the_sentence_only() -> None:
    # "It was 360 MiB." stands two headings behind the output.
    assert list(stated_only(lesson("", "360 MiB"))) == [("far", "360 MiB")]


def test_the_opening_speaks_of_the_whole_lesson() -> None:
    cells = lesson("", "360 MiB")
    cells[0].source = "# A lesson of 360 MiB"
    cells.insert(1, nbformat.v4.new_markdown_cell("## 1\n## 2\n## 3", id="headings"))
    assert "title" not in dict(stated_only(cells))


def test_titles_are_sentences_and_no_evidence() -> None:
    code = 'draw(parts, title=f"{name}: 99 MiB")\nTable("All 98 MiB", header, rows)'
    html = '<img alt="parts: 99 MiB. One: 50 MiB"><caption>All 98 MiB</caption>'
    assert found("", "", code=code, html=html) == ["99 MiB", "98 MiB"]
    assert found("One has 50 MiB.", "98 and 99 MiB", code=code, html=html) == []


def test_a_size_in_the_program_is_given() -> None:
    assert found("We allow 800 MiB.", "", code="limit(800 * MIB)") == []


@pytest.mark.parametrize("number", WITHOUT_OUTPUT)
def test_exceptions_are_stated_in_their_lesson(number: str) -> None:
    (path,) = LESSONS.glob(f"{number}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    assert {words for cell in cells for words, _ in stated(cell)} >= WITHOUT_OUTPUT[number]
