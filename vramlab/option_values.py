"""Values of command-line options, for `argparse`: what is wrong with one, in words."""

from __future__ import annotations

import argparse


def at_least_one(text: str) -> int:
    """Read a whole number from 1 on.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: use a whole number from 1 on")
    return int(text)


def positive(text: str) -> float:
    """Read a number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: use one above 0")
    return number
