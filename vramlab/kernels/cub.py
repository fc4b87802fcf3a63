"""Temporary storage of CUB's device-wide algorithms, as PyTorch's CUDA kernels call them.

PyTorch asks CUB how much it needs, takes that, and gives it back when the algorithm has been
launched. How much depends on tile sizes that CUB tunes for each architecture.

Source: CCCL 3.0 (cub/device/dispatch and its tuning), which comes with CUDA 13.0. PyPI's wheels of
PyTorch 2.11 to 2.13 are built with that; others may differ by some KiB.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramlab.kernels.registry import GPUModel

_RADIX_DIGITS = 256
_SINGLE_TILE_THREADS = 256
_SHARED_MEMORY_BYTES = 48 * 1024
_SCAN_PADDING_TILES = 32
_SCAN_TILE_STATE_BYTES = 16  # a status and a value of 8 B each


def _ceil_div(number: int, by: int) -> int:
    return -(-number // by)


def aliased_bytes(allocations: Iterable[int]) -> int:
    """Parts of one piece of storage, each aligned to 256 B (AliasTemporaries)."""
    return sum(_ceil_div(size, 256) * 256 for size in allocations) + 255


def radix_sort_pairs_bytes(count: int, item_bytes: int, model: GPUModel) -> int:
    """Storage to sort `count` pairs of an integer key and an integer value by all the key's bits.

    Args:
        count: how many pairs.
        item_bytes: size of a key and of a value: 4 or 8.
        model: the GPU.

    Source: dispatch_radix_sort.cuh (InvokeSingleTile, InvokeOnesweep), tuning_radix_sort.cuh.
    """
    if item_bytes not in (4, 8):
        raise ValueError(f"keys of {item_bytes} B are sorted in another way: give 4 or 8")
    if count <= _SINGLE_TILE_THREADS * (19 * 4 // item_bytes):
        return 1
    capability = model.compute_capability
    if capability >= (9, 0):
        threads, items = 384, (17 if item_bytes == 4 else 24 * 4 // 8)
    elif capability >= (8, 0):
        threads, items = 384, (17 if item_bytes == 4 else 21 * 4 // 8)
    else:
        threads, items = 256, (46 if item_bytes == 4 else 23 * 4 // 8)
    by_shared_memory = _ceil_div(_ceil_div(_SHARED_MEMORY_BYTES, item_bytes * items), 32) * 32
    tile = min(threads, by_shared_memory) * items
    passes = item_bytes  # of 8 bits each
    portion = (2**28 - 1) // tile * tile
    portions = _ceil_div(count, portion)
    return aliased_bytes(
        [
            portions * passes * _RADIX_DIGITS * 8,
            _ceil_div(min(count, portion), tile) * _RADIX_DIGITS * 4,
            count * item_bytes,  # the keys between passes
            count * item_bytes,  # the values between passes
            portions * passes * 4,
        ]
    )


def scan_bytes(count: int, item_bytes: int) -> int:
    """Storage of a prefix sum with PyTorch's own sum operator, 4 or 8 B an item.

    CUB's tuning is for its own operators only: with another, tiles are 128 threads wide everywhere.

    Source: dispatch_scan.cuh, tuning_scan.cuh (DefaultPolicy).
    """
    tile = 128 * (15 * 4 // item_bytes)
    state_bytes = _SCAN_TILE_STATE_BYTES if item_bytes == 8 else 8
    return aliased_bytes([(_ceil_div(count, tile) + _SCAN_PADDING_TILES) * state_bytes])


def unique_by_key_bytes(count: int, model: GPUModel) -> int:
    """Storage to find where each run of equal int64 keys begins.

    Source: dispatch_unique_by_key.cuh, tuning_unique_by_key.cuh (8 B keys, 4 B values).
    """
    capability = model.compute_capability
    if capability >= (10, 0):
        tile = 384 * 10
    elif capability >= (9, 0):
        tile = 640 * 7
    elif capability == (8, 0):
        tile = 256 * 7
    else:
        tile = 64 * 5
    return aliased_bytes([(_ceil_div(count, tile) + _SCAN_PADDING_TILES) * _SCAN_TILE_STATE_BYTES])
