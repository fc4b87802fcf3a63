"""Release of cached blocks to the driver, in PyTorch's order, when memory gets scarce.

Source: `garbage_collect_cached_blocks`, `release_available_cached_blocks` and `release_blocks` in
c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13. `give_back` stands for `release_block` there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from vramlab.allocator.blocks import Block, BlockPool

GiveBack = Callable[[Block], None]


def is_whole_segment(block: Block) -> bool:
    """Return whether cudaFree can give the block back."""
    return not block.is_split and not block.segment.expandable


def collect_garbage(pool: BlockPool, target_bytes: int, give_back: GiveBack) -> None:
    """Free blocks of at least average age, again and again until it is `target_bytes`.

    The age of a block is the number of searches that it sat through in the cache.
    """
    unsplit = [block for block in pool.free_blocks() if not block.is_split]
    candidates = [block for block in unsplit if is_whole_segment(block)]
    total_age = sum(pool.age(block) for block in unsplit)
    remaining = len(unsplit)
    released_bytes = 0
    released_any = True
    while released_bytes < target_bytes and released_any and remaining:
        average_age = total_age / remaining
        kept: list[Block] = []
        for block in candidates:
            if pool.age(block) < average_age:
                kept.append(block)
                continue
            released_bytes += block.size_bytes
            total_age -= pool.age(block)
            remaining -= 1
            give_back(block)
        released_any = len(kept) < len(candidates)
        candidates = kept


def release_oversize(
    pool: BlockPool, stream: int, needed_bytes: int, max_split_bytes: int, give_back: GiveBack
) -> bool:
    """Free just enough blocks that are too large to be split; return whether it was enough.

    One block of at least `needed_bytes` if there is one, else several, the largest first.

    Only a limit that was lowered at run time can find such a block split already. It stays;
    PyTorch would give the driver an address inside a segment, and fail.
    """
    cached = [block for *_, block in pool.cached[stream]]
    index = bisect_left(pool.cached[stream], (needed_bytes,))
    if index < len(cached) and is_whole_segment(cached[index]):
        give_back(cached[index])
        return True
    released_bytes = 0
    for block in reversed(cached[:index]):
        if released_bytes >= needed_bytes or block.size_bytes < max_split_bytes:
            break
        if is_whole_segment(block):
            released_bytes += block.size_bytes
            give_back(block)
    return released_bytes >= needed_bytes


def release_all(pool: BlockPool, give_back: GiveBack, unmap: GiveBack) -> None:
    """Free every unused segment, then every unused page of expandable ones."""
    cached = pool.free_blocks()
    for block in cached:
        if is_whole_segment(block):
            give_back(block)
    for block in cached:
        if block.segment.expandable:
            unmap(block)
