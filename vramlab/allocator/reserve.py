"""Reserved memory: whole segments from the driver, and pages of expandable ones.

Everything here changes `reserved_bytes`; nothing here decides when. Source: `alloc_block`,
`release_block`, `map_block`, `unmap_block` and `struct ExpandableSegment` in
c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vramlab.allocator.blocks import Block, BlockPool, Segment
from vramlab.allocator.device_memory import DeviceMemory
from vramlab.allocator.history import History
from vramlab.allocator.statistics import PrivateReserve, Statistics
from vramlab.cuda_rules.rounding import round_up
from vramlab.cuda_rules.sizes import SMALL_SEGMENT_BYTES


class ExpandableSegment(Segment):
    """A range of reserved addresses, mapped page by page from its start.

    Attributes:
        page_bytes: what is mapped and unmapped at once: 2 MiB in the small pool,
            `large_segment_size` in the large one.
    """

    __slots__ = ("page_bytes",)

    def __init__(
        self, pool: BlockPool, stream: int, address: int, size_bytes: int, page_bytes: int
    ) -> None:
        super().__init__(pool, stream, address, size_bytes)
        self.expandable = True
        self.page_bytes = page_bytes
        self.first.mapped = False

    def whole_pages(self, block: Block) -> tuple[int, int]:
        """Return the first address of the pages inside a block, and the one after the last."""
        start = round_up(block.address - self.address, self.page_bytes)
        stop = (block.address + block.size_bytes - self.address) // self.page_bytes
        return self.address + start, self.address + stop * self.page_bytes


class Reserve:
    """The segments of one allocator.

    Attributes:
        segments: all of them, by address.
        reserved_bytes: the memory behind them.
    """

    def __init__(self, memory: DeviceMemory, statistics: Statistics, history: History) -> None:
        self.memory = memory
        self.segments: dict[int, Segment] = {}
        self.reserved_bytes = 0
        self._statistics = statistics
        self._history = history

    def _reserved(self, pool: BlockPool, size_bytes: int) -> None:
        """Book memory that came from the driver, or (negative) went back to it."""
        self.reserved_bytes += size_bytes
        for tally in (self._statistics.all, pool.tally):
            tally.reserved_bytes.change(size_bytes)
        if size_bytes > 0:
            self._statistics.num_device_alloc += 1
        else:
            self._statistics.num_device_free += 1
        if pool.owner is not None:
            private = self._statistics.private_pools.setdefault(pool.id, PrivateReserve())
            private.change(size_bytes, pool.is_small)

    def add_segment(
        self, pool: BlockPool, stream: int, size_bytes: int, context: Any
    ) -> Block | None:
        """Add a segment by cudaMalloc: its one block, or None when the driver has not enough."""
        address = self.memory.malloc(size_bytes)
        if address is None:
            return None
        segment = self.segments[address] = Segment(pool, stream, address, size_bytes)
        segment.first.segment_context = context
        if pool.owner is not None:
            pool.owner.device_allocs += 1
        self._reserved(pool, size_bytes)
        self._statistics.all.segment.increase(1)
        pool.tally.segment.increase(1)
        if self._history.active:
            self._history.record("segment_alloc", address, size_bytes, stream, context, pool.id)
        return segment.first

    def release_segment(self, block: Block, context: Any) -> None:
        """Free the segment that a cached block fills, by cudaFree."""
        segment = block.segment
        pool = segment.pool
        pool.remove(block)
        self.memory.free(block.address)
        del self.segments[block.address]
        if pool.owner is not None:
            pool.owner.device_allocs -= 1
        self._reserved(pool, -block.size_bytes)
        self._statistics.all.segment.decrease(1)
        pool.tally.segment.decrease(1)
        if self._history.active:
            self._history.record(
                "segment_free",
                block.address,
                block.size_bytes,
                segment.stream,
                context or block.segment_context,
                pool.id,
            )

    def expand(
        self,
        pool: BlockPool,
        stream: int,
        size_bytes: int,
        segment_bytes: int,
        large_page_bytes: int,
        context: Any,
    ) -> Block | None:
        """Map pages until there is a free block of `size_bytes`; returns it, out of the cache.

        New segments have addresses for `segment_bytes`. None when these or the driver's pages are
        not enough; what could be mapped stays, cached.
        """
        block = self._lowest_room(pool, stream, size_bytes)
        if block is None:
            page_bytes = SMALL_SEGMENT_BYTES if pool.is_small else large_page_bytes
            segment_bytes = round_up(segment_bytes, page_bytes)
            if size_bytes <= segment_bytes:
                block = self._add_expandable_segment(pool, stream, segment_bytes, page_bytes)
        if block is None:
            return None
        if not block.mapped and not self._map(block, min(block.size_bytes, size_bytes), context):
            return None
        while block.size_bytes < size_bytes:
            unmapped = block.next
            assert unmapped is not None
            missing_bytes = size_bytes - block.size_bytes
            if not self._map(unmapped, min(unmapped.size_bytes, missing_bytes), context):
                return None
            block = unmapped  # it absorbed the free block before it
        pool.remove(block)
        if pool.owner is not None:
            pool.owner.device_allocs += 1
        return block

    def add_pages(
        self,
        pool: BlockPool,
        stream: int,
        stretches: Iterable[tuple[int, int]],
        large_page_bytes: int,
    ) -> list[Block]:
        """Make an expandable segment and map stretches of it: (offset, bytes), by offset.

        Returns its blocks, out of the cache; none if the driver has not enough.
        """
        page_bytes = SMALL_SEGMENT_BYTES if pool.is_small else large_page_bytes
        # As without the setting expandable_segments_reserve: an eighth more than the GPU has.
        segment_bytes = round_up(self.memory.total_bytes * 9 // 8, page_bytes)
        block = self._add_expandable_segment(pool, stream, segment_bytes, page_bytes)
        found: list[Block] = []
        for offset, size_bytes in stretches:
            if block is None:
                return []
            start = block.segment.address + offset
            if start > block.address:
                pool.remove_unmapped(block)
                hole, block = block, block.cut(start)
                pool.add_unmapped(hole)
                pool.add_unmapped(block)
            if not self._map(block, size_bytes, None):
                return []
            pool.remove(block)
            if pool.owner is not None:
                pool.owner.device_allocs += 1
            found.append(block)
            block = block.next
        return found

    def _lowest_room(self, pool: BlockPool, stream: int, size_bytes: int) -> Block | None:
        """Return the first of the lowest run of free and unmapped blocks with enough bytes."""
        for block in pool.unmapped_blocks(stream):
            first = block.previous if block.previous and block.previous.free else block
            room_bytes = 0
            follower: Block | None = first
            while room_bytes < size_bytes and follower is not None and follower.free:
                room_bytes += follower.size_bytes
                follower = follower.next
            if room_bytes >= size_bytes:
                return first
        return None

    def _add_expandable_segment(
        self, pool: BlockPool, stream: int, size_bytes: int, page_bytes: int
    ) -> Block | None:
        address = self.memory.reserve_addresses(size_bytes)
        if address is None:
            return None
        segment = ExpandableSegment(pool, stream, address, size_bytes, page_bytes)
        self.segments[address] = segment
        pool.add_unmapped(segment.first)
        return segment.first

    def _map(self, block: Block, size_bytes: int, context: Any) -> bool:
        """Put memory behind the first `size_bytes` of an unmapped block, in whole pages."""
        segment = block.segment
        assert isinstance(segment, ExpandableSegment)
        pool = segment.pool
        address = block.address
        mapped_bytes = round_up(size_bytes, segment.page_bytes)
        if not self.memory.map_pages(mapped_bytes):
            return False
        pool.remove_unmapped(block)
        if mapped_bytes < block.size_bytes:
            pool.add_unmapped(block.cut(address + mapped_bytes))
        block.mapped = True
        pool.absorb_neighbours(block)
        pool.add(block)
        self._reserved(pool, mapped_bytes)
        if self._history.active:
            self._history.record(
                "segment_map", address, mapped_bytes, segment.stream, context, pool.id
            )
        if block.previous is None and block.segment_context is None:
            block.segment_context = context
        return True

    def unmap(self, block: Block, context: Any) -> None:
        """Unmap the pages that a cached block of an expandable segment covers entirely.

        When that leaves nothing mapped, the segment's addresses go back, too.
        """
        segment = block.segment
        assert isinstance(segment, ExpandableSegment)
        pool = segment.pool
        start, stop = segment.whole_pages(block)
        if start >= stop:
            return
        pool.remove(block)
        if start > block.address:
            before = Block(block.address, start - block.address, segment)
            before.put_between(block.previous, block)
            pool.add(before)
        end = block.address + block.size_bytes
        if stop < end:
            after = Block(stop, end - stop, segment)
            after.put_between(block, block.next)
            pool.add(after)
        block.address = start
        block.size_bytes = stop - start
        block.mapped = False
        pool.absorb_neighbours(block)
        pool.add_unmapped(block)
        self.memory.unmap_pages(stop - start)
        if pool.owner is not None:
            pool.owner.device_allocs -= 1
        self._reserved(pool, start - stop)
        if self._history.active:
            self._history.record(
                "segment_unmap",
                start,
                stop - start,
                segment.stream,
                context or block.segment_context,
                pool.id,
            )
        if not block.is_split:
            pool.remove_unmapped(block)
            del self.segments[segment.address]
            self.memory.release_addresses(segment.address)
