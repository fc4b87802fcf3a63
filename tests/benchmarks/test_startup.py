"""The benchmark of start-up measures processes, and sets them against Python's and torch's own."""

from __future__ import annotations

import pytest

from benchmarks.startup import PYTHON, STARTS, TORCH, measure, seconds_of, table


def test_ratios_are_to_python_and_to_torch() -> None:
    lines = table({PYTHON: 0.010, "import vramlab": 0.025, TORCH: 2.0}).splitlines()
    assert lines[0].split() == ["ms", "x", "python", "x", "torch"]
    assert lines[2].split() == ["import", "vramlab", "25", "2.50", "0.01"]
    assert lines[3].split() == ["import", "torch", "2000", "200.00", "1.00"]


def test_what_works_longer_takes_longer() -> None:
    busy = ("-c", "for _ in range(10**7): pass")
    seconds = measure({PYTHON: STARTS[PYTHON], "busy": busy}, rounds=2)
    assert seconds["busy"] > seconds[PYTHON] > 0


def test_a_start_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match=r"python -c import sys; .* ended with status 3"):
        seconds_of(("-c", "import sys; sys.exit(3)"))
