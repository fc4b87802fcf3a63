"""Temporary storage of CUB's device-wide algorithms, as PyTorch's CUDA kernels call them.

PyTorch asks CUB how much it needs, takes that, and gives it back when the algorithm has been
launched. How much depends on tile sizes that CUB tunes for each architecture.

Source: CCCL 3.0 (cub/device/dispatch and its tuning), which comes with CUDA 13.0. PyPI's wheels of
PyTorch 2.11 to 2.13 are built with that; others may differ by some KiB.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramlab.cuda_rules.gpu_facts import CudaGpuFacts
from vramlab.cuda_rules.rounding import ceil_div, round_up

_RADIX_DIGITS = 256
_SINGLE_TILE_THREADS = 256
_SHARED_MEMORY_BYTES = 48 * 1024
_SCAN_PADDING_TILES = 32
_SCAN_TILE_STATE_BYTES = 16  # a status and a value of 8 B each


def aliased_bytes(allocations: Iterable[int]) -> int:
    """Add up parts of one piece of storage, each aligned to 256 B (AliasTemporaries)."""
    return sum(round_up(size, 256) for size in allocations) + 255


def key_bits(largest: int) -> int:
    """Count the bits that sort keys up to `largest` (at::cuda::cub::get_num_bits)."""
    return max(largest, 1).bit_length()


def radix_sort_bytes(
    count: int, key_bytes: int, value_bytes: int, model: CudaGpuFacts, bits: int | None = None
) -> int:
    """Size the storage to sort `count` keys, and the values that go with them, by radix.

    Args:
        count: how many keys.
        key_bytes: size of a key: 4 or 8. Smaller keys are sorted in other ways.
        value_bytes: size of a value: 0 for none, 4 or 8.
        model: the GPU.
        bits: how many bits of a key are sorted by; None for all.

    Source: dispatch_radix_sort.cuh (InvokeSingleTile, InvokeOnesweep), tuning_radix_sort.cuh.
    """
    if key_bytes not in (4, 8):
        raise ValueError(f"keys of {key_bytes} B are sorted in another way: give 4 or 8")
    item_bytes = max(key_bytes, value_bytes)
    if count <= _SINGLE_TILE_THREADS * (19 * 4 // item_bytes):
        return 1
    threads, items = _radix_tuning(key_bytes, value_bytes, model)
    items = items * 4 // item_bytes
    by_shared_memory = round_up(ceil_div(_SHARED_MEMORY_BYTES, item_bytes * items), 32)
    tile = min(threads, by_shared_memory) * items
    passes = ceil_div(8 * key_bytes if bits is None else bits, 8)
    portion = (2**28 - 1) // tile * tile
    portions = ceil_div(count, portion)
    between_passes = count if passes > 1 else 0
    return aliased_bytes(
        [
            portions * passes * _RADIX_DIGITS * 8,
            ceil_div(min(count, portion), tile) * _RADIX_DIGITS * 4,
            between_passes * key_bytes,
            between_passes * value_bytes,
            portions * passes * 4,
        ]
    )


def _radix_tuning(key_bytes: int, value_bytes: int, model: CudaGpuFacts) -> tuple[int, int]:
    """Look up threads of a block, and items of a thread were they 4 B each; offsets are 8 B."""
    if model.compute_capability >= (9, 0):
        if key_bytes == 8:
            return 384, 30 if value_bytes < 8 else 24
        return 384, 19 if not value_bytes else 17 if value_bytes < 8 else 29
    if model.compute_capability >= (8, 0):
        return 384, 17 if key_bytes == 4 and value_bytes else 21
    return 256, 46 if key_bytes == value_bytes == 4 else 23


def segmented_sort_bytes(count: int, key_bytes: int, value_bytes: int) -> int:
    """Size the storage to sort pairs within segments: a copy of both (dispatch_radix_sort.cuh)."""
    return aliased_bytes([count * key_bytes, count * value_bytes])


def merge_sort_bytes(count: int, key_bytes: int, value_bytes: int) -> int:
    """Size the storage to sort pairs by comparing keys, as Thrust does with an operator of its own.

    A copy of both, and where each tile of 256 threads begins to merge.

    Source: dispatch_merge_sort.cuh, tuning_merge_sort.cuh (Policy600).
    """
    tile = 256 * max(1, 17 * 4 // key_bytes)
    partitions = 1 + ceil_div(count, tile)
    return aliased_bytes([4 * partitions, count * key_bytes, count * value_bytes])


def scan_bytes(count: int, item_bytes: int) -> int:
    """Size the storage of a prefix sum with PyTorch's own sum operator, of items of 2, 4 or 8 B.

    CUB's tuning is for its own operators only: with another, tiles are 128 threads wide everywhere.

    Source: dispatch_scan.cuh, tuning_scan.cuh (DefaultPolicy).
    """
    tile = 128 * min(15 * 4 // item_bytes, 15 * 2)
    tiles = ceil_div(count, tile) + _SCAN_PADDING_TILES
    if item_bytes == 2:  # float16 and bfloat16: status, partial and inclusive sums apart
        state = [4 * tiles, item_bytes * tiles, item_bytes * tiles]
    else:
        state = [2 * item_bytes * tiles]  # a status as wide as the value, beside it
    return aliased_bytes([aliased_bytes(state)])


def unique_by_key_bytes(count: int, model: CudaGpuFacts) -> int:
    """Size the storage to find where each run of equal int64 keys begins.

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
    state_bytes = (ceil_div(count, tile) + _SCAN_PADDING_TILES) * _SCAN_TILE_STATE_BYTES
    return aliased_bytes([aliased_bytes([state_bytes])])
