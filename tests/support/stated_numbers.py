"""Numbers that a lesson's sentences and titles state, and that its outputs do not show.

A sentence was true when it was written. When the engine gets better, or a cell changes, the outputs
change and the sentence stays. So each number that a sentence states has to be in an output near it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from given_away import shown
from lesson_parts import Cell, called_name, calls

from docs.builder import colab
from vramlab.units import GIB, KIB, MIB

_BYTES = {"B": 1, "byte": 1, "bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
_BYTES |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_COUNTS = {"million": 10**6, "billion": 10**9}
_SHARES = {"%": 1, "percent": 1}
_RATIOS = {"times": 1, "x": 1}
_SCALE = {**_BYTES, **_COUNTS, **_SHARES, **_RATIOS}
_KIND = {
    unit: kind for kind, units in enumerate((_BYTES, _COUNTS, _SHARES, _RATIOS)) for unit in units
}
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_UNIT = "|".join(sorted(map(re.escape, _SCALE), key=len, reverse=True))
_PROGRAM = re.compile(rf"({_NUMBER})( \* )(KIB|MIB|GIB)\b")
_STATED = re.compile(
    rf"(?<![\w.,])({_NUMBER}|(?i:{'|'.join(_WORDS[2:])}))\s?(?!x)({_UNIT})(?![\w/])"
)
_SHOWN = re.compile(rf"(?<![\w.,])(?<!e-)({_NUMBER})\s?({_UNIT})?(?!\w)")

_FEW_BYTES = 16
_SMALLEST = 10
"""Bare integers below it are no evidence."""
_CLOSE = Decimal("0.1")
"""Share by which a number in words may be off: 'two billion' are no 1.7 billion."""
NEAR = 1
"""Sections between a sentence and the output that has its number, at most."""
EVERYWHERE = ("title", "carry-over")
"""Cells that speak of the whole lesson."""


@dataclass(frozen=True)
class Amount:
    """A number with its unit; '' for none."""

    number: Decimal
    unit: str
    written: str

    def says(self, other: Amount) -> bool:
        """Return whether this is another number, rounded as it is written."""
        if other.unit:
            if _KIND[self.unit] != _KIND[other.unit]:
                return False
            return self._rounds(other.number * _SCALE[other.unit] / _SCALE[self.unit])
        # In a table, the unit is in the heading, or it is bytes. Small integers and, beside ratios,
        # all integers are everywhere: indices, counts, labels of an axis.
        if "." not in other.written and (other.number < _SMALLEST or self.unit in _RATIOS):
            return False
        scaled = other.number / _SCALE[self.unit]
        return self._rounds(other.number) or (scaled >= 1 and self._rounds(scaled))

    def _rounds(self, number: Decimal) -> bool:
        if self.written in _WORDS:
            return abs(number - self.number) <= _CLOSE * number
        _, _, decimals = self.written.partition(".")
        if decimals:
            return round(number, len(decimals)) == self.number
        digits = self.written.replace(",", "")
        zeros = len(digits) - len(digits.rstrip("0"))
        return any(round(number, -places) == self.number for places in {0, zeros})


def stated_only(cells: list[Cell]) -> Iterator[tuple[str, str]]:
    """Yield the cell and the words of each number that is in no output near it.

    Args:
        cells: of a lesson that was run.
    """
    sections = list(_sections(cells))
    outputs = [list(_amounts(_shown(cell))) for cell in cells]
    for place, cell in enumerate(cells):
        reach = len(cells) if cell.id in EVERYWHERE else NEAR
        near = [
            amount
            for amounts, section in zip(outputs, sections, strict=True)
            if abs(section - sections[place]) <= reach
            for amount in amounts
        ]
        for words, amount in stated(cell):
            if not any(amount.says(other) for other in near):
                yield cell.id, words


def stated(cell: Cell) -> Iterator[tuple[str, Amount]]:
    """Yield what sentences and titles state, but for sizes of a few numbers, which are known."""
    for text in [_sentences(cell.source)] if cell.cell_type == "markdown" else _titles(cell):
        for match in _STATED.finditer(text):
            amount = _amount(match[1].lower(), match[2])
            if amount.number * _SCALE[amount.unit] > _FEW_BYTES or amount.unit not in _BYTES:
                yield match[0], amount


def _shown(cell: Cell) -> Iterator[str]:
    """Yield what a code cell shows, but for its titles, and sizes that its program is given."""
    if cell.cell_type == "code":
        for number, _, unit in _PROGRAM.findall(cell.source):
            yield f"{number} {unit.replace('IB', 'iB')}"
        titles = list(_titles(cell))
        for text in shown(cell, folded=True):
            for title in titles:
                text = text.replace(title, " ")
            yield text


def _titles(cell: Cell) -> Iterator[str]:
    """Yield the titles of a code cell's pictures and tables, without the values in them."""
    if cell.id == colab.CELL_ID:
        return
    for call in calls(cell):
        titles = [keyword.value for keyword in call.keywords if keyword.arg == "title"]
        titles += call.args[:1] if called_name(call) == "Table" else []
        for node in (inner for title in titles for inner in ast.walk(title)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _sections(cells: list[Cell]) -> Iterator[int]:
    section = 0
    for cell in cells:
        if cell.cell_type == "markdown":
            section += bool(re.search("^#+ ", cell.source, flags=re.MULTILINE))
        yield section


def _sentences(markdown: str) -> str:
    """Return what a cell claims: no code, no quotations, and no questions to check oneself."""
    claims = markdown.partition("### Check yourself")[0]
    claims = re.sub(r"```.*?```|`[^`]*`|^>.*$", " ", claims, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r'\]\([^)]*\)|<[^>]+>|"[^"]*"', " ", claims)


def _amounts(texts: Iterable[str]) -> Iterator[Amount]:
    for text in texts:
        for match in _SHOWN.finditer(text):
            yield _amount(match[1], match[2] or "")


def _amount(written: str, unit: str) -> Amount:
    number = _WORDS.index(written) if written in _WORDS else Decimal(written.replace(",", ""))
    return Amount(Decimal(number), unit, written)
