"""Which lines of the program led here: for the memory history, and for naming the line at fault."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch._ops import OpOverload

_OWN_FOLDER = str(Path(__file__).parents[1])
_OWN_PROGRAMS = tuple(str(Path(_OWN_FOLDER, name)) for name in ("experiments", "zoo"))
_LIBRARIES = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")} - {None})


class Frames:
    """The Python frames of one allocation, innermost first; told as torch's memory history tells.

    Only code objects and line numbers are kept while the program runs.
    """

    __slots__ = ("_lines",)

    def __init__(self, frame: FrameType | None, ops: Sequence[object], taking: str) -> None:
        lines: list[tuple[CodeType, int]] = []
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith(_OWN_FOLDER):
                lines.append((code, frame.f_lineno))
            frame = frame.f_back
        self._lines = lines

    @classmethod
    def of_caller(cls, ops: Sequence[object], taking: str) -> Frames:
        """The frames that led here.

        Args:
            ops: those that are running, outermost first.
            taking: what a kernel takes for itself, as its rule calls it, or "".
        """
        return cls(sys._getframe(1), ops, taking)

    def as_dicts(self) -> list[dict[str, Any]]:
        """The frames in the form of `torch.cuda.memory._snapshot()`."""
        return [
            {"filename": code.co_filename, "line": line, "name": code.co_qualname}
            for code, line in self._lines
        ]


class AllFrames(Frames):
    """Python frames, and among them what C++ frames would tell: which op, for which autograd node.

    They have the names that the C++ functions of PyTorch have, so that what reads the memory
    history of a real GPU (`stacks="all"`) reads this one. What a rule says that a kernel takes for
    itself is a frame `vramlab::take(...)`. Programs that are part of vramlab are told, too.
    """

    __slots__ = ("_cpp_names",)

    def __init__(self, frame: FrameType | None, ops: Sequence[object], taking: str) -> None:
        lines: list[tuple[CodeType, int]] = []
        while frame is not None:
            code = frame.f_code
            filename = code.co_filename
            if not filename.startswith(_OWN_FOLDER) or filename.startswith(_OWN_PROGRAMS):
                lines.append((code, frame.f_lineno))
            frame = frame.f_back
        names = [f"vramlab::take({taking})"] if taking else []
        names += [_cpp_name(op) for op in reversed(ops) if isinstance(op, OpOverload)]
        node = torch._C._current_autograd_node()
        if node is not None:
            names.append(f"torch::autograd::{node.name()}::apply")
        self._lines = lines
        self._cpp_names = names

    def as_dicts(self) -> list[dict[str, Any]]:
        """The frames in the form of `torch.cuda.memory._snapshot()`."""
        cpp = [{"filename": "??", "line": 0, "name": name} for name in self._cpp_names]
        return cpp + super().as_dicts()


def _cpp_name(op: OpOverload) -> str:
    schema = op._schema
    overload = f"_{schema.overload_name}" if schema.overload_name else ""
    name = schema.name.replace("::", "::_ops::", 1).replace("aten", "at", 1)
    return f"{name}{overload}::call"


def user_line() -> str:
    """Name the innermost line of the user's program: `train.py:42: loss.item()`.

    Library code is passed over; where there is nothing else, the innermost library line is named.
    """
    frame: FrameType | None = sys._getframe(1)
    fallback = ""
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith((_OWN_FOLDER, "<frozen")):
            text = linecache.getline(filename, frame.f_lineno).strip()
            line = f"{Path(filename).name}:{frame.f_lineno}: {text}".rstrip(": ")
            if not filename.startswith(_LIBRARIES):
                return line
            fallback = fallback or line
        frame = frame.f_back
    return fallback or "<unknown line>"
