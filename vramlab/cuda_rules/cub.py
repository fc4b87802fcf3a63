"""Temporary storage of CUB's device-wide algorithms, as PyTorch's CUDA kernels call them.

PyTorch asks CUB how much it needs, allocates that, and frees it when the algorithm has been
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
_SUM_TILE = 4096
_SCAN_TILE_STATE_BYTES = 16  # a status and a value of 8 B each


def aliased_bytes(allocations: Iterable[int]) -> int:
    """Add up parts of one piece of storage, each aligned to 256 B (AliasTemporaries)."""
    return sum(round_up(size, 256) for size in allocations) + 255


def _tile_states_bytes(
    count: int, tile: int, state_bytes: int, padding_tiles: int = _SCAN_PADDING_TILES
) -> int:
    """Size the storage of an algorithm that keeps one state for each tile, and a few more."""
    return aliased_bytes([aliased_bytes([state_bytes * (ceil_div(count, tile) + padding_tiles)])])


def _tuned(model: CudaGpuFacts, default: int, *, a100: int, hopper: int, blackwell: int) -> int:
    """Choose what CUB tunes: for 8.0 alone, for 9.0 and for 10.0 and later."""
    capability = model.compute_capability
    if capability >= (10, 0):
        return blackwell
    if capability >= (9, 0):
        return hopper
    return a100 if capability == (8, 0) else default


def key_bits(largest: int) -> int:
    """Count the bits that sort keys up to `largest` (at::cuda::cub::get_num_bits)."""
    return max(largest, 1).bit_length()


def radix_sort_bytes(
    count: int, key_bytes: int, value_bytes: int, model: CudaGpuFacts, bits: int | None = None
) -> int:
    """Size the storage to sort `count` keys, and the values that go with them, by radix.

    Args:
        count: how many keys.
        key_bytes: size of a key: 1, 2, 4 or 8.
        value_bytes: size of a value: 0 for none, 4 or 8.
        model: the GPU.
        bits: how many bits of a key are sorted by; None for all.

    Source: dispatch_radix_sort.cuh (InvokeSingleTile, InvokeOnesweep, InvokePasses),
    tuning_radix_sort.cuh.
    """
    if key_bytes not in (1, 2, 4, 8):
        raise ValueError(f"keys of {key_bytes} bytes: a radix sort has keys of 1, 2, 4 or 8")
    item_bytes = max(key_bytes, value_bytes)
    if count <= _SINGLE_TILE_THREADS * min(19 * 4 // item_bytes, 19 * 2):
        return 1
    if key_bytes < 4:
        return _small_key_sort_bytes(count, key_bytes, value_bytes, model)
    threads, items = _radix_tuning(key_bytes, value_bytes, model)
    items = items * 4 // item_bytes
    by_shared_memory = round_up(ceil_div(_SHARED_MEMORY_BYTES, item_bytes * items), 32)
    tile = min(threads, by_shared_memory) * items
    passes = ceil_div(8 * key_bytes if bits is None else bits, 8)
    return _onesweep_bytes(count, key_bytes, value_bytes, tile, passes)


def _onesweep_bytes(count: int, key_bytes: int, value_bytes: int, tile: int, passes: int) -> int:
    """Size what a sort takes that reads and writes once for each digit (InvokeOnesweep)."""
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


def _small_key_sort_bytes(count: int, key_bytes: int, value_bytes: int, model: CudaGpuFacts) -> int:
    """Size what keys of one or two bytes take: digits of 7 bits are counted first, before 9.0.

    Each block that fits on the GPU, five times over, has a count for each digit. How many fit is
    taken to depend on their threads alone.
    """
    if model.compute_capability >= (9, 0):
        tile = 512 * 19 if not value_bytes else 512 * 11 if key_bytes == 2 else 384 * 9
        return _onesweep_bytes(count, key_bytes, value_bytes, tile, key_bytes)
    threads = 256 if key_bytes == 2 else 512
    blocks = model.multiprocessors * (model.max_threads_per_multiprocessor // threads) * 5
    counts = blocks * 2**7 + 512 * 11  # and a tile of the scan over them
    return aliased_bytes([8 * counts, count * key_bytes, count * value_bytes])


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


def scan_by_key_bytes(count: int) -> int:
    """Size the storage of a prefix sum within runs of equal 4-byte keys (dispatch_scan_by_key.cuh).

    A status, a value and a key for each tile of 256 threads with 12 items.
    """
    return _tile_states_bytes(count, 256 * 12, 16)


def unique_by_key_bytes(count: int, model: CudaGpuFacts) -> int:
    """Size the storage to find where each run of equal int64 keys begins.

    Source: dispatch_unique_by_key.cuh, tuning_unique_by_key.cuh (8 B keys, 4 B values).
    """
    tile = _tuned(model, 64 * 5, a100=256 * 7, hopper=640 * 7, blackwell=384 * 10)
    return _tile_states_bytes(count, tile, _SCAN_TILE_STATE_BYTES)


def sum_bytes(count: int, partial_bytes: int, model: CudaGpuFacts) -> int:
    """Size the storage of a sum: of one tile none, else a partial sum of each block that may run.

    Blocks are 256 threads wide, and five times as many as run at a time.

    Source: dispatch_reduce.cuh (InvokePasses), tuning_reduce.cuh (Policy600).
    """
    if count <= _SUM_TILE:
        return 1
    blocks = 5 * model.multiprocessors * (model.max_threads_per_multiprocessor // 256)
    return aliased_bytes([blocks * partial_bytes])


def select_bytes(count: int, model: CudaGpuFacts) -> int:
    """Size the storage to select int64 numbers by flags: a status of 8 B for each tile.

    Source: dispatch_select_if.cuh, tuning_select_if.cuh (flags, 8 B numbers, order kept).
    """
    tile = _tuned(model, 128 * 5, a100=384 * 6, hopper=384 * 11, blackwell=352 * 10)
    return _tile_states_bytes(count, tile, 8)


def unique_bytes(count: int, item_bytes: int, model: CudaGpuFacts) -> int:
    """Size the storage to keep the first of each run of equal items (DeviceSelect::Unique).

    Source: dispatch_select_if.cuh, tuning_select_if.cuh; tiles as PyTorch 2.13's own code asks for.
    """
    default = 128 * min(10, 40 // item_bytes)
    a100 = {1: 512 * 40, 4: 384 * 12, 8: 384 * 5}.get(item_bytes, default)
    hopper = {1: 512 * 11, 4: 512 * 13, 8: 384 * 11}.get(item_bytes, default)
    tile = _tuned(model, default, a100=a100, hopper=hopper, blackwell=hopper)
    return _tile_states_bytes(count, tile, 8)


def run_lengths_bytes(count: int) -> int:
    """Size the storage to count runs of equal items (DeviceRunLengthEncode::Encode).

    Source: dispatch_rle.cuh; tiles and their padding as PyTorch 2.13's own code asks for.
    """
    return _tile_states_bytes(count, 128 * 6, 16, padding_tiles=16)


def int_scan_bytes(count: int) -> int:
    """Size the storage of a prefix sum of int32 by CUB's own operator.

    Source: dispatch_scan.cuh; tiles as PyTorch 2.13's own code asks for on an A100.
    """
    return _tile_states_bytes(count, 3840, 8)


def int64_scan_bytes(count: int, model: CudaGpuFacts) -> int:
    """Size the storage of a prefix sum of int64 by CUB's own operator, as Thrust calls it.

    Source: dispatch_scan.cuh; tiles as PyTorch 2.13's own code asks for.
    """
    tile = _tuned(model, 128 * 7, a100=288 * 11, hopper=384 * 7, blackwell=416 * 11)
    return _tile_states_bytes(count, tile, _SCAN_TILE_STATE_BYTES)


def thrust_unique_bytes(count: int) -> int:
    """Size the storage to keep the first of each run of int64 that an operator says are equal.

    Source: thrust/system/cuda/detail/unique.h; tiles as PyTorch 2.13's own code asks for.
    """
    return _thrust_runs_bytes(count, 128 * 5)


def thrust_unique_by_key_bytes(count: int, model: CudaGpuFacts) -> int:
    """Size the same, of int64 numbers that go with them, too.

    Source: thrust/system/cuda/detail/unique_by_key.h; tiles as PyTorch 2.13's own code asks for.
    """
    tile = _tuned(model, 128 * 5, a100=384 * 7, hopper=448 * 22, blackwell=448 * 22)
    return _thrust_runs_bytes(count, tile)


def _thrust_runs_bytes(count: int, tile: int) -> int:
    states = _SCAN_TILE_STATE_BYTES * (ceil_div(count, tile) + _SCAN_PADDING_TILES)
    return aliased_bytes([aliased_bytes([states]), 8])  # and how many there are


DIFFERENCE_BYTES = aliased_bytes([])
"""What the differences of neighbours take (thrust::adjacent_difference)."""
