"""Which lines of the program hold the most memory, from the tracebacks in a timeline."""

from __future__ import annotations

import linecache
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from vramlab.measure.timeline import BlockLife, Frame, TimelineMoment
from vramlab.source_files import CodeOwner, is_notebook_cell, owner_of
from vramlab.table import Table
from vramlab.units import format_mib

_SOURCE_WIDTH = 60


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code and the live blocks that were allocated in it or below it."""

    frame: Frame | None
    """The line; None for blocks without a Python traceback (such as on autograd's own thread)."""
    size_bytes: int
    """Allocated bytes of its live blocks."""
    block_count: int
    """How many they are."""

    @property
    def source(self) -> str:
        """Text of the line; empty if it cannot be found."""
        return linecache.getline(self.frame.filename, self.frame.line).strip() if self.frame else ""

    def __str__(self) -> str:
        if self.frame is None:
            return "(no Python traceback)"
        if is_notebook_cell(self.frame.filename):
            return f"notebook cell, line {self.frame.line} {self.frame.function}"
        return f"{Path(self.frame.filename).name}:{self.frame.line} {self.frame.function}"


def is_library_frame(frame: Frame) -> bool:
    """Return whether a frame is in Python's library, an installed package or vramlab's machinery.

    Code without a file, such as a dataclass's __init__, is taken for a library's.
    """
    return owner_of(frame.filename) is not CodeOwner.PROGRAM


def user_frame(block: BlockLife) -> Frame | None:
    """Find the innermost frame of a block's traceback that is the user's own code.

    If there is none, the innermost without a file, such as that of `python -c`; if there is none
    either, the innermost of all; None if there is no traceback.
    """
    users = [frame for frame in block.frames if not is_library_frame(frame)]
    without_file = [f for f in block.frames if owner_of(f.filename) is CodeOwner.NO_FILE]
    return next(iter([*users, *without_file, *block.frames]), None)


def code_lines(moment: TimelineMoment) -> tuple[CodeLine, ...]:
    """List the lines that hold memory at a moment, most bytes first; their sum is all there is.

    Args:
        moment: such as `timeline.peak()`.
    """
    blocks_of: dict[Frame | None, list[BlockLife]] = defaultdict(list)
    for block in moment.blocks:
        blocks_of[user_frame(block)].append(block)
    lines = [
        CodeLine(frame, sum(block.size_bytes for block in blocks), len(blocks))
        for frame, blocks in blocks_of.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.size_bytes))


def code_lines_table(moment: TimelineMoment, most: int = 10) -> Table:
    """Show the lines that hold the most memory at a moment, at most `most` rows."""
    lines = code_lines(moment)
    rows = [
        (_line_cell(line), format_mib(line.size_bytes), str(line.block_count))
        for line in lines[:most]
    ]
    rest = lines[most:]
    if rest:
        rest_bytes = sum(line.size_bytes for line in rest)
        rest_count = sum(line.block_count for line in rest)
        rows.append((f"{len(rest)} more lines", format_mib(rest_bytes), str(rest_count)))
    return Table(
        caption=f"Lines of code that hold memory after allocator event {moment.position}",
        header=("line", "size", "blocks"),
        rows=tuple(rows),
    )


def _line_cell(line: CodeLine) -> str:
    """Show where the line is, and its text below, cut where it would make the table too wide."""
    source = line.source
    text = source if len(source) <= _SOURCE_WIDTH else f"{source[: _SOURCE_WIDTH - 1]}…"
    return f"{line}\n    {text}".rstrip()
