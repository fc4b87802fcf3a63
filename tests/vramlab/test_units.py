"""Bytes written as PyTorch's error messages write them, in tables and in labels."""

from __future__ import annotations

import pytest

from vramlab.units import GIB, KIB, MIB, format_bytes, format_mib, mib, short_size, signed_bytes


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (512, "512 bytes"),
        # A unit is used above one of it, not from one of it on: format_size compares with <=.
        (KIB, "1024 bytes"),
        (KIB + 1, "1.00 KiB"),
        (MIB, "1024.00 KiB"),
        (MIB + 1, "1.00 MiB"),
        (2 * MIB, "2.00 MiB"),
        (GIB, "1024.00 MiB"),
        (GIB + 1, "1.00 GiB"),
        # Beyond GiB there is no larger unit.
        (2048 * GIB, "2048.00 GiB"),
        # 20 MiB + 512 B = 20.00048828125 MiB
        (20 * MIB + 512, "20.00 MiB"),
        # 3.57 MiB, the remainder in the BERT AdamW figure, from 3,743,744 / 1,048,576 = 3.5703125
        (3_743_744, "3.57 MiB"),
    ],
)
def test_format_bytes_writes_as_pytorch(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        # Halves that a double holds exactly go to the even digit, in C++ streams as in Python:
        # 1.125 MiB and 1.375 MiB lie halfway between two decimals.
        (MIB + MIB // 8, "1.12 MiB"),
        (MIB + 3 * MIB // 8, "1.38 MiB"),
    ],
)
def test_format_bytes_rounds_as_pytorch(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


def test_mib() -> None:
    assert mib(3 * MIB // 2) == 1.5


def test_format_mib_has_the_exact_bytes_below() -> None:
    # 1,234.5 MiB and 1 B: 1 / 1,048,576 is less than half of the last decimal.
    assert format_mib(2469 * MIB // 2 + 1) == "1,234.5000 MiB\n1,294,467,073 B"
    assert format_mib(0) == "0.0000 MiB\n0 B"


def test_differences_have_their_sign() -> None:
    assert [signed_bytes(size) for size in (1024, 0, -512)] == ["+1,024 B", "equal", "-512 B"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1536, "1.5 KiB"),
        (8_519_680, "8.125 MiB"),
        (20 * MIB, "20 MiB"),
        (100 * MIB, "100 MiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (-8192, "-8 KiB"),
    ],
)
def test_short_sizes(size_bytes: int, text: str) -> None:
    assert short_size(size_bytes) == text
