"""Which lines of the program led here: for the memory history, and for naming the line at fault."""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from vramlab.gpu.torch_internals import OpOverload, current_autograd_node, schema_of
from vramlab.source_files import CodeOwner, is_notebook_cell, owner_of

_VRAMLAB = CodeOwner.VRAMLAB  # a member of an enum takes long to look up
_ASSIGNS = dis.opmap["STORE_SUBSCR"]

_RATHER = (
    CodeOwner.PROGRAM,
    CodeOwner.NO_FILE,
    CodeOwner.PACKAGE,
    CodeOwner.PYTORCH,
    CodeOwner.PYTHON,
)
"""Whose line is named, if there are several."""

_OF_MODES = ("__torch_function__", "__torch_dispatch__")


class Frames:
    """The Python frames of one allocation, innermost first; told as torch's memory history tells.

    Only code objects and places in them are kept while the program runs, one after the other in a
    single list: hundreds of thousands of pairs would take Python's garbage collector long.
    """

    __slots__ = ("_places",)

    def __init__(self, frame: FrameType | None, ops: Sequence[object], taking: str) -> None:
        places: list[Any] = []
        while frame is not None:
            places.append(frame.f_code)
            places.append(frame.f_lasti)
            frame = frame.f_back
        self._places = places

    @classmethod
    def of_caller(cls, ops: Sequence[object], taking: str) -> Frames:
        """Gather the frames that led here.

        Args:
            ops: those that are running, outermost first.
            taking: what a kernel takes for itself, as its rule calls it, or "".
        """
        return cls(sys._getframe(1), ops, taking)

    def told_by(self, lines: Lines) -> list[dict[str, Any]]:
        """Write the frames as `torch.cuda.memory._snapshot()` does, without those of vramlab."""
        return lines.frames((), self._places)


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

    def told_by(self, lines: Lines) -> list[dict[str, Any]]:
        """Write the frames as `torch.cuda.memory._snapshot()` does, without those of vramlab."""
        return lines.frames(self._cpp_names, self._places)


class Lines:
    """The lines of programs that a snapshot tells, each one once, and so each stack of them.

    Frames of one line are one dictionary, as in PyTorch's snapshots. Source: `py_symbolize`,
    torch/csrc/profiler/python/combined_traceback.cpp, PyTorch 2.13.
    """

    def __init__(self) -> None:
        # By the code objects' identity: equal ones may be of different files. Frames keep them.
        self._stacks: dict[tuple[object, ...], list[dict[str, Any]]] = {}
        self._python: dict[tuple[int, int], dict[str, Any] | None] = {}
        self._cpp: dict[str, dict[str, Any]] = {}

    def frames(self, cpp_names: Sequence[str], places: Sequence[Any]) -> list[dict[str, Any]]:
        """Tell a stack, innermost first, without the frames of vramlab.

        Args:
            cpp_names: of C++ functions, whose files are not known.
            places: the code object and the place in its bytecode of each Python frame, by turns.
        """
        codes, offsets = places[::2], places[1::2]
        key = (*cpp_names, *map(id, codes), *offsets)
        if key not in self._stacks:
            python = map(self._at, codes, offsets)
            self._stacks[key] = [*map(self._of_cpp, cpp_names), *filter(None, python)]
        return self._stacks[key]

    def _at(self, code: CodeType, offset: int) -> dict[str, Any] | None:
        key = (id(code), offset)
        if key not in self._python:
            self._python[key] = _line(code, offset)
        return self._python[key]

    def _of_cpp(self, name: str) -> dict[str, Any]:
        return self._cpp.setdefault(name, {"filename": "??", "line": 0, "name": name})


def _line(code: CodeType, offset: int) -> dict[str, Any] | None:
    if owner_of(code.co_filename) is _VRAMLAB:
        return None
    line = next((line for begin, end, line in code.co_lines() if begin <= offset < end), None)
    return {"filename": code.co_filename, "line": line, "name": code.co_qualname}


@cache
def _cpp_name(op: OpOverload) -> str:
    schema = schema_of(op)
    overload = f"_{schema.overload_name}" if schema.overload_name else ""
    name = schema.name.replace("::", "::_ops::", 1).replace("aten", "at", 1)
    return f"{name}{overload}::call"


def line_of(code: CodeType, instruction: int) -> str:
    """Name the line of an instruction: `train.py:42: loss.item()`."""
    lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
    return _named_line(code.co_filename, next(lines, None) or 0)


def user_line(start: FrameType | None = None) -> str:
    """Name the innermost line of the user's program: `train.py:42: loss.item()`.

    Library code is passed over; where there is nothing else, the innermost library line is named.

    Args:
        start: the innermost frame to look at; by default the caller's.
    """
    frame = user_frame(start)
    if frame is None:
        return "<unknown line>"
    return _named_line(frame.f_code.co_filename, frame.f_lineno)


def _named_line(filename: str, line: int) -> str:
    name = "notebook cell" if is_notebook_cell(filename) else Path(filename).name
    text = linecache.getline(filename, line).strip()
    return f"{name}:{line}: {text}".rstrip(": ")


def user_frame(start: FrameType | None = None) -> FrameType | None:
    """Find the innermost frame of the user's program; without one, that of a library.

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
        owner_of(frame.f_code.co_filename) is _VRAMLAB or frame.f_code.co_name in _OF_MODES
    ):
        frame = frame.f_back
    return frame


def assigns_to_part() -> bool:
    """Return whether C++ runs `tensor[index] = value` now: inside are frames of modes alone."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_code[frame.f_lasti] == _ASSIGNS:
            return True
        owner = owner_of(code.co_filename)
        if owner not in (_VRAMLAB, CodeOwner.PYTORCH) and code.co_name not in _OF_MODES:
            return False
        frame = frame.f_back
    return False
