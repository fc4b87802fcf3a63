"""What a published figure stands for, and what an expectation refuses."""

from __future__ import annotations

import pytest

from vramlab.measure import Expectation, Published
from vramlab.units import MIB


@pytest.mark.parametrize(
    ("value", "unit", "size_bytes", "agrees"),
    [
        (168.125, "MiB", 176_291_840, True),  # 168.125 * 2**20
        (168.125, "MiB", 176_291_840 + 512, True),  # 168.12548... prints as 168.125
        (168.125, "MiB", 176_291_840 + 1024, False),  # 168.12597... prints as 168.126
        (903.5874, "MiB", 947_480_064, True),  # 903.58740234375
        (903.5874, "MiB", 947_480_064 + 128, False),  # 903.5875244...
        (512, "B", 512, True),
        (512, "B", 513, False),
        (1639, "MiB", 1639 * MIB + 1000, True),
        (2.0, "MiB", int(2.4 * MIB), False),  # 2.0 promises one decimal ...
        (2, "MiB", int(2.4 * MIB), True),  # ... and 2 none
        (41.94, "MB", 41_943_040, True),  # decimal megabytes, as torchinfo prints
    ],
)
def test_a_published_figure_agrees_with_what_prints_the_same(
    value: float, unit: str, size_bytes: int, agrees: bool
) -> None:
    assert Published(value, unit, "here").agrees_with(size_bytes) is agrees


def test_nearest_bytes_and_text_keep_the_digits() -> None:
    # 360.2744140625 * 1048576 = 377775104
    figure = Published(360.2744140625, "MiB", "001 §2.24")
    assert figure.nearest_bytes == 377_775_104
    assert str(figure) == "360.2744140625 MiB"
    assert str(Published(13931.34375, "MiB", "001 §2.41")) == "13,931.34375 MiB"


def test_predicted_bytes_are_whole() -> None:
    with pytest.raises(TypeError, match=r"must be a whole number of bytes \(int\), not 512.0"):
        Expectation("growth", 512.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not True"):
        Expectation("peak", True)
