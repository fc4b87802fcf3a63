"""What tests of lessons ask a notebook for: its prose, its code, its main path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from docs.builder import colab

LESSONS = sorted((Path(__file__).resolve().parents[2] / "lessons").glob("*.ipynb"))

SECOND_PART = "## To the byte"
"""Heads what serves proof rather than understanding. The main path ends before it."""

Cell = Any
Notebook = Any


def read_lesson(path: Path) -> Notebook:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def main_path(lesson: Notebook) -> list[Cell]:
    """The cells before the second part; all of them if the lesson has one part."""
    for number, cell in enumerate(lesson.cells):
        if cell.cell_type == "markdown" and SECOND_PART in cell.source.splitlines():
            return list(lesson.cells[:number])
    return list(lesson.cells)


def code_cells(cells: list[Cell]) -> list[Cell]:
    """The lesson's own; tests/site/test_colab_cell.py has the one that installs it in Colab."""
    return [cell for cell in cells if cell.cell_type == "code" and cell.id != colab.CELL_ID]


def prose(cells: list[Cell]) -> str:
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def words(cells: list[Cell]) -> int:
    """Those that a reader meets without unfolding anything; a link is its text."""
    folded = re.compile(r"(<details>\s*<summary>.*?</summary>).*?</details>", flags=re.DOTALL)
    text = re.sub(r"<[^>]+>|\]\([^)]*\)", " ", folded.sub(r"\1", prose(cells)))
    return len(re.findall(r"[^\s|]*\w[^\s|]*", text))


def calls(cell: Cell) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call))


def called_name(call: ast.Call) -> str:
    """`f` of f(...), `g` of x.g(...)."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def names_called(cells: list[Cell]) -> list[str]:
    """One for each call in the code, in reading order of the cells."""
    return [called_name(call) for cell in code_cells(cells) for call in calls(cell)]
