"""Give the Python programs that a program starts virtual GPUs like its own.

Launchers (torchrun, accelerate, Lightning) start `python train.py` once for each rank. With a real
GPU each of them has it; here each runs by `vramlab run` and reports for itself. What is given as
`python -c` is left alone, and so is everything that is no Python, but for `nvidia-smi`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from vramlab.gpu.core.patches import Patches
from vramlab.report.nvidia_smi import smi_command
from vramlab.source_files import CodeOwner, owner_of

_PYTHON = re.compile(r"python(\d+(\.\d+)*)?(\.exe)?")
_WITH_ARGUMENT = ("-W", "-X")
"""Options of python that take a word of their own."""


class Children:
    """Looks after `subprocess` while the body of the with statement runs.

    Args:
        options: those of `vramlab run` that children get.

    Attributes:
        count: how many were started with virtual GPUs.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self.count = 0
        self._options = options
        self._patches = Patches()

    def __enter__(self) -> Children:
        start = subprocess.Popen.__init__

        def start_attached(process: Any, args: Any, *more: Any, **named: Any) -> None:
            attached = attached_command(args, self._options)
            self.count += attached is not None
            start(process, attached or smi_command(args) or args, *more, **named)

        self._patches.set(subprocess.Popen, "__init__", start_attached)
        return self

    def __exit__(self, *exception: object) -> None:
        self._patches.undo()


def attached_command(args: Any, options: Sequence[str]) -> list[str] | None:
    """Rewrite `python [options] program ...` to run it by vramlab; None for anything else.

    Args:
        args: the words of the command, as `subprocess.Popen` gets them.
        options: those of `vramlab run`.
    """
    if isinstance(args, str | bytes | os.PathLike):
        return None
    words = [os.fsdecode(word) for word in args]
    if not words or not (words[0] == sys.executable or _is_python(words[0])):
        return None
    position = 1
    while position < len(words) and words[position].startswith("-"):
        if words[position] == "-m":
            break
        if words[position] == "-" or words[position].startswith("-c"):
            return None
        position += 2 if words[position] in _WITH_ARGUMENT else 1
    program = words[position:]
    if not program or program[:2] == ["-m", "vramlab"] or not _is_program(program):
        return None
    return [*words[:position], "-m", "vramlab", "run", *options, *program]


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(os.path.basename(word)) is not None


def _is_program(words: Sequence[str]) -> bool:
    """Tell whether this is a program of the user or of a launcher, not one of PyTorch's helpers."""
    if words[0] == "-m":
        return len(words) > 1
    return owner_of(os.path.abspath(words[0])) in (CodeOwner.PROGRAM, CodeOwner.PACKAGE)
