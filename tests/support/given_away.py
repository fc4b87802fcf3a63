"""What a lesson that was run shows of an answer before its reader has committed to a prediction.

Folded text is not shown, and neither is an answer that waits: see `vramlab_course.widgets.predict`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from html import unescape

from lesson_parts import Cell, called_name

from docs.builder import colab
from vramlab_course.widgets.guesses import COUNTS, UNITS
from vramlab_course.widgets.questions import find

_NUMBER = r"(?<![\w.,\N{MULTIPLICATION SIGN}])(\d[\d,]*(?:\.\d+)?)"
_WORDS = {"bytes": "B", "byte": "B"}
_SHOWN = re.compile(rf"{_NUMBER}\s*({'|'.join([*_WORDS, *UNITS])})\b(?!\s*(?:/|each\b))")
_FOLDED = re.compile(r"<details>.*?</details>", flags=re.DOTALL)
_ANSWER = re.compile(r"<details><summary>.*?</summary><p>(.*?)</p></details>", flags=re.DOTALL)
_TAGS = re.compile(r"<style.*?</style>|<script.*?</script>|<[^>]+>", flags=re.DOTALL)
_SMALLEST = 10
"""Smaller numbers are everywhere, so they give no answer away."""


@dataclass(frozen=True)
class Asked:
    """A prediction of a lesson: where it is asked and revealed, and its answer."""

    unit: str
    asked_at: int
    revealed_at: int
    answer: Decimal


def given_away(cells: list[Cell]) -> list[tuple[str, str]]:
    """Give each cell that tells an answer, before it is revealed or right after, and its words.

    Looked at are the title, and all from the prediction before to the text behind the answer.

    Args:
        cells: of a lesson that was run.
    """
    found, begin = [], 0
    for asked in sorted(predictions(cells), key=lambda each: each.asked_at):
        places = sorted({0, *range(begin, asked.revealed_at + 1)})
        behind = asked.revealed_at + 1
        if behind < len(cells) and cells[behind].cell_type == "markdown":
            places.append(behind)
        for place in places:
            texts = shown(cells[place])
            found += [(cells[place].id, words) for text in texts for words in tells(text, asked)]
        begin = behind
    return found


def predictions(cells: list[Cell]) -> Iterator[Asked]:
    """Give the predictions of a lesson that was run."""
    asked: dict[str, tuple[int, str]] = {}
    for number, cell in enumerate(cells):
        if cell.cell_type != "code" or cell.id == colab.CELL_ID:
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                call = node.value
                if called_name(call) == "predict":
                    unit = find(ast.literal_eval(call.args[0])).unit
                    asked[ast.unparse(node.targets[0])] = number, unit
            elif isinstance(node, ast.Call) and called_name(node) == "reveal":
                assert isinstance(node.func, ast.Attribute)
                at, unit = asked[ast.unparse(node.func.value)]
                yield Asked(unit, at, number, _answer(cell))


def _answer(cell: Cell) -> Decimal:
    (told,) = (
        match[1]
        for output in cell.outputs
        for match in [_ANSWER.search(output.get("data", {}).get("text/html", ""))]
        if match
    )
    return Decimal(unescape(told).split()[0].replace(",", ""))


def shown(cell: Cell, *, folded: bool = False) -> Iterator[str]:
    """Give what a reader sees of a cell, but for its code.

    Args:
        cell: of a lesson that was run.
        folded: whether what is folded counts as seen.
    """
    if cell.cell_type == "markdown":
        yield cell.source if folded else _FOLDED.sub("", cell.source)
        return
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            yield output.text
            continue
        html = output.get("data", {}).get("text/html", "")
        html = html if folded else _FOLDED.sub("", html)
        yield from map(unescape, re.findall(r'alt="([^"]*)"', html))
        yield unescape(
            re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]+>", " ", html, flags=re.DOTALL)
        )


def tells(text: str, asked: Asked) -> list[str]:
    """Give the amounts in a text that are the answer, rounded as they are."""
    found = []
    for match in _SHOWN.finditer(text):
        number, unit = match[1].replace(",", ""), _WORDS.get(match[2], match[2])
        if (unit in COUNTS) != (asked.unit in COUNTS) or (unit in COUNTS and unit != asked.unit):
            continue
        here = Decimal(number) * UNITS[unit] / UNITS[asked.unit]
        digits = len(number.partition(".")[2])
        half = Decimal(10) ** -digits / 2 * UNITS[unit] / UNITS[asked.unit]
        if Decimal(number) >= _SMALLEST and abs(here - asked.answer) <= half:
            found.append(match[0])
    return found
