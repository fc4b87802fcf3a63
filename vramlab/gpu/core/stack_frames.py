"""Which lines of the program led here: for the memory history, and for naming the line at fault."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from vramlab.gpu.torch_internals import OpOverload, current_autograd_node, schema_of
from vramlab.source_files import CodeOwner, is_notebook_cell, owner_of

_VRAMLAB = CodeOwner.VRAMLAB  # a member of an enum takes long to look up

_RATHER = (
    CodeOwner.PROGRAM,
    CodeOwner.NOBODY,
    CodeOwner.PACKAGE,
    CodeOwner.PYTORCH,
    CodeOwner.PYTHON,
)
"""Whose line is named, if there are several."""


class Frames:
    """The Python frames of one allocation, innermost first; told as torch's memory history tells.

    Only code objects and line numbers are kept while the program runs.
    """

    __slots__ = ("_lines",)

    def __init__(self, frame: FrameType | None, ops: Sequence[object], taking: str) -> None:
        lines: list[tuple[CodeType, int]] = []
        while frame is not None:
            code = frame.f_code
            if owner_of(code.co_filename) is not _VRAMLAB:
                lines.append((code, frame.f_lineno))
            frame = frame.f_back
        self._lines = lines

    @classmethod
    def of_caller(cls, ops: Sequence[object], taking: str) -> Frames:
        """Gather the frames that led here.

        Args:
            ops: those that are running, outermost first.
            taking: what a kernel takes for itself, as its rule calls it, or "".
        """
        return cls(sys._getframe(1), ops, taking)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Write the frames as `torch.cuda.memory._snapshot()` does."""
        return [
            {"filename": code.co_filename, "line": line, "name": code.co_qualname}
            for code, line in self._lines
        ]


class AllFrames(Frames):
    """Python frames, and among them what C++ frames would tell: which op, for which autograd node.

    They have the names that the C++ functions of PyTorch have, so that what reads the memory
    history of a real GPU (`stacks="all"`) reads this one. What a rule says that a kernel takes for
    itself is a frame `vramlab::take(...)`.
    """

    __slots__ = ("_cpp_names",)

    def __init__(self, frame: FrameType | None, ops: Sequence[object], taking: str) -> None:
        super().__init__(frame, ops, taking)
        names = [f"vramlab::take({taking})"] if taking else []
        names += [_cpp_name(op) for op in reversed(ops) if isinstance(op, OpOverload)]
        node = current_autograd_node()
        if node is not None:
            names.append(f"torch::autograd::{node.name()}::apply")
        self._cpp_names = names

    def as_dicts(self) -> list[dict[str, Any]]:
        """Write the frames as `torch.cuda.memory._snapshot()` does."""
        cpp = [{"filename": "??", "line": 0, "name": name} for name in self._cpp_names]
        return cpp + super().as_dicts()


def _cpp_name(op: OpOverload) -> str:
    schema = schema_of(op)
    overload = f"_{schema.overload_name}" if schema.overload_name else ""
    name = schema.name.replace("::", "::_ops::", 1).replace("aten", "at", 1)
    return f"{name}{overload}::call"


def user_line(start: FrameType | None = None) -> str:
    """Name the innermost line of the user's program: `train.py:42: loss.item()`.

    Library code is passed over; where there is nothing else, the innermost library line is named.

    Args:
        start: the innermost frame to look at; by default the caller's.
    """
    frame = user_frame(start)
    if frame is None:
        return "<unknown line>"
    filename = frame.f_code.co_filename
    name = "notebook cell" if is_notebook_cell(filename) else Path(filename).name
    text = linecache.getline(filename, frame.f_lineno).strip()
    return f"{name}:{frame.f_lineno}: {text}".rstrip(": ")


def user_frame(start: FrameType | None = None) -> FrameType | None:
    """Find the innermost frame of the user's program; where there is none, that of a library.

    None where vramlab alone runs. `start` is as for `user_line`.
    """
    found: dict[CodeOwner, FrameType] = {}
    frame: FrameType | None = start or sys._getframe(1)
    while frame is not None and CodeOwner.PROGRAM not in found:
        found.setdefault(owner_of(frame.f_code.co_filename), frame)
        frame = frame.f_back
    return next((found[owner] for owner in _RATHER if owner in found), None)


def asking_frame() -> FrameType | None:
    """Find the frame that asks for what is answered now: the innermost that is no part of modes."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        owner_of(frame.f_code.co_filename) is _VRAMLAB
        or frame.f_code.co_name in ("__torch_function__", "__torch_dispatch__")
    ):
        frame = frame.f_back
    return frame
