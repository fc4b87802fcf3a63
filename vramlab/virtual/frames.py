"""Which lines of the program led here: for the memory history, and for naming the line at fault."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_OWN_FOLDER = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")} - {None})


class Frames:
    """The Python frames of one allocation, innermost first; told as torch's memory history tells.

    Only code objects and line numbers are kept while the program runs.
    """

    __slots__ = ("_lines",)

    def __init__(self, frame: FrameType | None) -> None:
        lines: list[tuple[CodeType, int]] = []
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith(_OWN_FOLDER):
                lines.append((code, frame.f_lineno))
            frame = frame.f_back
        self._lines = lines

    @classmethod
    def of_caller(cls) -> Frames:
        """The frames that led here."""
        return cls(sys._getframe(1))

    def as_dicts(self) -> list[dict[str, Any]]:
        """The frames in the form of `torch.cuda.memory._snapshot()`."""
        return [
            {"filename": code.co_filename, "line": line, "name": code.co_qualname}
            for code, line in self._lines
        ]


def called_from(folder: str) -> bool:
    """Whether code of `folder` is among the callers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(folder):
            return True
        frame = frame.f_back
    return False


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
