"""Parse and run short programs of allocations and frees that are typed into a widget.

    a 10 MiB        allocate, and call the block a
    free a          free it
    empty_cache     torch.cuda.empty_cache()

One step a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from vramlab.allocator import Block, CachingAllocator
from vramlab.errors import VramlabError
from vramlab.measure.figures import UNIT_BYTES

_ALLOCATE = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*[ =]\s*(?P<number>\d+(\.\d+)?)\s*(?P<unit>\w+)")
_FREE = re.compile(r"free\s+(?P<name>[A-Za-z_]\w*)")


class ProgramError(VramlabError, ValueError):
    """A line of an allocator program cannot be understood."""


@dataclass(frozen=True)
class ProgramStep:
    """One line of a program."""

    text: str
    """As it was written."""
    name: str
    """The block it is about; empty for empty_cache."""
    size_bytes: int
    """What to allocate; 0 to free."""


def parse(program: str) -> tuple[ProgramStep, ...]:
    """Read a program, one step a line; empty lines are passed over.

    Raises:
        ProgramError: a line that is none of the three steps, or frees what is not allocated.
    """
    steps: list[ProgramStep] = []
    live: set[str] = set()
    for number, line in enumerate(program.splitlines(), start=1):
        text = line.strip()
        if not text:
            continue
        step = _step(number, text)
        if step.size_bytes:
            if step.name in live:
                raise ProgramError(
                    f"line {number}: {step.name!r} is allocated already; free it first, or take "
                    "another name"
                )
            live.add(step.name)
        elif step.name:
            if step.name not in live:
                raise ProgramError(f"line {number}: there is no {step.name!r} to free")
            live.remove(step.name)
        steps.append(step)
    return tuple(steps)


def run(steps: tuple[ProgramStep, ...], allocator: CachingAllocator) -> dict[str, Block]:
    """Run steps; return the blocks that live afterwards, by name.

    Raises:
        OutOfDeviceMemory: as the allocator says.
    """
    live: dict[str, Block] = {}
    for step in steps:
        if step.size_bytes:
            live[step.name] = allocator.malloc(step.size_bytes)
        elif step.name:
            allocator.free(live.pop(step.name))
        else:
            allocator.empty_cache()
    return live


def _step(number: int, text: str) -> ProgramStep:
    if text == "empty_cache":
        return ProgramStep(text, "", 0)
    if match := _FREE.fullmatch(text):
        return ProgramStep(text, match["name"], 0)
    match = _ALLOCATE.fullmatch(text)
    if match is None or match["unit"] not in UNIT_BYTES:
        raise ProgramError(
            f"line {number}: {text!r} is not a step. Write 'a 10 MiB' to allocate (units: "
            f"{', '.join(UNIT_BYTES)}), 'free a', or 'empty_cache'"
        )
    size_bytes = int(Decimal(match["number"]) * UNIT_BYTES[match["unit"]])
    if size_bytes == 0:
        raise ProgramError(f"line {number}: {text!r} allocates nothing; give at least 1 B")
    return ProgramStep(text, match["name"], size_bytes)
