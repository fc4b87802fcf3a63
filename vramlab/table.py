"""A small table that reads well as text in a terminal and as HTML in a notebook.

The HTML says what a screen reader needs: a caption, and a scope on every heading cell. Nothing is
told by colour.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from html import escape
from typing import Any

from vramlab.words import say, say_name

_GAP = "  "
# The line height is said because ipywidgets would stretch it.
_CELL_STYLE = "padding: 0.25em 0.75em; vertical-align: top; line-height: 1.3;"

_SHORT = 24
"""Characters of a line that is not broken."""


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; the first cell of a row names the row.

    A cell may hold several lines, separated by newlines.
    """

    caption: str
    """What the table shows, in one sentence."""
    header: tuple[str, ...]
    """One heading per column."""
    rows: tuple[tuple[str, ...], ...]
    """One tuple per row, as long as the header."""
    notes: tuple[str, ...] = ()
    """Remarks that stand below the table."""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(
                    f"row {number} of table {self.caption!r} has {len(row)} cells, "
                    f"but there are {len(self.header)} columns: {', '.join(self.header)}"
                )

    def __str__(self) -> str:
        lines_of = [[cell.split("\n") for cell in row] for row in (self.header, *self.rows)]
        widths = [
            max(len(line) for row in lines_of for line in row[column])
            for column in range(len(self.header))
        ]
        text = [self.caption, *_align(lines_of[0], widths), _GAP.join("-" * w for w in widths)]
        for row in lines_of[1:]:
            text += _align(row, widths)
        return "\n".join([*text, *self.notes])

    def markdown(self) -> str:
        """Return it as GitHub's Markdown has tables, the notes as a list below."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        rows = [self.header, tuple(rule), *(tuple(map(_markdown, row)) for row in self.rows)]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join([f"**{self.caption}**", "", *lines, *notes])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        caption = say(self.caption)
        head = "".join(_html_heading(column, say(cell)) for column, cell in enumerate(self.header))
        body = "\n".join(f"<tr>{_html_row(tuple(map(say_name, row)))}</tr>" for row in self.rows)
        # Notes name files, whose paths are wider than a phone.
        wrap = 'style="overflow-wrap: anywhere"'
        notes = "".join(f"<p {wrap}>{escape(say(note))}</p>" for note in self.notes)
        return (
            '<table style="border-collapse: collapse;">\n'
            f'<caption style="text-align: left; padding: 0.25em 0.75em;">{escape(caption)}'
            f"</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{notes}"
        )


class ShownAsTable(ABC):
    """What is shown as its table, in a notebook and when it is printed."""

    @abstractmethod
    def table(self) -> Table:
        """Return the table that says it all."""

    def __str__(self) -> str:
        return str(self.table())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _align(cells: list[list[str]], widths: list[int]) -> list[str]:
    """Lay out one row as lines of text: the first column to the left, the others to the right."""
    height = max(len(lines) for lines in cells)
    laid_out = []
    for number in range(height):
        parts = [lines[number] if number < len(lines) else "" for lines in cells]
        padded = [parts[0].ljust(widths[0])]
        padded += [part.rjust(width) for part, width in zip(parts[1:], widths[1:], strict=True)]
        laid_out.append(_GAP.join(padded).rstrip())
    return laid_out


def _html_heading(column: int, cell: str) -> str:
    # A heading that says nothing is none.
    element, scope = ("th", ' scope="col"') if cell else ("td", "")
    return f'<{element}{scope} style="{_style(column)}">{_lines(cell)}</{element}>'


def _html_row(row: tuple[str, ...]) -> str:
    name = f'<th scope="row" style="{_style(0)}{_unbroken(row[0])}">{_lines(row[0])}</th>'
    return name + "".join(
        f'<td style="{_style(1)}{_unbroken(cell)}">{_lines(cell)}</td>' for cell in row[1:]
    )


def _style(column: int) -> str:
    return f"{_CELL_STYLE} text-align: {'left' if column == 0 else 'right'};"


def _unbroken(cell: str) -> str:
    # On a phone, which scrolls wide tables, numbers stay with their units and names in one line.
    return " white-space: nowrap;" if max(map(len, cell.split("\n"))) <= _SHORT else ""


def _markdown(cell: str) -> str:
    return "<br>".join(re.sub(r"([\\`*_<>|])", r"\\\1", cell).split("\n"))


def _lines(cell: str) -> str:
    return "<br>".join(escape(line) for line in cell.split("\n"))
