"""No task can be solved by copying cells of its lesson."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest
from lesson_parts import LESSONS, Cell, code_cells, read_lesson

from vramlab_classroom.nbgrader.authoring import BEGIN_SOLUTION

SOLUTIONS = Path(__file__).resolve().parents[3] / "solutions"


def statements(source: str) -> set[str]:
    """Every statement of some code, also those within others, however it is laid out."""
    return {ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)}


def shown(cells: list[Cell]) -> set[str]:
    """Statements in a lesson's code, and in the code of its text."""
    sources = [cell.source for cell in code_cells(cells)]
    for cell in cells:
        if cell.cell_type == "markdown":
            sources += re.findall(r"```python\n(.*?)```", cell.source, flags=re.DOTALL)
    found = set()
    for source in sources:
        try:
            found |= statements(source)
        except SyntaxError:  # a document's code, quoted as it was printed
            continue
    return found


def body(answer: str) -> list[str]:
    """What the learner has to write: the statements of a function, or a value."""
    (last,) = ast.parse(answer).body[-1:]
    return [ast.unparse(node) for node in getattr(last, "body", [last])]


def copied(answers: list[str], cells: list[Cell]) -> list[str]:
    """Answers of which every statement stands in a lesson."""
    there = shown(cells)
    return [answer for answer in answers if there.issuperset(body(answer))]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_no_answer_is_made_of_statements_of_its_lesson(path: Path) -> None:
    notebook = nbformat.read(SOLUTIONS / path.stem / path.name, as_version=nbformat.NO_CONVERT)
    answers = [cell.source for cell in notebook.cells if BEGIN_SOLUTION in cell.source]
    assert answers
    assert copied(answers, read_lesson(path).cells) == []
