"""Buffers of CUDA's one reduction kernel: partial results of blocks that share an output.

A reduction whose blocks can each finish their outputs takes nothing. When there are too few outputs
to keep the GPU busy, several blocks share an output: each leaves its partial result in a staging
buffer, and counters (semaphores) tell the last block to combine them.

Source: `setReduceConfig` and `gpu_reduce_kernel` in aten/src/ATen/native/cuda/Reduce.cuh, the same
in PyTorch 1.13 to 2.13. All buffers are given back at once; they matter for peaks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from vramlab.cuda_rules.rounding import ceil_div, power_of_two_below
from vramlab.cuda_rules.sizes import block_bytes
from vramlab.cuda_rules.tensor_iterator import Reduction

_WARP = 32
_LEAST_VALUES_PER_THREAD = 16
_MOST_VALUES_PER_THREAD = 256

COLUMNS_PER_BLOCK = _WARP * 4
"""How many columns of a sum over rows one thread block adds up, four neighbours a thread."""


@dataclass(frozen=True)
class GpuThreads:
    """How many threads a GPU runs at once, which decides how many blocks share an output."""

    multiprocessors: int
    max_threads_per_multiprocessor: int


@dataclass(frozen=True)
class SharedOutputs:
    """Sizes of the buffers of one launch, whose blocks share outputs."""

    staging_bytes: int
    semaphores_bytes: int


def shared_outputs(
    piece: Reduction,
    element_bytes: int,
    partial_bytes: int,
    gpu: GpuThreads,
    max_threads: int = 512,
) -> SharedOutputs | None:
    """Size the buffers of one launch of the kernel; None where no blocks share an output.

    Args:
        piece: the reduction, with offsets that fit 32 bits.
        element_bytes: size of one input value.
        partial_bytes: size of one partial result (`arg_t`).
        gpu: what it runs on.
        max_threads: of a block: 256 for complex128, else 512.

    Source: setReduceConfig and ReduceConfig in Reduce.cuh.
    """
    outputs = piece.output_numel
    inputs_per_output = piece.numel // outputs
    reduced = piece.reduced_dims
    along_input = reduced == len(piece.shape) or (
        piece.input_strides[0] < piece.input_strides[reduced]
    )
    if not piece.shape:
        width, height, fastest_stride = 1, 1, element_bytes
    elif along_input:
        width, height, fastest_stride = inputs_per_output, outputs, piece.input_strides[0]
    else:
        width, height, fastest_stride = outputs, inputs_per_output, piece.input_strides[reduced]

    output_vector = 1
    # (Loading several values at once along the input divides the width too. It leaves the block as
    # it is but for rows of fewer than 4096 values, and those no blocks share.)
    if fastest_stride == element_bytes and not along_input:
        output_vector = _output_vector(piece, element_bytes)
        width //= output_vector

    # The block: x along the fastest dimension, y along the other.
    max_threads //= output_vector
    most_x = power_of_two_below(min(width, max_threads))
    most_y = power_of_two_below(min(height, max_threads))
    block_x = min(most_x, _WARP)
    block_y = min(most_y, max_threads // block_x)
    block_x = min(most_x, max_threads // block_y)

    input_step = block_x if along_input else 1
    output_step = 1 if along_input else block_x
    if ceil_div(inputs_per_output, input_step) < min(block_y * 16, _MOST_VALUES_PER_THREAD):
        return None  # each row of the block has an output of its own
    input_step *= block_y

    values_per_thread = ceil_div(inputs_per_output, input_step)
    grid_x = ceil_div(outputs // output_vector, output_step)
    blocks_at_once = gpu.multiprocessors * (
        gpu.max_threads_per_multiprocessor // (block_x * block_y)
    )
    if values_per_thread < _MOST_VALUES_PER_THREAD or grid_x > blocks_at_once:
        return None
    blocks_per_output = max(
        min(
            ceil_div(blocks_at_once, grid_x),
            ceil_div(values_per_thread, _LEAST_VALUES_PER_THREAD),
        ),
        ceil_div(values_per_thread, _MOST_VALUES_PER_THREAD),
    )
    if blocks_per_output == 1:
        return None
    staging_bytes = partial_bytes * outputs * blocks_per_output
    if not along_input:
        staging_bytes *= block_x * output_vector
    return SharedOutputs(staging_bytes, 4 * grid_x)


def _output_vector(piece: Reduction, element_bytes: int) -> int:
    """Count the neighbouring outputs that one thread computes (get_output_vec_size)."""
    at = piece.reduced_dims
    must_divide = [piece.input_offset // element_bytes, piece.shape[at]]
    must_divide += [
        stride // element_bytes for dim, stride in enumerate(piece.input_strides) if dim != at
    ]
    return math.gcd(4, *must_divide)


@dataclass(frozen=True)
class ReductionLayout:
    """Shapes and strides of a reduction's tensors; hashable, so that repeats cost little.

    Attributes:
        shape: the input's.
        strides: the input's, in elements.
        offset: of the input in its storage, in elements.
        element_bytes: of the input, after a cast if there is one.
        outputs: per output: its strides in bytes along the input's dimensions, 0 where reduced.
        output_bytes: size of one output value.
        accumulates_apart: whether partial sums of 32-bit pieces must not be kept in the output.
        max_threads: of a block.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    element_bytes: int
    outputs: tuple[tuple[int, ...], ...]
    output_bytes: int
    accumulates_apart: bool
    max_threads: int


@dataclass(frozen=True)
class ReductionBuffers:
    """Everything that one reduction takes, in bytes before rounding.

    Attributes:
        accumulation_bytes: kept over all launches: partial sums of 32-bit pieces.
        launches: one after the other, each gives its buffers back before the next.
    """

    accumulation_bytes: int
    launches: tuple[SharedOutputs, ...]


def reduction_buffers(
    layout: ReductionLayout, partial_bytes: int, gpu: GpuThreads
) -> ReductionBuffers:
    """Size the buffers of a reduction: of one launch, or of one for each 32-bit piece.

    Args:
        layout: of its tensors.
        partial_bytes: size of one partial result (`arg_t`).
        gpu: what it runs on.

    Source: gpu_reduce_kernel in Reduce.cuh.
    """
    whole = Reduction.of(
        layout.shape,
        layout.outputs,
        [stride * layout.element_bytes for stride in layout.strides],
        layout.offset * layout.element_bytes,
    )
    accumulation_bytes = 0
    if (
        not whole.fits_32_bits()
        and layout.accumulates_apart
        and layout.output_bytes < partial_bytes
    ):
        reach_bytes = max(
            [
                layout.output_bytes,
                *(s * d for s, d in zip(whole.shape, whole.output_strides[0], strict=True)),
            ]
        )
        accumulation_bytes = reach_bytes // layout.output_bytes * partial_bytes
    launches = [
        shared_outputs(piece, layout.element_bytes, partial_bytes, gpu, layout.max_threads)
        for piece in whole.pieces()
    ]
    return ReductionBuffers(accumulation_bytes, tuple(each for each in launches if each))


def total_layout(numel: int, item_bytes: int, half: bool) -> ReductionLayout:
    """Lay out the sum of a contiguous tensor; `half` is whether 16 bit are summed in more."""
    return ReductionLayout((numel,), (1,), 0, item_bytes, ((0,),), item_bytes, half, 512)


def column_layout(rows: int, columns: int, item_bytes: int, half: bool) -> ReductionLayout:
    """Lay out the sum over the rows of a contiguous (rows, columns)."""
    return ReductionLayout(
        (rows, columns), (columns, 1), 0, item_bytes, ((0, item_bytes),), item_bytes, half, 512
    )


class SumBuffers(NamedTuple):
    """Blocks that a sum holds at its highest moment; their `sum()` is what it adds to a peak."""

    staging_bytes: int
    semaphores_bytes: int
    accumulation_bytes: int


def total_sum_bytes(numel: int, gpu: GpuThreads, item_bytes: int = 4) -> SumBuffers:
    """Size the blocks that `x.sum()` of a contiguous tensor takes.

    Args:
        numel: elements of the tensor.
        gpu: what it runs on.
        item_bytes: 4 for float32; 2 for float16 and bfloat16, which are summed in float32.
    """
    return _sum_buffers(total_layout(numel, item_bytes, item_bytes == 2), gpu)


def column_sum_bytes(rows: int, columns: int, gpu: GpuThreads, item_bytes: int = 4) -> SumBuffers:
    """Size the blocks that the gradient of a bias takes: `grad.sum(0)` of a contiguous gradient.

    The staging buffer has room for the partial result of every thread of every block that shares an
    output, times the columns: far more than is used.

    Args:
        rows: elements that one output adds up.
        columns: outputs.
        gpu: what it runs on.
        item_bytes: 4 for float32; 2 for float16 and bfloat16, which are summed in float32.
    """
    return _sum_buffers(column_layout(rows, columns, item_bytes, item_bytes == 2), gpu)


def _sum_buffers(layout: ReductionLayout, gpu: GpuThreads) -> SumBuffers:
    taken = reduction_buffers(layout, 4, gpu)
    largest = max(
        (
            (block_bytes(launch.staging_bytes), block_bytes(launch.semaphores_bytes))
            for launch in taken.launches
        ),
        key=sum,
        default=(0, 0),
    )
    return SumBuffers(*largest, block_bytes(taken.accumulation_bytes))
