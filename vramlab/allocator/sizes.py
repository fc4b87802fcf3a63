"""How a request becomes a block size, and a block size a segment size.

Source of every constant and rule: c10/core/AllocatorConfig.h (`kMinBlockSize`, `kSmallSize`,
`kSmallBuffer`, `kMinLargeAlloc`, `kRoundLarge`) and `round_size`, `roundup_power2_next_division`,
`get_allocation_size` in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from vramlab.units import MIB

MIN_BLOCK_BYTES = 512
"""Every block is a multiple of this (unless power-of-two rounding says otherwise)."""

SMALL_REQUEST_BYTES = 1 * MIB
"""The largest block of the small pool. One byte more and a request belongs to the large pool."""

SMALL_SEGMENT_BYTES = 2 * MIB
"""What the small pool asks of the driver, each time."""

DEFAULT_LARGE_SEGMENT_BYTES = 20 * MIB
"""What the large pool asks of the driver for a block below `PACKED_REQUEST_BYTES`."""

PACKED_REQUEST_BYTES = 10 * MIB
"""From here on a block of the large pool gets a segment of its own size."""

SEGMENT_GRANULARITY_BYTES = 2 * MIB
"""Segments made to measure are rounded up to a multiple of this."""

REFUSED_REQUEST_BYTES = 1 << 60
"""PyTorch refuses to even look for an exabyte (`one_exa_bytes`)."""

ROUNDUP_INTERVALS = 16
"""Power-of-two rounding is set per interval: 1 MiB, 2 MiB, ... 32 GiB and above."""


def round_up(size_bytes: int, granularity_bytes: int) -> int:
    """Round up to the next multiple of `granularity_bytes`."""
    return -(-size_bytes // granularity_bytes) * granularity_bytes


def roundup_interval(size_bytes: int) -> int:
    """Which of the sixteen `roundup_power2_divisions` holds for a request of this size.

    The first holds for everything below 2 MiB, the last for everything from 32 GiB.
    """
    return min(max(size_bytes.bit_length() - MIB.bit_length(), 0), ROUNDUP_INTERVALS - 1)


def next_power_of_two_division(size_bytes: int, divisions: int) -> int:
    """Round up to the next of `divisions` equal steps between two powers of two.

    With 4 divisions, 1200 lies between 1024 and 2048, whose steps are 1024, 1280, 1536 and 1792:
    the answer is 1280.
    """
    power_of_two = 1 << (size_bytes.bit_length() - 1)
    step_bytes = power_of_two >> (divisions.bit_length() - 1)
    return round_up(size_bytes, step_bytes)


def round_request(size_bytes: int, divisions: tuple[int, ...] = ()) -> int:
    """The size of the block that serves a request.

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


def segment_size(block_bytes: int, large_segment_bytes: int = DEFAULT_LARGE_SEGMENT_BYTES) -> int:
    """What the driver is asked for when no cached block can hold `block_bytes` (rounded already).

    This, not the request, is the "Tried to allocate" of an out-of-memory message.
    """
    if block_bytes <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < PACKED_REQUEST_BYTES:
        return large_segment_bytes
    return round_up(block_bytes, SEGMENT_GRANULARITY_BYTES)
