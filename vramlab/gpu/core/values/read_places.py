"""Where a program has read values that do not exist: places in its code, noted as it runs."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import NamedTuple

from vramlab.source_files import CodeOwner, owner_of

_OF_PROGRAMS = (CodeOwner.PROGRAM, CodeOwner.PACKAGE, CodeOwner.NO_FILE)

AS_IF_ALL = "as if all were chosen"
"""In what was read: the largest size that it can have."""


class ReadPlace(NamedTuple):
    """A place in code at which something was read."""

    code: CodeType
    """Of the function."""
    instruction: int
    """The offset of the instruction in its bytecode."""
    what: str
    """Such as `item()`."""


class ReadPlaces:
    """Collects places, each once.

    Attributes:
        places: in the order of first reads.
    """

    def __init__(self) -> None:
        self.places: dict[ReadPlace, None] = {}

    def note(self, what: str) -> None:
        """Note what the innermost line outside of PyTorch and vramlab reads now."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and owner_of(frame.f_code.co_filename) not in _OF_PROGRAMS:
            frame = frame.f_back
        if frame is not None:
            self.places[ReadPlace(frame.f_code, frame.f_lasti, what)] = None
