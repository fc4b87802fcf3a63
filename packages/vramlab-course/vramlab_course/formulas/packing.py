"""Blocks and segments of tensors that are allocated one after another and stay.

The rules for one request are `vramlab.cuda_rules.sizes`; what is added here is where each block
goes, without the allocator's engine (`vramlab.allocator`): tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramlab.cuda_rules.sizes import (
    LARGE_SEGMENT_BYTES,
    OWN_SEGMENT_FROM_BYTES,
    SMALL_BLOCK_BYTES,
    block_bytes,
    segment_size,
    unsplit_remainder_bytes,
)


def packed(requests_bytes: Iterable[int]) -> tuple[int, int]:
    """Return blocks and segments of tensors that are allocated one after another and stay.

    This is how a model reaches the GPU. Each request takes the smallest free block that is large
    enough, else a new segment.

    Returns:
        Allocated bytes and reserved bytes.
    """
    free: dict[bool, list[int]] = {True: [], False: []}  # blocks of the small pool, of the large
    allocated_bytes = reserved_bytes = 0
    for request_bytes in requests_bytes:
        size_bytes = block_bytes(request_bytes)
        if not size_bytes:
            continue
        pool = free[size_bytes <= SMALL_BLOCK_BYTES]
        found_bytes = min(
            (free_bytes for free_bytes in pool if free_bytes >= size_bytes), default=0
        )
        if found_bytes:
            pool.remove(found_bytes)
        else:
            found_bytes = segment_size(size_bytes)
            reserved_bytes += found_bytes
        taken_bytes = size_bytes + unsplit_remainder_bytes(size_bytes, found_bytes)
        allocated_bytes += taken_bytes
        if found_bytes > taken_bytes:
            pool.append(found_bytes - taken_bytes)
    return allocated_bytes, reserved_bytes


def stranded_fraction(request_bytes: int) -> float:
    """Return the fraction of reserved memory lost when all requests have one size, 1 to 10 MiB.

    As many as fit share a segment of 20 MiB; what is left of it serves no further request. An
    unsplit remainder, of at most 1 MiB, is lost too, though it counts as allocated.
    """
    size_bytes = block_bytes(request_bytes)
    if not SMALL_BLOCK_BYTES < size_bytes < OWN_SEGMENT_FROM_BYTES:
        raise ValueError(
            f"{request_bytes} B do not share segments of 20 MiB: that is from 1 MiB to 10 MiB"
        )
    return LARGE_SEGMENT_BYTES % size_bytes / LARGE_SEGMENT_BYTES
