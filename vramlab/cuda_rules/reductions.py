"""What a sum takes while it runs: partial results of thread blocks that share an output.

Source: `setReduceConfig` in aten/src/ATen/native/cuda/Reduce.cuh, PyTorch 1.13 to 2.13, worked out
for the two sums that a training step of Linear layers makes. The buffers are given back at once;
they matter for peaks, and for the statistics.
"""

from __future__ import annotations

from vramlab.cuda_rules.storage import block_bytes

_WARP = 32
_MAX_THREADS = 512
_VECTOR = 4

COLUMNS_PER_BLOCK = _WARP * _VECTOR
"""How many columns of a sum over rows one thread block adds up."""


def _ceil_div(number: int, by: int) -> int:
    return -(-number // by)


def _sharing_blocks(
    values_per_thread: int, grid_blocks: int, threads: int, resident_threads: int
) -> int:
    """How many thread blocks share one output; 1 if each has its own.

    Enough blocks to fill the GPU, but at least 16 values for each of their threads, and at most
    256.

    Args:
        values_per_thread: that one thread would have to add up.
        grid_blocks: thread blocks that there are without sharing.
        threads: in a block.
        resident_threads: of the whole GPU at once: multiprocessors x threads of each.
    """
    blocks_at_once = resident_threads // threads
    if values_per_thread < 256 or grid_blocks > blocks_at_once:
        return 1
    fill, at_most = _ceil_div(blocks_at_once, grid_blocks), _ceil_div(values_per_thread, 16)
    return max(min(fill, at_most), _ceil_div(values_per_thread, 256))


def total_sum_bytes(
    numel: int, multiprocessors: int, threads_per_multiprocessor: int
) -> tuple[int, int]:
    """What `x.sum()` of a contiguous tensor takes: staging buffer and semaphores, as blocks.

    One float32 for each thread block that shares the one output, and one counter.

    Args:
        numel: elements of the tensor; at least 512 x 256, fewer need no sharing.
        multiprocessors: of the GPU.
        threads_per_multiprocessor: that can be resident.
    """
    sharing = _sharing_blocks(
        _ceil_div(numel, _MAX_THREADS),
        1,
        _MAX_THREADS,
        multiprocessors * threads_per_multiprocessor,
    )
    return (block_bytes(4 * sharing), block_bytes(4)) if sharing > 1 else (0, 0)


def column_sum_bytes(
    rows: int, columns: int, multiprocessors: int, threads_per_multiprocessor: int
) -> tuple[int, int]:
    """What the gradient of a bias takes: `grad.sum(0)` of a contiguous (rows, columns).

    Float32 or 16 bit, which is summed in float32, of up to 2**31 bytes.

    A thread adds up four neighbouring columns; a block has 32 x 4 threads. The buffer has room for
    the partial result of every thread of every block that shares an output, times the columns:
    far more than is used.

    Args:
        rows: elements that one output adds up.
        columns: outputs; a multiple of 4, at least 128.
        multiprocessors: of the GPU.
        threads_per_multiprocessor: that can be resident.

    Returns:
        Staging buffer and semaphores, as blocks.
    """
    if columns % _VECTOR or columns < COLUMNS_PER_BLOCK:
        raise ValueError(f"{columns} columns: the formula holds for multiples of 4, from 128 on")
    threads = _MAX_THREADS // _VECTOR
    block_rows = threads // _WARP
    grid_blocks = _ceil_div(columns, COLUMNS_PER_BLOCK)
    resident_threads = (threads_per_multiprocessor // threads) * threads * multiprocessors
    sharing = _sharing_blocks(_ceil_div(rows, block_rows), grid_blocks, threads, resident_threads)
    if sharing == 1:
        return 0, 0
    staging_bytes = 4 * columns * sharing * _WARP * _VECTOR
    return block_bytes(staging_bytes), block_bytes(4 * grid_blocks)
