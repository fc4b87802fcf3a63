"""Division and rounding of whole numbers, as C++'s `at::ceil_div` and `at::round_up` do it."""

from __future__ import annotations


def ceil_div(number: int, divisor: int) -> int:
    """Divide and round up."""
    return -(-number // divisor)


def round_up(number: int, multiple: int) -> int:
    """Round up to the next multiple."""
    return -(-number // multiple) * multiple


def power_of_two_below(number: int) -> int:
    """Round down to a power of two; 1 for 0."""
    return 1 << max(number.bit_length() - 1, 0)
