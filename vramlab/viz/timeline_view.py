"""What an interactive timeline shows, as data. Knows nothing of torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from vramlab.units import short_size
from vramlab.viz.colors import CATEGORY_COLORS
from vramlab.words import say, say_name

MOST_BLOCKS = 10_000
"""Blocks that are shown one by one: the largest. Of the others, each category has the sum."""

Change = tuple[int, int]
"""(position, bytes more from there on)."""


@dataclass(frozen=True, slots=True)
class ViewBlock:
    """One block, from its allocation to its release."""

    category: str
    """One of those that the view has colours for."""
    name: str
    """Of the tensor that was seen there; may be empty."""
    line: str
    """The line that allocated it, as a reader finds it; may be empty."""
    size_bytes: int
    start: int
    """First position at which it lives; 0 if it was there before."""
    end: int
    """First position at which it lives no more."""


@dataclass(frozen=True)
class TimelineView:
    """The memory of one GPU over allocator events; position p is the moment before event p."""

    title: str
    event_count: int
    """Positions run from 0 to this number."""
    blocks: tuple[ViewBlock, ...]
    """In the order of birth."""
    reserved_bytes: tuple[tuple[int, int], ...] = ()
    """(position, reserved bytes from there on), in order; empty if unknown."""
    stages: tuple[tuple[str, int, int], ...] = ()
    """(name, first position, last position)."""
    out_of_memory: tuple[tuple[int, int], ...] = ()
    """(position, bytes that were asked for in vain)."""
    notes: tuple[tuple[int, str], ...] = ()
    """(position, what is to be seen there)."""
    colors: Mapping[str, str] = field(
        default_factory=lambda: {str(name): color for name, color in CATEGORY_COLORS.items()}
    )
    """Of the categories, in the order in which they are stacked."""

    def describe(self) -> str:
        """Say in words what is drawn."""
        allocated_bytes = self.allocated_bytes()
        peak_bytes = max(allocated_bytes)
        peak = allocated_bytes.index(peak_bytes)
        sums: dict[str, int] = defaultdict(int)
        for block in self.blocks:
            if block.start <= peak < block.end:
                sums[block.category] += block.size_bytes
        notes = "".join(f" At event {position}: {words}." for position, words in self.notes)
        parts = [f"{name} {short_size(sums[name])}" for name in self.colors if name in sums]
        return (
            f"{self.title}, over {self.event_count} allocator events and {len(self.blocks)} blocks:"
            f" allocated bytes peak at {short_size(peak_bytes)} at event {peak}"
            f" ({', '.join(parts) or 'nothing'}), and end at {short_size(allocated_bytes[-1])}."
            f"{notes}"
        )

    def allocated_bytes(self) -> list[int]:
        """Add up the blocks that live at every position."""
        changes = [0] * (self.event_count + 2)
        for block in self.blocks:
            changes[block.start] += block.size_bytes
            changes[block.end] -= block.size_bytes
        levels, level = [], 0
        for change in changes[:-1]:
            level += change
            levels.append(level)
        return levels

    def to_dict(self) -> dict[str, Any]:
        """Write it as plain lists and numbers for the script of the page."""
        names, lines = _Texts(), _Texts()
        categories = list(self.colors)
        by_size = sorted(range(len(self.blocks)), key=lambda n: -self.blocks[n].size_bytes)
        listed = set(by_size[:MOST_BLOCKS])
        rest = [block for number, block in enumerate(self.blocks) if number not in listed]
        blocks = [
            (
                categories.index(block.category),
                names.number(block.name),
                lines.number(block.line),
                block.size_bytes,
                block.start,
                block.end,
            )
            for number, block in enumerate(self.blocks)
            if number in listed
        ]
        return {
            "title": say(self.title),
            "alt": self.describe(),
            "events": self.event_count,
            "categories": [
                {"name": say_name(category), "color": color}
                for category, color in self.colors.items()
            ],
            "names": names.texts,
            "lines": lines.texts,
            "blocks": blocks,
            "rest": [
                _changes([block for block in rest if block.category == category])
                for category in categories
            ],
            "reserved": _steps(self.reserved_bytes),
            "stages": self.stages,
            "out_of_memory": self.out_of_memory,
            "notes": [(position, say_name(words)) for position, words in self.notes],
        }


class _Texts:
    """Texts, each of which is written once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)


def _changes(blocks: Sequence[ViewBlock]) -> list[Change]:
    """By how much the sum of some blocks changes, and where."""
    sums: dict[int, int] = defaultdict(int)
    for block in blocks:
        sums[block.start] += block.size_bytes
        sums[block.end] -= block.size_bytes
    return sorted((position, more) for position, more in sums.items() if more)


def _steps(levels: Sequence[tuple[int, int]]) -> list[Change]:
    """Turn levels into changes."""
    return [
        (position, level - before) for (_, before), (position, level) in pairwise([(0, 0), *levels])
    ]
