"""Follow a trace of allocator events and find how large each block really was.

A trace entry of torch.cuda.memory._snapshot() holds the size that was asked for. The block that
served it is larger: the request is rounded up, and where the free block found was only a little
larger still, the allocator hands it over whole instead of splitting the remainder off. Which of the
two happened can be told from where blocks lie: this module keeps the map of free and used extents,
starting from a snapshot, and applies to it what the trace says.

Source of the rules: `vramlab.cuda_rules.sizes`, and try_merge_blocks in
c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vramlab.cuda_rules.sizes import round_request, should_split

_EXPANDABLE = -1
"""Segment number of all expandable memory: there, neighbours merge wherever they touch."""


@dataclass(frozen=True)
class SplitRules:
    """The allocator settings that decide how large a block becomes."""

    max_split_bytes: int | None = None
    """Blocks of this size and above are not split (max_split_size_mb); None: no limit."""
    expandable_segments: bool = False
    """Whether segments grow by mapping pages."""
    roundup_power2_divisions: tuple[int, ...] = ()
    """Divisions per power-of-two interval from 1 MiB on; empty: round to 512 bytes."""

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any]) -> SplitRules:
        """Read the settings that a torch snapshot carries; the defaults where it has none."""
        settings = snapshot.get("allocator_settings", {})
        max_split_bytes = settings.get("max_split_size", -1)  # no limit is written as -1
        divisions = settings.get("roundup_power2_divisions", {})  # {"1": 4, "2": 4, ...} by MiB
        return cls(
            max_split_bytes=None if max_split_bytes < 0 else max_split_bytes,
            expandable_segments=bool(settings.get("expandable_segments", False)),
            roundup_power2_divisions=tuple(divisions[mib] for mib in sorted(divisions, key=int)),
        )

    def rounded(self, requested_bytes: int) -> int:
        """Round a request up to its block, in bytes."""
        return round_request(requested_bytes, self.roundup_power2_divisions)

    def splits(self, block_bytes: int, rounded_bytes: int) -> bool:
        """Decide whether a free block larger than the rounded request is cut in two."""
        return should_split(
            block_bytes, rounded_bytes, self.max_split_bytes, expandable=self.expandable_segments
        )


@dataclass
class _Extent:
    """A stretch of device memory that the allocator treats as one block."""

    address: int
    size_bytes: int
    segment: int
    free: bool

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


class Replay:
    """The map of blocks, moved on event by event.

    Args:
        segments: the `segments` of a torch snapshot of one device, taken before the first event.
        rules: the settings in force.
    """

    def __init__(self, segments: list[dict[str, Any]], rules: SplitRules) -> None:
        self._rules = rules
        self._by_address: dict[int, _Extent] = {}
        self._by_end: dict[int, _Extent] = {}
        for segment in segments:
            number = _EXPANDABLE if segment.get("is_expandable") else segment["address"]
            address = segment["address"]
            for block in segment["blocks"]:
                free = block["state"] == "inactive"
                self._add(_Extent(address, block["size"], number, free))
                address += block["size"]

    def allocate(self, address: int, requested_bytes: int) -> int | None:
        """Take the front of the free block at `address`; give the size of the new block.

        None if no free block is known there that is large enough: then the rounded request is the
        best guess that anybody can make.
        """
        extent = self._by_address.get(address)
        rounded_bytes = self._rules.rounded(requested_bytes)
        if extent is None or not extent.free or extent.size_bytes < rounded_bytes:
            return None
        if self._rules.splits(extent.size_bytes, rounded_bytes):
            self._cut(extent, rounded_bytes)
        extent.free = False
        return extent.size_bytes

    def complete_free(self, address: int) -> None:
        """Return the block at `address` to the free ones and merge it with its free neighbours."""
        extent = self._by_address.get(address)
        if extent is not None:
            extent.free = True
            self._merge(extent)

    def add_memory(self, address: int, size_bytes: int, *, expandable: bool) -> None:
        """Take a new segment, or newly mapped pages, into the map."""
        extent = _Extent(address, size_bytes, _EXPANDABLE if expandable else address, free=True)
        self._add(extent)
        if expandable:
            self._merge(extent)

    def remove_memory(self, address: int, size_bytes: int) -> None:
        """Drop a segment, or unmapped pages, from the map."""
        extent = self._by_address.get(address) or self._extent_around(address)
        if extent is None or not extent.free or extent.end < address + size_bytes:
            return
        if extent.address < address:
            extent = self._cut(extent, address - extent.address)
        if size_bytes < extent.size_bytes:
            self._cut(extent, size_bytes)
        self._drop(extent)

    def _extent_around(self, address: int) -> _Extent | None:
        """Return the extent that contains an address; its middle pages may be unmapped."""
        for extent in self._by_address.values():
            if extent.address < address < extent.end:
                return extent
        return None

    def _cut(self, extent: _Extent, front_bytes: int) -> _Extent:
        """Shorten an extent and give the free remainder behind it."""
        self._drop(extent)
        remaining = _Extent(
            extent.address + front_bytes, extent.size_bytes - front_bytes, extent.segment, free=True
        )
        extent.size_bytes = front_bytes
        self._add(extent)
        self._add(remaining)
        return remaining

    def _merge(self, extent: _Extent) -> None:
        before = self._by_end.get(extent.address)
        if before is not None and before.free and before.segment == extent.segment:
            self._join(before, extent)
            extent = before
        behind = self._by_address.get(extent.end)
        if behind is not None and behind.free and behind.segment == extent.segment:
            self._join(extent, behind)

    def _join(self, front: _Extent, back: _Extent) -> None:
        self._drop(front)
        self._drop(back)
        front.size_bytes += back.size_bytes
        self._add(front)

    def _add(self, extent: _Extent) -> None:
        self._by_address[extent.address] = extent
        self._by_end[extent.end] = extent

    def _drop(self, extent: _Extent) -> None:
        del self._by_address[extent.address]
        del self._by_end[extent.end]
