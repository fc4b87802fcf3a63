"""The conservation check: whether an allocator's books agree with its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from vramlab.allocator.blocks import Block, BlockPool, Segment
from vramlab.allocator.caching import CachingAllocator
from vramlab.allocator.statistics import Tally
from vramlab.errors import AllocatorInvariantError


def check(allocator: CachingAllocator) -> None:
    """Compare every number of an allocator with its blocks.

    Checked: the blocks of a segment tile it; segments do not overlap; no two free neighbours are
    left unmerged; the cache holds exactly the free blocks, sorted; free plus active bytes are what
    is reserved, and what the driver gave; every counter is what counting the blocks gives; no peak
    is below what stands now.

    Raises: AllocatorInvariantError with the numbers that disagree.
    """
    end = 0
    for address in sorted(allocator.reserve.segments):
        segment = allocator.reserve.segments[address]
        if segment.address != address or address < end:
            raise AllocatorInvariantError(
                f"segment at {segment.address:#x} is filed under {address:#x}, where the one "
                f"before ends at {end:#x}"
            )
        end = address + segment.size_bytes
        _check_tiling(segment)
    pools = allocator.block_pools()
    for pool in pools:
        _check_cache(allocator, pool)
    for tally, name in (
        (allocator.statistics.all, "all"),
        (allocator.statistics.small_pool, "small_pool"),
        (allocator.statistics.large_pool, "large_pool"),
    ):
        counted = [pool for pool in pools if name in ("all", _half(pool))]
        _check_tally(tally, [b for pool in counted for b in _blocks(allocator, pool)], name)
    _check_private_pools(allocator)
    _check_reserve(allocator)


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise AllocatorInvariantError(f"{what}: {found}, but the blocks say {expected}")


def _half(pool: BlockPool) -> str:
    return "small_pool" if pool.is_small else "large_pool"


def _pool_name(pool: BlockPool) -> str:
    return _half(pool) if pool.owner is None else f"{_half(pool)} of private pool {pool.id}"


def _blocks(allocator: CachingAllocator, pool: BlockPool) -> Iterator[Block]:
    for segment in allocator.reserve.segments.values():
        if segment.pool is pool:
            yield from segment.blocks()


def _check_tiling(segment: Segment) -> None:
    position = segment.address
    previous: Block | None = None
    for block in segment.blocks():
        if block.address != position or block.size_bytes <= 0 or block.previous is not previous:
            raise AllocatorInvariantError(
                f"segment at {segment.address:#x}: {block!r} does not follow on {position:#x}"
            )
        if previous and previous.free and block.free and previous.mapped == block.mapped:
            raise AllocatorInvariantError(f"{previous!r} is not merged with {block!r}")
        position += block.size_bytes
        previous = block
    _equal(
        f"segment at {segment.address:#x}: end of its blocks",
        position,
        segment.address + segment.size_bytes,
    )


def _check_cache(allocator: CachingAllocator, pool: BlockPool) -> None:
    name = _pool_name(pool)
    cached = pool.free_blocks()
    order = [(block.stream, block.size_bytes, block.rank, block.address) for block in cached]
    _equal(f"{name}: order of the cache", order, sorted(order))
    unmapped = [
        block
        for stream in {segment.stream for segment in allocator.reserve.segments.values()}
        for block in pool.unmapped_blocks(stream)
    ]
    filed = sorted(block.address for block in [*cached, *unmapped])
    free = sorted(block.address for block in _blocks(allocator, pool) if block.free)
    _equal(f"{name}: addresses in the cache", filed, free)


def _check_tally(tally: Tally, blocks: list[Block], name: str) -> None:
    allocated = [block for block in blocks if block.allocated]
    active = [block for block in blocks if not block.free]
    split = [
        block for block in blocks if block.free and block.is_split and not block.segment.expandable
    ]
    plain = {block.segment.address for block in blocks if not block.segment.expandable}
    expected = {
        "allocation": len(allocated),
        "segment": len(plain),
        "active": len(active),
        "inactive_split": len(split),
        "allocated_bytes": sum(block.size_bytes for block in allocated),
        "reserved_bytes": sum(block.size_bytes for block in blocks if block.mapped),
        "active_bytes": sum(block.size_bytes for block in active),
        "inactive_split_bytes": sum(block.size_bytes for block in split),
        "requested_bytes": sum(block.requested_bytes for block in active),
    }
    for key, counter in tally.counters().items():
        _equal(f"{key}.{name}.current", counter.current, expected[key])
        if counter.peak < counter.current or min(counter.allocated, counter.freed) < 0:
            raise AllocatorInvariantError(f"{key}.{name} cannot be: {counter.as_dict()}")
    free_bytes = sum(block.size_bytes for block in blocks if block.free and block.mapped)
    _equal(
        f"{name}: free {free_bytes} + active {tally.active_bytes.current} bytes",
        free_bytes + tally.active_bytes.current,
        tally.reserved_bytes.current,
    )


def _check_private_pools(allocator: CachingAllocator) -> None:
    pools = allocator.private_pools.pools
    for pool_id, reserve in allocator.statistics.private_pools.items():
        pool = pools.get(pool_id)
        halves = () if pool is None else (pool.small, pool.large)
        sizes = {"all": 0, "small_pool": 0, "large_pool": 0}
        for half in halves:
            for block in _blocks(allocator, half):
                size_bytes = block.size_bytes if block.mapped else 0
                sizes["all"] += size_bytes
                sizes[_half(half)] += size_bytes
        found = {name: counter.current for name, counter in reserve.counters().items()}
        _equal(f"reserved bytes of private pool {pool_id}", found, sizes)
    unused = {pool_id for pool_id, pool in pools.items() if pool.use_count == 0}
    _equal("private pools without users", set(allocator.private_pools.freeable), unused)


def _check_reserve(allocator: CachingAllocator) -> None:
    reserve = allocator.reserve
    _equal(
        "reserved_bytes", reserve.reserved_bytes, allocator.statistics.all.reserved_bytes.current
    )
    awaiting = sorted(block.address for block in allocator.awaiting_free)
    unfinished = sorted(
        block.address
        for segment in reserve.segments.values()
        for block in segment.blocks()
        if not block.free and not block.allocated
    )
    _equal("addresses of blocks that wait for a stream", awaiting, unfinished)
    memory = allocator.memory
    if memory.free_bytes < 0 or reserve.reserved_bytes > memory.used_by_process_bytes:
        raise AllocatorInvariantError(
            f"{reserve.reserved_bytes} bytes are reserved of {memory.used_by_process_bytes} that "
            f"the process uses; {memory.free_bytes} of {memory.total_bytes} are free"
        )
