"""Put an allocator into a recorded state: segments, and the blocks in use in them.

memory = DeviceMemory(GIB, addresses=RecordedAddresses([(layout.address, layout.size_bytes)]))
held = restore(CachingAllocator(memory), [layout])    # the blocks in use, by recorded address
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vramlab.allocator.addresses import CHUNK_BYTES, AddressSpace
from vramlab.allocator.blocks import Block, BlockPool
from vramlab.allocator.caching import CachingAllocator
from vramlab.allocator.device_memory import WINDOW_BYTES
from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId
from vramlab.cuda_rules.rounding import round_up
from vramlab.errors import OutOfDeviceMemory


@dataclass(frozen=True)
class SegmentLayout:
    """A segment, and the blocks in use in it. The rest of it is cached.

    Attributes:
        address: where it starts.
        size_bytes: from the driver; of an expandable segment, up to the end of its last page.
        stream: number of its stream.
        is_small: whether it belongs to the small pool.
        pool_id: of its private pool; the default pool's is (0, 0).
        used: (address, size, request) of each block in use, by address.
        mapped: (address, size) of each stretch of pages of an expandable segment, by address;
            empty: the segment is not expandable.
    """

    address: int
    size_bytes: int
    stream: int
    is_small: bool
    pool_id: PoolId = DEFAULT_POOL_ID
    used: Sequence[tuple[int, int, int]] = ()
    mapped: Sequence[tuple[int, int]] = ()


class RecordedAddresses(AddressSpace):
    """Addresses that cudaMalloc returned in a recording, for as long as the sizes are the same.

    Args:
        segments: (address, size) of each call, in order.
    """

    def __init__(self, segments: Iterable[tuple[int, int]]) -> None:
        self._queue = deque(segments)
        self._sizes: dict[int, int] = {}
        lowest = min((address for address, _ in self._queue), default=WINDOW_BYTES)
        highest = max((address + size_bytes for address, size_bytes in self._queue), default=0)
        # What the recording does not have lies below the rest, as on Linux.
        start = lowest - WINDOW_BYTES if lowest >= WINDOW_BYTES else highest
        super().__init__(round_up(start, CHUNK_BYTES), WINDOW_BYTES)

    def take(self, size_bytes: int) -> int | None:
        """Take the next recorded address, or another one if the size is not the recorded one."""
        if self._queue and self._queue[0][1] == size_bytes and self._queue[0][0] not in self._sizes:
            address, _ = self._queue.popleft()
            self._sizes[address] = size_bytes
            return address
        self._queue.clear()
        return super().take(size_bytes)

    def give_back(self, address: int) -> int:
        """Free what `take` or `reserve` returned, and return how many bytes it had."""
        size_bytes = self._sizes.pop(address, None)
        return super().give_back(address) if size_bytes is None else size_bytes


def restore(allocator: CachingAllocator, layouts: Sequence[SegmentLayout]) -> dict[int, Block]:
    """Put recorded segments and blocks into a new allocator.

    If the memory is smaller than the segments, the cache is emptied, as PyTorch would have done.

    Returns:
        The blocks in use, by recorded address.

    Raises:
        OutOfDeviceMemory: without the cache it is still too small.
    """
    memory = allocator.memory
    total_bytes = memory.total_bytes
    memory.total_bytes += sum(layout.size_bytes for layout in layouts)
    held: dict[int, Block] = {}
    for layout in layouts:
        held |= _restored(allocator, layout)
    memory.total_bytes = total_bytes
    if memory.free_bytes < 0:
        allocator.empty_cache()
    if memory.free_bytes < 0:
        raise OutOfDeviceMemory(
            "the blocks in use need more memory than there is",
            requested_bytes=-memory.free_bytes,
            segment_bytes=-memory.free_bytes,
        )
    allocator.reset_peak_stats()
    return held


def _restored(allocator: CachingAllocator, layout: SegmentLayout) -> Iterator[tuple[int, Block]]:
    """Add a segment with its blocks; give those in use with their recorded addresses."""
    pool = _pool(allocator, layout)
    if layout.mapped:
        stretches = allocator.reserve.add_pages(
            pool,
            layout.stream,
            [(address - layout.address, size_bytes) for address, size_bytes in layout.mapped],
            allocator.settings.large_segment_bytes,
        )
    else:
        first = allocator.reserve.add_segment(pool, layout.stream, layout.size_bytes, None)
        stretches = [] if first is None else [first]
    if not stretches:
        raise OutOfDeviceMemory(
            "a recorded segment has no room",
            requested_bytes=layout.size_bytes,
            segment_bytes=layout.size_bytes,
        )
    offset = stretches[0].segment.address - layout.address
    used = deque(layout.used)
    for stretch in stretches:
        end = stretch.address + stretch.size_bytes
        rest: Block | None = stretch
        while rest is not None and used and used[0][0] + offset < end:
            address, size_bytes, request_bytes = used.popleft()
            if address + offset > rest.address:
                cached, rest = rest, rest.cut(address + offset)
                _cache(allocator, cached)
            block, rest = rest, None
            if block.size_bytes > size_bytes:
                rest = block.cut(block.address + size_bytes)
            _take(allocator, block, request_bytes)
            yield address, block
        if rest is not None:
            _cache(allocator, rest)


def _pool(allocator: CachingAllocator, layout: SegmentLayout) -> BlockPool:
    if layout.pool_id == DEFAULT_POOL_ID:
        return allocator.small_pool if layout.is_small else allocator.large_pool
    if layout.pool_id not in allocator.private_pools.pools:
        allocator.create_or_retain_pool(layout.pool_id)
    owner = allocator.private_pools.find(layout.pool_id)
    return owner.small if layout.is_small else owner.large


def _take(allocator: CachingAllocator, block: Block, request_bytes: int) -> None:
    block.allocated = True
    block.requested_bytes = request_bytes
    for tally in (allocator.statistics.all, block.segment.pool.tally):
        tally.block_taken(block.size_bytes, request_bytes)


def _cache(allocator: CachingAllocator, block: Block) -> None:
    pool = block.segment.pool
    pool.add(block)
    if block.is_split and not block.segment.expandable:
        for tally in (allocator.statistics.all, pool.tally):
            tally.inactive_split_changed(1, block.size_bytes)
