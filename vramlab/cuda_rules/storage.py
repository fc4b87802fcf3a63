"""What the caching allocator makes of a tensor's bytes.

Source of the constants and rules: c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp
(`round_size`, `get_allocation_size`, `should_split`), PyTorch 2.13; unchanged since 1.0. They hold
for default settings: no PYTORCH_CUDA_ALLOC_CONF.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

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
SMALL_BLOCK_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
OWN_SEGMENT_FROM_BYTES = 10 * MIB


def tensor_bytes(shape: Iterable[int], dtype: str = "float32") -> int:
    """Bytes of a contiguous tensor's elements, before the allocator rounds them.

    Args:
        shape: the tensor's; () is a scalar, of one element.
        dtype: a name in `ITEM_BYTES`.
    """
    return math.prod(shape) * ITEM_BYTES[dtype]


def block_bytes(request_bytes: int) -> int:
    """The block that serves a request: the next multiple of 512 B; nothing for nothing."""
    return -(-request_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


def segment_bytes(request_bytes: int) -> int:
    """What the driver is asked for when no cached block can serve a request.

    Up to 1 MiB: 2 MiB, shared by small blocks. Below 10 MiB: 20 MiB, shared by large blocks. From
    there on a segment of its own, a multiple of 2 MiB.
    """
    size_bytes = block_bytes(request_bytes)
    if size_bytes <= SMALL_BLOCK_BYTES:
        return SMALL_SEGMENT_BYTES
    if size_bytes < OWN_SEGMENT_FROM_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size_bytes // SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES


def unsplit_bytes(request_bytes: int, found_bytes: int) -> int:
    """How much of a free block stays with the request that it serves, beyond what it needs.

    A remainder is split off and stays free if it is at least 512 B in the small pool, or more than
    1 MiB in the large one. Otherwise the request gets it, and it counts as allocated.

    Args:
        request_bytes: what the program asks for.
        found_bytes: size of the free block (or new segment) that was found for it.
    """
    size_bytes = block_bytes(request_bytes)
    remainder_bytes = found_bytes - size_bytes
    if size_bytes <= SMALL_BLOCK_BYTES or remainder_bytes > SMALL_BLOCK_BYTES:
        return 0
    return remainder_bytes


def packed(requests_bytes: Iterable[int]) -> tuple[int, int]:
    """What tensors take that are allocated one after the other, into an empty cache, and stay.

    This is how a model reaches the GPU. Each request takes the smallest free rest of a segment that
    is large enough, else a new segment.

    Returns:
        Allocated bytes and reserved bytes.
    """
    rests: dict[bool, list[int]] = {True: [], False: []}  # free rests of the small pool, the large
    allocated_bytes = reserved_bytes = 0
    for request_bytes in requests_bytes:
        size_bytes = block_bytes(request_bytes)
        if not size_bytes:
            continue
        pool = rests[size_bytes <= SMALL_BLOCK_BYTES]
        found_bytes = min((rest for rest in pool if rest >= size_bytes), default=0)
        if found_bytes:
            pool.remove(found_bytes)
        else:
            found_bytes = segment_bytes(size_bytes)
            reserved_bytes += found_bytes
        taken_bytes = size_bytes + unsplit_bytes(size_bytes, found_bytes)
        allocated_bytes += taken_bytes
        if found_bytes > taken_bytes:
            pool.append(found_bytes - taken_bytes)
    return allocated_bytes, reserved_bytes


def stranded_fraction(request_bytes: int) -> float:
    """Share of reserved memory lost when all requests have one size, 1 MiB to 10 MiB.

    As many as fit share a segment of 20 MiB; what is left of it serves no further request. A rest
    of at most 1 MiB is lost too, though it counts as allocated.
    """
    size_bytes = block_bytes(request_bytes)
    if not SMALL_BLOCK_BYTES < size_bytes < OWN_SEGMENT_FROM_BYTES:
        raise ValueError(
            f"{request_bytes} B do not share segments of 20 MiB: that is from 1 MiB to 10 MiB"
        )
    return LARGE_SEGMENT_BYTES % size_bytes / LARGE_SEGMENT_BYTES
