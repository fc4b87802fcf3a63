"""A result as data, as JSON and as a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from vramlab.measure import Expectation, Published, Result, StageMeasurement
from vramlab.units import MIB

FORWARD = StageMeasurement(
    name="forward",
    allocated_before_bytes=56 * MIB,
    allocated_after_bytes=224 * MIB,
    peak_allocated_bytes=224 * MIB,
    reserved_before_bytes=60 * MIB,
    reserved_after_bytes=240 * MIB,
    peak_reserved_bytes=240 * MIB,
    device_used_after_bytes=700 * MIB,
    expectations=(Expectation("growth", 168 * MIB, Published(168.0, "MiB", "001")),),
)
BACKWARD = StageMeasurement(
    name="backward",
    allocated_before_bytes=224 * MIB,
    allocated_after_bytes=80 * MIB,
    peak_allocated_bytes=377_766_912,
    reserved_before_bytes=240 * MIB,
    reserved_after_bytes=320 * MIB,
    peak_reserved_bytes=320 * MIB,
    device_used_after_bytes=780 * MIB,
    expectations=(
        Expectation("allocated", 80 * MIB + 512),
        Expectation("peak", 377_766_912, Published(360.2744140625, "MiB", "001 §2.24")),
    ),
)
RESULT = Result("one step", "Tesla T4", True, "2.13.0", (FORWARD, BACKWARD))


def test_numbers_of_a_stage() -> None:
    assert FORWARD.growth_bytes == 168 * MIB  # 224 - 56
    assert FORWARD.reserved_growth_bytes == 180 * MIB  # 240 - 60
    assert BACKWARD.growth_bytes == -144 * MIB  # 80 - 224
    assert BACKWARD.measured_bytes("device used") == 780 * MIB
    assert BACKWARD.expectation("peak").predicted_bytes == 377_766_912
    assert BACKWARD.expectation("growth").predicted_bytes is None


def test_json_gives_the_same_result_back() -> None:
    text = RESULT.to_json()
    assert Result.from_json(text) == RESULT
    assert json.loads(text)["stages"][0]["allocated_after_bytes"] == 234_881_024  # 224 * 2**20


def test_stages_are_found_by_name_and_the_last_one_counts() -> None:
    second = replace(FORWARD, allocated_after_bytes=216 * MIB)
    result = replace(RESULT, stages=(FORWARD, BACKWARD, second))
    assert result["forward"] is second
    with pytest.raises(KeyError, match="has no stage 'loss'; it has: 'forward', 'backward'"):
        RESULT["loss"]


def test_table_says_equal_or_the_signed_bytes() -> None:
    rows = RESULT.table().rows
    assert rows[0] == (
        "forward\ngrowth",
        "168.0000 MiB\n176,160,768 B",
        "168.0000 MiB\n176,160,768 B",
        "168.0 MiB\n001",
        "equal",
    )
    # measured 80 MiB, predicted 512 bytes more; nothing published
    assert rows[1][0] == "backward\nallocated"
    assert rows[1][3:] == ("", "-512 B")
    # the prediction is met; published: 360.2744140625 * 2**20 = 377775104, 8192 bytes more
    assert rows[2][4] == "predicted: equal\npublished: -8,192 B"


def test_table_names_gpu_and_torch_and_explains_quantities_and_errors() -> None:
    stage = replace(BACKWARD, error="OutOfMemoryError: CUDA out of memory.")
    table = replace(RESULT, stages=(stage,)).table()
    assert table.caption == "one step, on Tesla T4 (virtual) with torch 2.13.0"
    assert "(virtual)" not in replace(RESULT, virtual=False).table().caption
    assert table.notes == (
        "allocated: allocated bytes after the stage.",
        "peak: highest allocated bytes while the stage ran.",
        "'backward' ended in OutOfMemoryError: CUDA out of memory.",
    )
    assert str(RESULT) == str(RESULT.table())
    assert RESULT._repr_html_() == RESULT.table()._repr_html_()
