"""A lesson's main path is what fits into 25 minutes, and shows its idea before its numbers.

The main path ends where "## To the byte" begins.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest
from lesson_parts import (
    LESSONS,
    Cell,
    called_name,
    calls,
    code_cells,
    main_path,
    names_called,
    prose,
    read_lesson,
    words,
)

MOST = {"words": 1100, "code cells": 15, "tables": 4, "predictions": 4}
"""Of the code cells, one runs the reader's own script."""
MOST_IMPORTS = 8
"""Lines of import statements in a part. More of them is machinery, whose place is the package."""
LEAST_PICTURES = 3
"""In the whole lesson; the explorer's are not counted."""


def is_table(call: ast.Call) -> bool:
    """Whether a call shows a table: Table(...), or a function or method named so."""
    name = called_name(call)
    return name == "Table" or name.endswith("_table")


def prints_rows(node: ast.AST) -> bool:
    """Whether this is a loop that prints: a table as well, to who reads it."""
    return isinstance(node, ast.For) and any(
        isinstance(inner, ast.Call) and called_name(inner) == "print" for inner in ast.walk(node)
    )


def is_outcome(node: ast.AST) -> bool:
    """Whether a cell's last line shows a result by itself: a table of all its stages."""
    if not isinstance(node, ast.Expr):
        return False
    shown = node.value.value if isinstance(node.value, ast.Attribute) else node.value
    return isinstance(shown, ast.Call) and called_name(shown) in ("run", "run_as_published")


def tables(cells: list[Cell]) -> int:
    in_text = len(re.findall(r"^\| *:?---", prose(cells), flags=re.MULTILINE))
    in_code = 0
    for cell in code_cells(cells):
        tree = ast.parse(cell.source)
        in_code += sum(map(is_table, calls(cell))) + sum(map(prints_rows, ast.walk(tree)))
        in_code += is_outcome(tree.body[-1])
    return in_text + in_code


def measured(cells: list[Cell]) -> dict[str, int]:
    return {
        "words": words(cells),
        "code cells": len(code_cells(cells)),
        "tables": tables(cells),
        "predictions": names_called(cells).count("predict"),
    }


def import_lines(cells: list[Cell]) -> int:
    return sum(
        node.end_lineno - node.lineno + 1
        for cell in code_cells(cells)
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Import | ast.ImportFrom) and node.end_lineno
    )


def pictures(cells: list[Cell]) -> int:
    return sum(name.startswith("draw_") or name == "show_timeline" for name in names_called(cells))


def position_of_first(cells: list[Cell], kind: str) -> int:
    """The number of the first code cell that calls something whose name begins so."""
    return next(
        (
            number
            for number, cell in enumerate(code_cells(cells))
            if any(called_name(call).startswith(kind) for call in calls(cell))
        ),
        len(cells),
    )


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_main_path_takes_25_minutes_and_shows_before_it_counts(path: Path) -> None:
    lesson = read_lesson(path)
    cells = main_path(lesson)
    has = measured(cells)
    assert {what: count for what, count in has.items() if count > MOST[what]} == {}
    for part in (cells, lesson.cells[len(cells) :]):
        assert import_lines(part) <= MOST_IMPORTS
    assert pictures(lesson.cells) >= LEAST_PICTURES
    assert position_of_first(cells, "draw_") < position_of_first(cells, "reveal")


def test_main_path_ends_before_the_second_part() -> None:
    lesson = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("## What carries over"),
            nbformat.v4.new_markdown_cell("## To the byte\n\nFor those who want it."),
            nbformat.v4.new_code_cell("Table('')"),
        ]
    )
    assert main_path(lesson) == lesson.cells[:1]
