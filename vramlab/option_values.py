"""Values of command-line arguments, with error messages that name the value."""

from __future__ import annotations

import argparse
from pathlib import Path


def at_least_one(text: str) -> int:
    """Read an integer of at least 1.

    Raises:
        argparse.ArgumentTypeError: The text is anything else.
    """
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: use an integer of at least 1")
    return int(text)


def number(text: str) -> float:
    """Read a number.

    Raises:
        argparse.ArgumentTypeError: The text is anything else.
    """
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: use one such as 0.5") from None


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


def cannot_run(script: str) -> str | None:
    """Return why Python cannot run a file as a script, and what to do; None if it can."""
    path = Path(script)
    if not path.exists():
        return f"can't open file {script!r}: no such file; pass the path of a script"
    if path.is_dir() and not (path / "__main__.py").exists():
        return f"{script!r} is a folder without a __main__.py: pass the script in it"
    if path.suffix == ".ipynb":
        return (
            f"{script!r} is a notebook: convert it with `jupyter nbconvert --to script`, or call "
            "vramlab.attach() in its first cell"
        )
    return None
