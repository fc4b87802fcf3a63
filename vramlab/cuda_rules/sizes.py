"""Bytes of a tensor, of the block that serves a request, and of the block's segment.

Source of every constant and rule: c10/core/AllocatorConfig.h (`kMinBlockSize`, `kSmallSize`,
`kSmallBuffer`, `kMinLargeAlloc`, `kRoundLarge`) and `round_size`, `roundup_power2_next_division`,
`get_allocation_size`, `should_split` in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13. With
default settings (no PYTORCH_CUDA_ALLOC_CONF) they are the same since 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from vramlab.cuda_rules.rounding import round_up
from vramlab.units import MIB

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one element, by the name of the dtype."""

MIN_BLOCK_BYTES = 512
"""Every block is a multiple of this (unless power-of-two rounding says otherwise)."""

SMALL_BLOCK_BYTES = 1 * MIB
"""The largest block of the small pool. One byte more and a request belongs to the large pool."""

SMALL_SEGMENT_BYTES = 2 * MIB
"""What the small pool asks of the driver, each time."""

LARGE_SEGMENT_BYTES = 20 * MIB
"""What the large pool asks of the driver for a block below `OWN_SEGMENT_FROM_BYTES`, unless
`large_segment_size_mb` says otherwise."""

OWN_SEGMENT_FROM_BYTES = 10 * MIB
"""From here on a block of the large pool gets a segment of its own size."""

SEGMENT_GRANULARITY_BYTES = 2 * MIB
"""Segments made to measure are rounded up to a multiple of this."""

REFUSED_REQUEST_BYTES = 1 << 60
"""PyTorch refuses to even look for an exabyte (`one_exa_bytes`)."""

ROUNDUP_INTERVALS = 16
"""Power-of-two rounding is set per interval: 1 MiB, 2 MiB, ... 32 GiB and above."""


def tensor_bytes(shape: Iterable[int], dtype: str = "float32") -> int:
    """Return the bytes of a contiguous tensor's elements, before the allocator rounds them.

    Args:
        shape: the tensor's; () is a scalar, of one element.
        dtype: a name in `ITEM_BYTES`.
    """
    return math.prod(shape) * ITEM_BYTES[dtype]


def roundup_interval(size_bytes: int) -> int:
    """Return which of the sixteen `roundup_power2_divisions` applies to a request of this size.

    The first holds for everything below 2 MiB, the last for everything from 32 GiB.
    """
    return min(max(size_bytes.bit_length() - MIB.bit_length(), 0), ROUNDUP_INTERVALS - 1)


def next_power_of_two_division(size_bytes: int, divisions: int) -> int:
    """Return the next of `divisions` equal steps between two powers of two.

    With 4 divisions, 1200 lies between 1024 and 2048, whose steps are 1024, 1280, 1536 and 1792:
    the answer is 1280.
    """
    power_of_two = 1 << (size_bytes.bit_length() - 1)
    step_bytes = power_of_two >> (divisions.bit_length() - 1)
    return round_up(size_bytes, step_bytes)


def round_request(size_bytes: int, divisions: tuple[int, ...] = ()) -> int:
    """Return the size of the block that serves a request (`round_size`).

    Args:
        size_bytes: what the program asks for, at least 1.
        divisions: `roundup_power2_divisions`, one number per interval; empty when it is off.
    """
    if size_bytes < MIN_BLOCK_BYTES:
        return MIN_BLOCK_BYTES
    if divisions:
        steps = divisions[roundup_interval(size_bytes)]
        if steps > 1 and size_bytes > MIN_BLOCK_BYTES * steps:
            return next_power_of_two_division(size_bytes, steps)
    return round_up(size_bytes, MIN_BLOCK_BYTES)


def block_bytes(request_bytes: int) -> int:
    """Return a request rounded up with default settings: to a multiple of 512 B, and 0 for 0."""
    return round_request(request_bytes) if request_bytes else 0


def segment_size(block_bytes: int, large_segment_bytes: int = LARGE_SEGMENT_BYTES) -> int:
    """Return the size of the segment to request from the driver if no cached block fits.

    Up to 1 MiB: 2 MiB, shared by small blocks. Below 10 MiB: 20 MiB, shared by large blocks. From
    there on a segment of its own, a multiple of 2 MiB (`get_allocation_size`).

    Args:
        block_bytes: the request, rounded already.
        large_segment_bytes: the setting `large_segment_size_mb`.

    This, not the request, is the "Tried to allocate" of an out-of-memory message.
    """
    if block_bytes <= SMALL_BLOCK_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < OWN_SEGMENT_FROM_BYTES:
        return large_segment_bytes
    return round_up(block_bytes, SEGMENT_GRANULARITY_BYTES)


def should_split(
    found_bytes: int,
    block_bytes: int,
    max_split_bytes: int | None = None,
    *,
    expandable: bool = False,
) -> bool:
    """Return whether the remainder of a free block is split off and stays free (`should_split`).

    It is if it has at least 512 B in the small pool, or more than 1 MiB in the large one.

    Args:
        found_bytes: size of the free block (or new segment) that was found.
        block_bytes: the request, rounded already.
        max_split_bytes: the setting `max_split_size_mb`; None: no limit.
        expandable: the setting `expandable_segments`.
    """
    remaining_bytes = found_bytes - block_bytes
    if block_bytes <= SMALL_BLOCK_BYTES or expandable:
        return remaining_bytes >= MIN_BLOCK_BYTES
    return remaining_bytes > SMALL_BLOCK_BYTES and (
        max_split_bytes is None or block_bytes < max_split_bytes
    )


def unsplit_remainder_bytes(request_bytes: int, found_bytes: int) -> int:
    """Return the part of a block beyond the request that is not split off; 0 if it is split.

    The unsplit remainder counts as allocated.

    Args:
        request_bytes: what the program asks for.
        found_bytes: size of the free block (or new segment) that was found for it.
    """
    size_bytes = block_bytes(request_bytes)
    return 0 if should_split(found_bytes, size_bytes) else found_bytes - size_bytes
