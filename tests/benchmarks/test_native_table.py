"""The table of docs/accuracy.md that compares the engines with recordings and each other."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import native
from benchmarks.parts import engines_picture

NUMBERS = [
    {"difference_bytes": 0, "known": None},
    {"difference_bytes": 512, "known": "segment-order"},
    {"difference_bytes": 512, "known": None},
]


def comparison(engine: str | None, other: Any = None) -> dict[str, Any]:
    """What `vramlab compare --json` prints of one entry, and of one that was skipped."""
    one = {"entry": "zoo/a", "equal": False, "problem": None, "skipped": None, "numbers": NUMBERS}
    machine = {"gpu": "NVIDIA H200", "torch": "2.11.0+cu130", "engine": engine}
    skipped = {**one, "entry": "zoo/b", "skipped": "needs two GPUs"}
    return {"machine": machine, "with": other, "entries": [one, skipped]}


@pytest.mark.parametrize(
    ("engine", "other", "who"),
    [
        (None, {"engine": "native"}, ("native", "measured")),
        ("native", None, ("portable", "native")),
        (None, None, ("portable", "measured")),
    ],
)
def test_a_row_says_who_was_held_against_what(engine: Any, other: Any, who: Any) -> None:
    (row,) = native.rows_of(comparison(engine, other))
    assert (row["engine"], row["against"]) == who
    assert (row["gpu"], row["torch"]) == ("H200", "2.11.0")
    assert (row["entries"], row["equal_entries"]) == (1, 0)
    assert (row["numbers"], row["equal_numbers"]) == (3, 1)
    assert row["reasons"] == {"": 1, "segment-order": 1}
    assert row["unnamed"] == ["zoo/a"]


def test_the_picture_of_the_engines_is_what_the_code_says() -> None:
    assert engines_picture.is_current()  # else: python -m benchmarks.pages
