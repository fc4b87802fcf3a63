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


@pytest.mark.parametrize("number", WITHOUT_OUTPUT)
def test_exceptions_are_stated_in_their_lesson(number: str) -> None:
    (path,) = LESSONS.glob(f"{number}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    assert {words for cell in cells for words, _ in stated(cell)} >= WITHOUT_OUTPUT[number]
