"""A small language that drives the caching allocator, one command a line.

a = 6 MiB               allocate, and call the block `a`
b = 6 MiB stream 1      the same, on another stream
free a b                free blocks
empty_cache             torch.cuda.empty_cache()
# text                  a comment; empty lines are fine, too
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vramlab.allocator import (
    AllocatorEvent,
    AllocatorSettings,
    Block,
    CachingAllocator,
    DeviceMemory,
    segments,
)
from vramlab.errors import OutOfDeviceMemory, VramlabError
from vramlab.units import parse_bytes, short_size

MOST_LINES = 2_000

_ALLOCATE = re.compile(
    r"(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<size>.+?)(?:\s+stream\s+(?P<stream>\d+))?"
)
_NAMES = re.compile(r"free\s+(?P<names>[A-Za-z_]\w*(?:[\s,]+[A-Za-z_]\w*)*)")


class BadCommand(VramlabError):
    """A line of the program cannot be run; the message names the line and says what to write."""


@dataclass(frozen=True)
class Step:
    """What one line did.

    Attributes:
        line: its number, from 1.
        command: the line.
        effect: what the allocator did, in words.
        allocated_bytes: after the line.
        reserved_bytes: after the line.
        segments: after the line, as a memory snapshot lists them; each block has a `name`, which is
            empty for free blocks.
        failed: whether memory ran out.
    """

    line: int
    command: str
    effect: str
    allocated_bytes: int
    reserved_bytes: int
    segments: list[dict[str, Any]]
    failed: bool = False


def play(program: str, settings: str, total: str) -> list[Step]:
    """Run a program on a GPU on which PyTorch may use all memory, until it ends or runs out.

    Args:
        program: commands, one a line.
        settings: as PYTORCH_CUDA_ALLOC_CONF takes them.
        total: the GPU's memory, such as `1 GiB`.

    Raises:
        BadCommand: a line, or the size of the memory, is not understood.
        VramlabError: settings that PyTorch does not have.
    """
    lines = program.splitlines()
    if len(lines) > MOST_LINES:
        raise BadCommand(f"{len(lines):,} lines are too many: write at most {MOST_LINES:,}")
    try:
        memory = DeviceMemory(parse_bytes(total))
    except ValueError as error:
        raise BadCommand(f"GPU memory: {error}") from None
    return list(_Player(memory, AllocatorSettings.parse(settings)).steps(lines))


class _Player:
    def __init__(self, memory: DeviceMemory, settings: AllocatorSettings) -> None:
        self._allocator = CachingAllocator(memory, settings)
        self._events: list[AllocatorEvent] = []
        self._allocator.add_trace_tracker(self._events.append)
        self._blocks: dict[str, Block] = {}

    def steps(self, lines: list[str]) -> Iterator[Step]:
        for number, line in enumerate(lines, 1):
            command = line.partition("#")[0].strip()
            if not command:
                continue
            self._events.clear()
            try:
                failed, effect = self._run(command)
            except BadCommand as error:
                raise BadCommand(f"line {number}: {error}") from None
            yield Step(
                number,
                command,
                effect,
                self._allocator.allocated_bytes,
                self._allocator.reserved_bytes,
                self._segments(),
                failed,
            )
            if failed:
                return

    def _run(self, command: str) -> tuple[bool, str]:
        """Run one command; return whether memory ran out, and what happened."""
        if command == "empty_cache":
            self._allocator.empty_cache()
            return False, self._driver_calls() or "nothing was cached"
        if found := _NAMES.fullmatch(command):
            for name in re.split(r"[\s,]+", found["names"]):
                self._allocator.free(self._blocks.pop(self._known(name)))
            return False, self._driver_calls() or "cached for later requests"
        if found := _ALLOCATE.fullmatch(command):
            return self._allocate(found["name"], found["size"], int(found["stream"] or 0))
        raise BadCommand(
            f"{command!r} is not understood: write 'a = 6 MiB', 'free a' or 'empty_cache'"
        )

    def _allocate(self, name: str, size: str, stream: int) -> tuple[bool, str]:
        if name in self._blocks:
            raise BadCommand(f"{name} is allocated already: free it first, or use another name")
        try:
            size_bytes = parse_bytes(size)
        except ValueError as error:
            raise BadCommand(str(error)) from None
        if size_bytes < 1:
            raise BadCommand("a block has at least 1 byte: PyTorch allocates nothing for 0")
        try:
            block = self._allocator.malloc(size_bytes, stream)
        except OutOfDeviceMemory as error:
            return True, str(error)
        self._blocks[name] = block
        rounded = f"block of {short_size(block.size_bytes)}"
        return False, f"{rounded}; {self._driver_calls() or 'from the cache'}"

    def _known(self, name: str) -> str:
        if name not in self._blocks:
            there = ", ".join(self._blocks) or "nothing"
            raise BadCommand(f"there is no block {name!r} to free; allocated now: {there}")
        return name

    def _driver_calls(self) -> str:
        """Name what the driver was asked for, and what it was given back."""
        told = []
        for actions, words in (
            (("segment_free", "segment_unmap"), "returned to the driver"),
            (("segment_alloc", "segment_map"), "new from the driver"),
        ):
            sizes = [event.size_bytes for event in self._events if event.action in actions]
            if sizes:
                told.append(f"{' + '.join(map(short_size, sizes))} {words}")
        return ", then ".join(told)

    def _segments(self) -> list[dict[str, Any]]:
        names = {block.address: name for name, block in self._blocks.items()}
        shown = segments(self._allocator)
        for segment in shown:
            for block in segment["blocks"]:
                is_free = block["state"] == "inactive"
                block["name"] = "" if is_free else names.get(block["address"], "")
        return shown
