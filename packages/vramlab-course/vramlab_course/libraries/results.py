"""Rows of a lesson's table "In real libraries", as they were measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from vramlab.table import Table
from vramlab.units import MIB

MEASURED = Path(__file__).with_name("measured.json")
"""Rows of all lessons, written by `python -m vramlab_course.libraries`."""


@dataclass(frozen=True)
class LibraryRow:
    """What one program takes."""

    name: str
    """The library with its version, and what of it runs."""
    sizes_bytes: Mapping[str, int]
    """Bytes by what they are; every row of a lesson has the same names."""


def versioned(package: str, what: str) -> str:
    """Return a row's name: the package with the version that is installed, and what of it runs."""
    return f"{package} {version(package)}: {what}"


def save_rows(lesson: str, conditions: str, rows: list[LibraryRow]) -> None:
    """Write a lesson's rows, and keep those of the others.

    Args:
        lesson: its number, such as "16".
        conditions: PyTorch, the engine and the GPU that measured them.
        rows: the course's own program first.
    """
    kept = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    kept[lesson] = {"conditions": conditions, "rows": [asdict(row) for row in rows]}
    text = json.dumps(dict(sorted(kept.items())), indent=1) + "\n"
    MEASURED.write_text(text, encoding="utf-8")


def read_rows(lesson: str) -> tuple[str, tuple[LibraryRow, ...]]:
    """Return the conditions of a lesson's rows, and the rows.

    Raises:
        KeyError: the lesson has no rows.
    """
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    if lesson not in kept:
        raise KeyError(f"lesson {lesson!r} has no table of libraries; {', '.join(kept)} have one")
    return kept[lesson]["conditions"], tuple(LibraryRow(**row) for row in kept[lesson]["rows"])


def library_table(
    lesson: str, caption: str, *, per: int = MIB, unit: str = "MiB", digits: int = 1
) -> Table:
    """Return the table "In real libraries" of a lesson.

    Args:
        lesson: its number, such as "16".
        caption: what the rows have in common, in one line; the conditions are added.
        per: bytes of a unit: 2**20, or the number of parameters.
        unit: what one is called.
        digits: behind the decimal point.
    """
    conditions, rows = read_rows(lesson)
    names = tuple(rows[0].sizes_bytes)
    return Table(
        f"{caption} ({conditions})",
        ("program", *(f"{name}, {unit}" for name in names)),
        tuple(
            (row.name, *(f"{row.sizes_bytes[name] / per:,.{digits}f}" for name in names))
            for row in rows
        ),
    )
