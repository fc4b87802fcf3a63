"""Reads the code blocks of a page in Markdown, for tests that do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]

_PACKAGES = (ROOT, ROOT / "packages" / "vramlab-course", ROOT / "packages" / "vramlab-classroom")

_BLOCK = re.compile(r"^```(?P<kind>[a-z ]+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def kinds(page: str) -> set[str]:
    """What stands behind the three backticks of the page's blocks."""
    return {found["kind"] for found in _BLOCK.finditer(page)}


def blocks(page: str, kind: str) -> list[str]:
    """The text of each block of a kind, such as `python`."""
    return [found["text"] for found in _BLOCK.finditer(page) if found["kind"] == kind]


def commands(page: str, program: str, of_kinds: Iterable[str] = ("sh",)) -> list[list[str]]:
    """The words behind the program's name, for each line of a block that calls it."""
    lines = [
        line for kind in of_kinds for block in blocks(page, kind) for line in block.split("\n")
    ]
    return [
        shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"{program} ")
    ]


def environment(**added: str) -> dict[str, str]:
    """The environment of a command: this checkout's packages, this Python's programs first.

    Where tests run with a PyTorch that PYTHONPATH names, so do commands.
    """
    # Each command would compile the package again.
    dropped = ("VRAMLAB", "PYTHONDONTWRITEBYTECODE", "MAKE", "MFLAGS", "VENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    # As where nothing is set up for the native engine.
    engine = {"VRAMLAB_ENGINE": "portable", "VRAMLAB_CUDNN": "table"}
    found = [*map(str, _PACKAGES), *filter(None, [kept.get("PYTHONPATH"), added.get("PYTHONPATH")])]
    named = {"PATH": path, "PYTHONPATH": os.pathsep.join(found)}
    return {**kept, **engine, **added, **named}
