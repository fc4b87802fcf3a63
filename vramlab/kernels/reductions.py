"""Rules of reductions: the staging buffer and the semaphores of CUDA's one reduction kernel.

A reduction whose blocks can each finish their outputs takes nothing. When there are too few outputs
to keep the GPU busy, several blocks share an output: each leaves its partial result in a staging
buffer, and counters (semaphores) tell the last block to combine them.

Source of the arithmetic: aten/src/ATen/native/cuda/Reduce.cuh, the same in PyTorch 2.11 to 2.13.
What an op accumulates in: the files Reduce*Kernel.cu beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, dtype

from vramlab.kernels.operands import flat_stride, is_dense
from vramlab.kernels.registry import OUTPUTS, Call, Give, KernelContext, Status, Step, Take, rule
from vramlab.kernels.tensor_iterator import Reduction

_REDUCE_CUH = "aten/src/ATen/native/cuda/Reduce.cuh, PyTorch 2.13"
_WARP = 32
_LEAST_VALUES_PER_THREAD = 16
_MOST_VALUES_PER_THREAD = 256

STAGING, SEMAPHORES, ACCUMULATION = "staging buffer", "semaphores", "accumulation buffer"


@dataclass(frozen=True)
class Gpu:
    """What the launch depends on: how many threads run at once."""

    multiprocessors: int
    max_threads_per_multiprocessor: int


@dataclass(frozen=True)
class SharedOutputs:
    """What blocks that share outputs take: sizes in bytes."""

    staging_bytes: int
    semaphores_bytes: int


def _ceil_div(number: int, by: int) -> int:
    return -(-number // by)


def _power_of_two_below(number: int) -> int:
    """The largest power of two that is not above `number`; 1 for 0."""
    return 1 << max(number.bit_length() - 1, 0)


def shared_outputs(
    piece: Reduction, element_bytes: int, partial_bytes: int, gpu: Gpu, max_threads: int = 512
) -> SharedOutputs | None:
    """Say what one launch of the kernel takes, or None where no blocks share an output.

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
    most_x = _power_of_two_below(min(width, max_threads))
    most_y = _power_of_two_below(min(height, max_threads))
    block_x = min(most_x, _WARP)
    block_y = min(most_y, max_threads // block_x)
    block_x = min(most_x, max_threads // block_y)

    input_step = block_x if along_input else 1
    output_step = 1 if along_input else block_x
    if _ceil_div(inputs_per_output, input_step) < min(block_y * 16, _MOST_VALUES_PER_THREAD):
        return None  # each row of the block has an output of its own
    input_step *= block_y

    values_per_thread = _ceil_div(inputs_per_output, input_step)
    grid_x = _ceil_div(outputs // output_vector, output_step)
    blocks_at_once = gpu.multiprocessors * (
        gpu.max_threads_per_multiprocessor // (block_x * block_y)
    )
    if values_per_thread < _MOST_VALUES_PER_THREAD or grid_x > blocks_at_once:
        return None
    blocks_per_output = max(
        min(
            _ceil_div(blocks_at_once, grid_x),
            _ceil_div(values_per_thread, _LEAST_VALUES_PER_THREAD),
        ),
        _ceil_div(values_per_thread, _MOST_VALUES_PER_THREAD),
    )
    if blocks_per_output == 1:
        return None
    staging_bytes = partial_bytes * outputs * blocks_per_output
    if not along_input:
        staging_bytes *= block_x * output_vector
    return SharedOutputs(staging_bytes, 4 * grid_x)


def _output_vector(piece: Reduction, element_bytes: int) -> int:
    """How many neighbouring outputs one thread computes (get_output_vec_size)."""
    at = piece.reduced_dims
    must_divide = [piece.input_offset // element_bytes, piece.shape[at]]
    must_divide += [
        stride // element_bytes for dim, stride in enumerate(piece.input_strides) if dim != at
    ]
    return math.gcd(4, *must_divide)


@dataclass(frozen=True)
class Layout:
    """What a reduction's rule needs of its tensors; hashable, so that repeats cost little.

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


@lru_cache(maxsize=4096)
def _kernel_steps(layout: Layout, partial_bytes: int, gpu: Gpu) -> tuple[Step, ...]:
    """Say what gpu_reduce_kernel takes: one launch, or one for each 32-bit piece."""
    steps: list[Step] = []
    whole = Reduction.of(
        layout.shape,
        layout.outputs,
        [stride * layout.element_bytes for stride in layout.strides],
        layout.offset * layout.element_bytes,
    )
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
        values = reach_bytes // layout.output_bytes
        steps.append(Take(values * partial_bytes, ACCUMULATION))
    for piece in whole.pieces():
        taken = shared_outputs(piece, layout.element_bytes, partial_bytes, gpu, layout.max_threads)
        if taken is not None:
            steps += [
                Take(taken.staging_bytes, STAGING),
                Take(taken.semaphores_bytes, SEMAPHORES),
                Give(SEMAPHORES),
                Give(STAGING),
            ]
    return tuple(steps)


def reduction_steps(
    context: KernelContext,
    input: Tensor,
    outputs: Sequence[Tensor],
    dims: Sequence[int] | int | None,
    partial_bytes: int,
    compute: dtype,
) -> Iterator[Step]:
    """Yield what a reduction takes once its outputs are there: a cast input, then the kernel's.

    Args:
        context: where it runs.
        input: what is reduced.
        outputs: one or two results, with or without the reduced dimensions.
        dims: what is reduced; None or nothing for all.
        partial_bytes: size of one partial result.
        compute: the dtype that the input has to have; it is cast to it if it has another. But
            float16 and bfloat16 are read as they are where float32 is wanted.

    Source: make_reduction in aten/src/ATen/native/ReduceOpsUtils.h, PyTorch 2.13.
    """
    if input.numel() == 0 or any(output.numel() == 0 for output in outputs):
        return  # the results are filled in
    shape, strides, offset = tuple(input.shape), input.stride(), int(input.storage_offset())
    element_bytes = input.element_size()
    read = input.dtype
    halves = read in (torch.float16, torch.bfloat16)
    if read != compute and not (halves and compute == torch.float32):
        element_bytes = compute.itemsize
        yield Take(input.numel() * element_bytes, f"input cast to {str(compute)[6:]}")
        strides, offset, read = _dense_strides(shape, strides), 0, compute
    rank = len(shape)
    reduced = _wrapped(dims, rank)
    result = outputs[0]
    layout = Layout(
        shape,
        strides,
        offset,
        element_bytes,
        tuple(_output_strides(output, shape, reduced) for output in outputs),
        result.element_size(),
        read == result.dtype and read in (torch.float16, torch.bfloat16, torch.complex32),
        256 if read == torch.complex128 else 512,
    )
    yield from _kernel_steps(layout, partial_bytes, _gpu(context))


def whole_column_sum(
    context: KernelContext, rows: int, columns: int, read: dtype
) -> tuple[Step, ...]:
    """What `matrix.sum(0)` takes for a contiguous matrix, once its result is there."""
    layout = Layout(
        (rows, columns),
        (columns, 1),
        0,
        read.itemsize,
        ((0, read.itemsize),),
        read.itemsize,
        read in (torch.float16, torch.bfloat16),
        512,
    )
    return _kernel_steps(layout, _opmath_bytes(read), _gpu(context))


def whole_sum(context: KernelContext, numel: int, read: dtype) -> tuple[Step, ...]:
    """What the sum or mean of a contiguous tensor takes, once its result is there."""
    if not numel:
        return ()
    halves = read in (torch.float16, torch.bfloat16)
    layout = Layout((numel,), (1,), 0, read.itemsize, ((0,),), read.itemsize, halves, 512)
    return _kernel_steps(layout, _opmath_bytes(read), _gpu(context))


def _gpu(context: KernelContext) -> Gpu:
    return Gpu(context.model.multiprocessors, context.model.max_threads_per_multiprocessor)


def _wrapped(dims: Sequence[int] | int | None, rank: int) -> frozenset[int]:
    """The reduced dimensions, counted from 0."""
    if dims is None or dims == [] or dims == ():
        return frozenset(range(rank))
    listed = (dims,) if isinstance(dims, int) else dims
    return frozenset(dim % rank for dim in listed) if rank else frozenset()


def _output_strides(
    output: Tensor, shape: Sequence[int], reduced: frozenset[int]
) -> tuple[int, ...]:
    """An output's strides in bytes along the input's dimensions, 0 where it is reduced."""
    strides = iter([stride * output.element_size() for stride in output.stride()])
    if output.dim() == len(shape):  # the reduced dimensions were kept, with size 1
        sizes = zip(shape, output.shape, strides, strict=True)
        return tuple(0 if kept == 1 and size != 1 else stride for size, kept, stride in sizes)
    return tuple(0 if dim in reduced else next(strides) for dim in range(len(shape)))


def _dense_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides of a copy in preserve_format: the same order of dimensions, without holes."""
    order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))
    dense = [0] * len(shape)
    stride = 1
    for dim in reversed(order):
        dense[dim] = stride
        stride *= shape[dim]
    return tuple(dense)


# What each op accumulates in.


def _opmath_bytes(read: dtype) -> int:
    """float32 for float16 and bfloat16, complex64 for complex32, else the dtype itself."""
    wider = {torch.float16: 4, torch.bfloat16: 4, torch.complex32: 8}
    return wider.get(read, read.itemsize)


def _value_and_index_bytes(value_bytes: int) -> int:
    """A pair of a value and an int64, aligned to 8 B."""
    return 8 * _ceil_div(value_bytes, 8) + 8


def _welford_bytes(read: dtype) -> int:
    """mean, sum of squares, an int32 count, and the count as a number, aligned."""
    return 32 if read == torch.float64 else 16


def _simple(
    call: Call,
    input: Tensor,
    dims: Sequence[int] | int | None,
    partial_bytes: Callable[[dtype], int],
) -> Iterator[Step]:
    """Outputs, then a reduction in the result's dtype."""
    yield OUTPUTS
    (result,) = call.outputs
    if result is None:
        return
    halves = input.dtype in (torch.float16, torch.bfloat16) and result.dtype == torch.float32
    read = input.dtype if halves else result.dtype
    yield from reduction_steps(
        call.context, input, [result], dims, partial_bytes(read), result.dtype
    )


_TAKES = "staging buffer and semaphores when blocks share outputs"


@rule(
    "aten.sum.default",
    "aten.sum.out",
    takes=f"{_TAKES}; a copy of an integer or bool input as int64",
    source=_REDUCE_CUH,
    status=Status.RECORDED,
)
def sum_all(call: Call, self: Tensor, **_: object) -> Iterable[Step]:
    """Document 003: two small blocks for the sum of a (10240, 1024) tensor in float16."""
    return _simple(call, self, None, _opmath_bytes)


@rule(
    "aten.sum.dim_IntList",
    "aten.sum.IntList_out",
    "aten.mean.dim",
    "aten.mean.out",
    takes=f"{_TAKES}; a copy of the input in the result's dtype unless that is the input's, or "
    "float32 from float16 or bfloat16",
    source=_REDUCE_CUH,
    status=Status.RECORDED,
)
def sum_dims(
    call: Call, self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, **_: object
) -> Iterable[Step]:
    return _simple(call, self, dim, _opmath_bytes)


@rule(
    "aten.mean.default",
    "aten.mean.dtype_out",
    takes=_TAKES,
    source=_REDUCE_CUH,
    status=Status.RECORDED,
)
def mean_all(call: Call, self: Tensor, **_: object) -> Iterable[Step]:
    return _simple(call, self, None, _opmath_bytes)


@rule(
    "aten.nansum.default",
    "aten.nansum.out",
    takes=_TAKES,
    source=_REDUCE_CUH,
    status=Status.RECORDED,
)
def nansum(
    call: Call,
    self: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    **_: object,
) -> Iterable[Step]:
    return _simple(call, self, dim, _opmath_bytes)


@rule(
    "aten.prod.default",
    "aten.prod.out",
    takes=f"{_TAKES}; a copy of an integer or bool input as int64",
    source=_REDUCE_CUH,
    status=Status.RECORDED,
)
def prod_all(call: Call, self: Tensor, **_: object) -> Iterable[Step]:
    return _simple(call, self, None, _opmath_bytes)


@rule(
    "aten.prod.dim_int",
    "aten.prod.int_out",
    takes=f"{_TAKES}; a copy of an integer or bool input as int64",
    source=_REDUCE_CUH,
    status=Status.RECORDED,
)
def prod_dim(
    call: Call, self: Tensor, dim: int, keepdim: bool = False, **_: object
) -> Iterable[Step]:
    return _simple(call, self, dim, _opmath_bytes)


@rule(
    "aten.amax.default",
    "aten.amax.out",
    "aten.amin.default",
    "aten.amin.out",
    takes=_TAKES,
    source=_REDUCE_CUH,
    status=Status.RECORDED,
)
def amax(
    call: Call, self: Tensor, dim: Sequence[int] = (), keepdim: bool = False, **_: object
) -> Iterable[Step]:
    return _simple(call, self, dim, lambda read: read.itemsize)


@rule(
    "aten.max.default",
    "aten.max.unary_out",
    "aten.min.default",
    "aten.min.unary_out",
    takes=f"a contiguous copy of an input that is not; {_TAKES}",
    source="aten/src/ATen/native/ReduceAllOps.cpp and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def max_all(call: Call, self: Tensor, **_: object) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    yield from flat_reduction(call.context, self, self.element_size(), result)


def flat_reduction(
    context: KernelContext,
    input: Tensor,
    partial_bytes: int,
    result: Tensor | None = None,
    stride: int | None = None,
) -> Iterator[Step]:
    """Yield what reducing everything takes, of a contiguous copy where the input is not contiguous.

    Args:
        context: where it runs.
        input: what is reduced.
        partial_bytes: size of one partial result.
        result: the one number, if its size is another than the input's numbers have.
        stride: of the input as a row of numbers, if that is read as it is.
    """
    if input.numel() == 0:
        return
    offset = int(input.storage_offset())
    if stride is None and not input.is_contiguous():
        yield Take(input.numel() * input.element_size(), "contiguous copy")
        offset = 0
    layout = Layout(
        (input.numel(),),
        (stride or 1,),
        offset,
        input.element_size(),
        ((0,),),
        (input if result is None else result).element_size(),
        False,
        512,
    )
    yield from _kernel_steps(layout, partial_bytes, _gpu(context))


@rule(
    "aten.max.dim",
    "aten.max.dim_max",
    "aten.min.dim",
    "aten.min.dim_min",
    takes=f"{_TAKES}, of value and index together",
    source="aten/src/ATen/native/cuda/TensorCompare.cpp and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def max_dim(
    call: Call, self: Tensor, dim: int, keepdim: bool = False, **_: object
) -> Iterable[Step]:
    values, indices = call.outputs
    assert values is not None
    assert indices is not None
    yield OUTPUTS
    if self.dim() == 0 or self.shape[dim] == 1:
        return  # copied and filled
    partial_bytes = _value_and_index_bytes(self.element_size())
    yield from reduction_steps(
        call.context, self, [values, indices], dim, partial_bytes, self.dtype
    )


@rule(
    "aten.argmax.default",
    "aten.argmax.out",
    "aten.argmin.default",
    "aten.argmin.out",
    takes=f"a contiguous copy of an input that is no row, if no dimension is named; {_TAKES}",
    source="aten/src/ATen/native/ReduceOps.cpp and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def argmax(
    call: Call, self: Tensor, dim: int | None = None, keepdim: bool = False, **_: object
) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    partial_bytes = _value_and_index_bytes(_opmath_bytes(self.dtype))
    if dim is None:
        stride = flat_stride(self)
        yield from flat_reduction(call.context, self, partial_bytes, result, stride)
    elif self.dim() > 0 and self.shape[dim] != 1:
        yield from reduction_steps(call.context, self, [result], dim, partial_bytes, self.dtype)


@rule(
    "aten.any.default",
    "aten.any.out",
    "aten.any.all_out",
    "aten.any.dim",
    "aten.any.dims",
    "aten.any.dims_out",
    "aten.all.default",
    "aten.all.out",
    "aten.all.all_out",
    "aten.all.dim",
    "aten.all.dims",
    "aten.all.dims_out",
    takes=_TAKES,
    source="aten/src/ATen/native/cuda/ReduceLogicKernel.cu and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def any_all(
    call: Call,
    self: Tensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    **_: object,
) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    partial_bytes = self.element_size()
    yield from reduction_steps(call.context, self, [result], dim, partial_bytes, self.dtype)


@rule(
    "aten.var.correction",
    "aten.var.correction_out",
    "aten.std.correction",
    "aten.std.correction_out",
    "aten.var_mean.correction",
    "aten.std_mean.correction",
    takes=f"{_TAKES}, of 16 B for each partial result (32 B in float64)",
    source="aten/src/ATen/native/cuda/ReduceMomentKernel.cu and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def variance(
    call: Call,
    self: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    **_: object,
) -> Iterable[Step]:
    outputs = [output for output in call.outputs if output is not None]
    yield OUTPUTS
    partial_bytes = _welford_bytes(self.dtype)
    yield from reduction_steps(call.context, self, outputs, dim, partial_bytes, outputs[0].dtype)


def norm_steps(
    context: KernelContext, self: Tensor, result: Tensor, dim: Sequence[int] | None
) -> Iterator[Step]:
    """Yield what a vector norm takes once its result is there.

    Along dimensions of size 1 alone it is `abs`, which takes nothing.
    """
    reduced = _wrapped(dim, self.dim())
    if all(self.shape[d] == 1 for d in reduced):
        return
    halves = self.dtype in (torch.float16, torch.bfloat16)
    compute = self.dtype if self.is_complex() else result.dtype
    partial_bytes = 4 if halves else result.element_size()
    yield from reduction_steps(context, self, [result], dim, partial_bytes, compute)


@rule(
    "aten.linalg_vector_norm.default",
    "aten.linalg_vector_norm.out",
    takes=_TAKES,
    source="aten/src/ATen/native/cuda/ReduceNormKernel.cu and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def vector_norm(
    call: Call,
    self: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    **_: object,
) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    yield from norm_steps(call.context, self, result, dim)


@rule(
    "aten.count_nonzero.default",
    "aten.count_nonzero.dim_IntList",
    takes="a bool for each number unless they are bools; a copy of those as int64; " + _TAKES,
    source="aten/src/ATen/native/TensorAdvancedIndexing.cpp and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def count_nonzero(
    call: Call, self: Tensor, dim: Sequence[int] | None = None, **_: object
) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    numel, shape = self.numel(), tuple(self.shape)
    if self.dtype != torch.bool:
        yield Take(numel, "comparison with zero")
    yield OUTPUTS
    if numel == 0:
        return
    yield Take(8 * numel, "input cast to int64")
    reduced = _wrapped(dim, self.dim())
    layout = Layout(
        shape,
        _dense_strides(shape, self.stride()),
        0,
        8,
        (_output_strides(result, shape, reduced),),
        8,
        False,
        512,
    )
    yield from _kernel_steps(layout, 8, _gpu(call.context))


@rule(
    "aten.logsumexp.default",
    "aten.logsumexp.out",
    takes="the maxima, and the exponentials of the whole input; what amax and sum take",
    source="aten/src/ATen/native/ReduceOps.cpp and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def logsumexp(
    call: Call, self: Tensor, dim: Sequence[int], keepdim: bool = False, **_: object
) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    if not self.is_floating_point():
        yield Take(self.numel() * result.element_size(), "input as floating point")
    element_bytes = result.element_size()
    yield Take(result.numel() * element_bytes, "maxima")
    if result.dtype == self.dtype:
        yield from reduction_steps(call.context, self, [result], dim, element_bytes, self.dtype)
    yield Take(result.numel() * element_bytes, "magnitudes of the maxima")
    yield Take(result.numel(), "which maxima are infinite")
    yield Give("which maxima are infinite")
    yield Give("magnitudes of the maxima")
    yield Take(self.numel() * element_bytes, "exponentials")
    yield OUTPUTS
    if result.dtype == self.dtype:
        total = _opmath_bytes(self.dtype)
        exponentials = self if is_dense(self) else torch.empty_like(self)
        yield from reduction_steps(call.context, exponentials, [result], dim, total, self.dtype)
