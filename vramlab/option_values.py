"""Types of command-line options for `argparse`, with error messages that name the value."""

from __future__ import annotations

import argparse


def at_least_one(text: str) -> int:
    """Read an integer of at least 1.

    Raises:
        argparse.ArgumentTypeError: The text is anything else.
    """
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: use an integer of at least 1")
    return int(text)


def positive(text: str) -> float:
    """Read a number greater than 0.

    Raises:
        argparse.ArgumentTypeError: The text is anything else.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: use a number greater than 0")
    return number
