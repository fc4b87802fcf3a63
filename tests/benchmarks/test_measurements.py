"""Published measurements: each row has a program, and gives today what was written down."""

from __future__ import annotations

import importlib
import inspect

import pytest

from benchmarks.measurements.__main__ import found_bytes
from benchmarks.measurements.rows import SOURCES, Row, read_results, rows_of
from benchmarks.measurements.table import unexplained

ROWS = [row for source in SOURCES for row in rows_of(source)]


def test_every_row_has_a_program_that_takes_its_arguments() -> None:
    for row in ROWS:
        module = importlib.import_module(f"benchmarks.measurements.{row.source}")
        names = {word.split("=")[0] for word in row.arguments.split()}
        assert set(inspect.signature(getattr(module, row.program)).parameters) == names


def test_figures_that_are_far_off_have_a_reason() -> None:
    assert unexplained() == []


# The last row of each program of the sources that need no more than PyTorch.
SMALL = {(row.source, row.program): row for row in ROWS if row.source in ("liger", "xformers")}


@pytest.mark.parametrize("row", SMALL.values(), ids=lambda row: f"{row.source}-{row.program}")
def test_programs_take_what_was_written_down(row: Row) -> None:
    assert found_bytes(row) == read_results()[row.source][row.name]["found_bytes"]
