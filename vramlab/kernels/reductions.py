"""Rules of reductions: the staging buffer and the semaphores of CUDA's one reduction kernel.

Their sizes: `vramlab.cuda_rules.reduce`. Source of what an op accumulates in: the files
Reduce*Kernel.cu in aten/src/ATen/native/cuda, the same in PyTorch 2.11 to 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from vramlab.cuda_rules.reduce import (
    GpuThreads,
    ReductionLayout,
    column_layout,
    reduction_buffers,
    total_layout,
)
from vramlab.cuda_rules.rounding import round_up
from vramlab.kernels.rule_table.calls import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I32,
    I64,
    OpCall,
    asks,
    aten,
    op_call,
    zeros,
)
from vramlab.kernels.rule_table.operands import flat_stride, is_dense, opmath_bytes
from vramlab.kernels.rule_table.registry import (
    OUTPUTS,
    Call,
    Give,
    KernelContext,
    Status,
    Step,
    Take,
    rule,
)

_REDUCE_CUH = "aten/src/ATen/native/cuda/Reduce.cuh, PyTorch 2.13"
_HALVES = (torch.float16, torch.bfloat16)

STAGING, SEMAPHORES, ACCUMULATION = "staging buffer", "semaphores", "accumulation buffer"


@lru_cache(maxsize=4096)
def _kernel_steps(layout: ReductionLayout, partial_bytes: int, gpu: GpuThreads) -> tuple[Step, ...]:
    """Return what gpu_reduce_kernel takes: one launch, or one for each 32-bit piece."""
    taken = reduction_buffers(layout, partial_bytes, gpu)
    steps: list[Step] = []
    if taken.accumulation_bytes:
        steps.append(Take(taken.accumulation_bytes, ACCUMULATION))
    for launch in taken.launches:
        steps += [
            Take(launch.staging_bytes, STAGING),
            Take(launch.semaphores_bytes, SEMAPHORES),
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
    compute: torch.dtype,
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
    halves = read in _HALVES
    if read != compute and not (halves and compute == torch.float32):
        element_bytes = compute.itemsize
        yield Take(input.numel() * element_bytes, f"input cast to {str(compute)[6:]}")
        strides, offset, read = _dense_strides(shape, strides), 0, compute
    rank = len(shape)
    reduced = _wrapped(dims, rank)
    result = outputs[0]
    layout = ReductionLayout(
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
    context: KernelContext, rows: int, columns: int, read: torch.dtype
) -> tuple[Step, ...]:
    """Return what `matrix.sum(0)` takes for a contiguous matrix, once its result is there."""
    layout = column_layout(rows, columns, read.itemsize, read in _HALVES)
    return _kernel_steps(layout, opmath_bytes(read), _gpu(context))


def whole_sum(context: KernelContext, numel: int, read: torch.dtype) -> tuple[Step, ...]:
    """Return what the sum or mean of a contiguous tensor takes, once its result is there."""
    if not numel:
        return ()
    layout = total_layout(numel, read.itemsize, read in _HALVES)
    return _kernel_steps(layout, opmath_bytes(read), _gpu(context))


def _gpu(context: KernelContext) -> GpuThreads:
    return GpuThreads(context.model.multiprocessors, context.model.max_threads_per_multiprocessor)


def _wrapped(dims: Sequence[int] | int | None, rank: int) -> frozenset[int]:
    """Return the reduced dimensions, counted from 0."""
    if dims is None or dims == [] or dims == ():
        return frozenset(range(rank))
    listed = (dims,) if isinstance(dims, int) else dims
    return frozenset(dim % rank for dim in listed) if rank else frozenset()


def _output_strides(
    output: Tensor, shape: Sequence[int], reduced: frozenset[int]
) -> tuple[int, ...]:
    """Return an output's strides in bytes along the input's dimensions, 0 where it is reduced."""
    strides = iter([stride * output.element_size() for stride in output.stride()])
    if output.dim() == len(shape):  # the reduced dimensions were kept, with size 1
        sizes = zip(shape, output.shape, strides, strict=True)
        return tuple(0 if kept == 1 and size != 1 else stride for size, kept, stride in sizes)
    return tuple(0 if dim in reduced else next(strides) for dim in range(len(shape)))


def _dense_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a copy in preserve_format: the same order, without holes."""
    order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))
    dense = [0] * len(shape)
    stride = 1
    for dim in reversed(order):
        dense[dim] = stride
        stride *= shape[dim]
    return tuple(dense)


# What each op accumulates in.


def _value_and_index_bytes(value_bytes: int) -> int:
    """Return the size of a pair of a value and an int64, aligned to 8 B."""
    return round_up(value_bytes, 8) + 8


def _welford_bytes(read: torch.dtype) -> int:
    """mean, sum of squares, an int32 count, and the count as a number, aligned."""
    return 32 if read == torch.float64 else 16


def _simple(
    call: Call,
    input: Tensor,
    dims: Sequence[int] | int | None,
    partial_bytes: Callable[[torch.dtype], int],
) -> Iterator[Step]:
    """Take the outputs, then run a reduction in the result's dtype."""
    yield OUTPUTS
    (result,) = call.outputs
    if result is None:
        return
    halves = input.dtype in _HALVES and result.dtype == torch.float32
    read = input.dtype if halves else result.dtype
    yield from reduction_steps(
        call.context, input, [result], dims, partial_bytes(read), result.dtype
    )


_PARTIAL_BOOLS_SINCE = (2, 13)
"""The version in which partial results of `any` and `all` are seen to be bools, whatever they read;
2.11 has them in the input's dtype. (2.12 was not looked at.)"""

_TAKES = "staging buffer and semaphores when blocks share outputs"


@rule(
    "aten.sum.default",
    "aten.sum.out",
    takes=f"{_TAKES}; a copy of an integer or bool input as int64",
    source=_REDUCE_CUH,
)
def sum_all(call: Call, self: Tensor, **_: object) -> Iterable[Step]:
    """Share the sum among blocks: two small ones for document 003's (10240, 1024) in float16."""
    return _simple(call, self, None, opmath_bytes)


@rule(
    "aten.sum.dim_IntList",
    "aten.sum.IntList_out",
    "aten.mean.dim",
    "aten.mean.out",
    takes=f"{_TAKES}; a copy of the input in the result's dtype unless that is the input's, or "
    "float32 from float16 or bfloat16",
    source=_REDUCE_CUH,
)
def sum_dims(
    call: Call, self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, **_: object
) -> Iterable[Step]:
    return _simple(call, self, dim, opmath_bytes)


@rule(
    "aten.mean.default",
    "aten.mean.dtype_out",
    takes=_TAKES,
    source=_REDUCE_CUH,
)
def mean_all(call: Call, self: Tensor, **_: object) -> Iterable[Step]:
    return _simple(call, self, None, opmath_bytes)


@rule(
    "aten.nansum.default",
    "aten.nansum.out",
    takes=_TAKES,
    source=_REDUCE_CUH,
)
def nansum(
    call: Call,
    self: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    **_: object,
) -> Iterable[Step]:
    return _simple(call, self, dim, opmath_bytes)


@rule(
    "aten.prod.default",
    "aten.prod.out",
    takes=f"{_TAKES}; a copy of an integer or bool input as int64",
    source=_REDUCE_CUH,
)
def prod_all(call: Call, self: Tensor, **_: object) -> Iterable[Step]:
    return _simple(call, self, None, opmath_bytes)


@rule(
    "aten.prod.dim_int",
    "aten.prod.int_out",
    takes=f"{_TAKES}; a copy of an integer or bool input as int64",
    source=_REDUCE_CUH,
)
def prod_dim(
    call: Call, self: Tensor, dim: int, keepdim: bool = False, **_: object
) -> Iterable[Step]:
    return _simple(call, self, dim, opmath_bytes)


@rule(
    "aten.amax.default",
    "aten.amax.out",
    "aten.amin.default",
    "aten.amin.out",
    takes=_TAKES,
    source=_REDUCE_CUH,
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
    layout = ReductionLayout(
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
    "aten.aminmax.default",
    takes=f"{_TAKES}, of both together",
    source="aten/src/ATen/native/cuda/ReduceAMinMaxKernel.cu and Reduce.cuh, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def aminmax(
    call: Call, self: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> Iterable[Step]:
    outputs = [output for output in call.outputs if output is not None]
    yield OUTPUTS
    partial_bytes = 2 * self.element_size()
    yield from reduction_steps(call.context, self, outputs, dim, partial_bytes, self.dtype)


@rule(
    "aten.renorm.default",
    "aten.renorm_.default",
    takes="the norm of each part, and its factor where that is of another dtype",
    source="aten/src/ATen/native/Normalization.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def renorm(call: Call, self: Tensor, p: float, dim: int, maxnorm: float) -> Iterable[Step]:
    yield OUTPUTS
    kept = dim % self.dim()
    dtype = torch.float32 if self.dtype in _HALVES else self.dtype
    norm = self.new_empty([n if at == kept else 1 for at, n in enumerate(self.shape)], dtype=dtype)
    yield Take(norm.numel() * dtype.itemsize, "norms")
    yield from norm_steps(call.context, self, norm, [at for at in range(self.dim()) if at != kept])
    if dtype != self.dtype:
        yield Take(norm.numel() * self.element_size(), "factors")


@rule(
    "aten.max.dim",
    "aten.max.dim_max",
    "aten.min.dim",
    "aten.min.dim_min",
    takes=f"{_TAKES}, of value and index together",
    source="aten/src/ATen/native/cuda/TensorCompare.cpp and Reduce.cuh, PyTorch 2.13",
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
)
def argmax(
    call: Call, self: Tensor, dim: int | None = None, keepdim: bool = False, **_: object
) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    partial_bytes = _value_and_index_bytes(opmath_bytes(self.dtype))
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
    if self.numel() == 1:  # copied
        yield Take(0 if self.dtype == torch.bool else 1, "input as bool")
        return
    is_bool = call.context.torch_version >= _PARTIAL_BOOLS_SINCE
    partial_bytes = 1 if is_bool else self.element_size()
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
    yield from variance_steps(call.context, self, outputs, dim)


def variance_steps(
    context: KernelContext, self: Tensor, outputs: Sequence[Tensor], dim: Sequence[int] | None
) -> Iterator[Step]:
    """Yield what a variance takes, and a mean beside it, once its results are there."""
    partial_bytes = _welford_bytes(self.dtype)
    yield from reduction_steps(context, self, outputs, dim, partial_bytes, outputs[0].dtype)


def norm_steps(
    context: KernelContext, self: Tensor, result: Tensor, dim: Sequence[int] | None
) -> Iterator[Step]:
    """Yield what a vector norm takes once its result is there.

    Along dimensions of size 1 alone it is `abs`, which takes nothing.
    """
    reduced = _wrapped(dim, self.dim())
    if all(self.shape[d] == 1 for d in reduced):
        return
    halves = self.dtype in _HALVES
    compute = self.dtype if self.is_complex() else result.dtype
    partial_bytes = 4 if halves else result.element_size()
    yield from reduction_steps(context, self, [result], dim, partial_bytes, compute)


@rule(
    "aten.linalg_vector_norm.default",
    "aten.linalg_vector_norm.out",
    takes=_TAKES,
    source="aten/src/ATen/native/cuda/ReduceNormKernel.cu and Reduce.cuh, PyTorch 2.13",
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
    layout = ReductionLayout(
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
        total = opmath_bytes(self.dtype)
        exponentials = self if is_dense(self) else torch.empty_like(self)
        yield from reduction_steps(call.context, exponentials, [result], dim, total, self.dtype)


# Calls that ask a real GPU.

_REDUCED = (
    (1000,),
    (65536,),
    (1 << 24,),
    (10240, 1024),
    (1024, 10240),
    (33, 1 << 20),
    (1 << 20, 33),
    (4096, 30522),
    (5, 7, 11, 4096),
)


def _whole(op: Any, dtypes: tuple[torch.dtype, ...]) -> Iterator[OpCall]:
    for dtype in dtypes:
        for shape in _REDUCED:
            yield op_call(op, zeros(*shape, dtype=dtype))
        yield op_call(op, zeros(10240, 1024, dtype=dtype, layout="transposed"))
        yield op_call(op, zeros(10240, 1024, dtype=dtype, layout="apart"))


def _along(
    op: Any, dtypes: tuple[torch.dtype, ...], *rest: Any, listed: bool = True
) -> Iterator[OpCall]:
    for dtype in dtypes:
        for shape in _REDUCED:
            for dim in range(len(shape)):
                yield op_call(op, zeros(*shape, dtype=dtype), [dim] if listed else dim, *rest)
        if listed:
            yield op_call(op, zeros(5, 7, 11, 4096, dtype=dtype), [0, 2], *rest)
        rows_apart = zeros(10240, 1024, dtype=dtype, layout="apart")
        yield op_call(op, rows_apart, [0] if listed else 0, *rest)


@asks("aten.sum.default")
def _sum_calls() -> Iterator[OpCall]:
    yield from _whole(aten.sum.default, (F32, F16, BF16, I64, I32, BOOL))


@asks("aten.sum.dim_IntList")
def _sum_dim_calls() -> Iterator[OpCall]:
    yield from _along(aten.sum.dim_IntList, (F32, F16, BF16, I64, BOOL))
    yield from _along(aten.mean.dim, (F32, BF16))


@asks("aten.mean.default")
def _mean_calls() -> Iterator[OpCall]:
    yield from _whole(aten.mean.default, (F32, BF16))


@asks("aten.nansum.default")
def _nansum_calls() -> Iterator[OpCall]:
    yield from _whole(aten.nansum.default, (F32, BF16))


@asks("aten.prod.default")
def _prod_calls() -> Iterator[OpCall]:
    yield from _whole(aten.prod.default, (F32, I32))


@asks("aten.prod.dim_int")
def _prod_dim_calls() -> Iterator[OpCall]:
    yield from _along(aten.prod.dim_int, (F32, I32), listed=False)


@asks("aten.amax.default")
def _amax_calls() -> Iterator[OpCall]:
    yield from _along(aten.amax.default, (F32, BF16, I64))


@asks("aten.max.default")
def _max_calls() -> Iterator[OpCall]:
    yield from _whole(aten.max.default, (F32, BF16, I64))


@asks("aten.max.dim")
def _max_dim_calls() -> Iterator[OpCall]:
    yield from _along(aten.max.dim, (F32, BF16), listed=False)


@asks("aten.argmax.default")
def _argmax_calls() -> Iterator[OpCall]:
    yield from _whole(aten.argmax.default, (F32, BF16))
    yield from _along(aten.argmax.default, (F32, BF16), listed=False)


@asks("aten.any.default")
def _any_calls() -> Iterator[OpCall]:
    yield from _whole(aten.any.default, (BOOL, F32))
    yield from _along(aten.all.dim, (BOOL, F32), listed=False)


@asks("aten.var.correction")
def _var_calls() -> Iterator[OpCall]:
    yield from _along(aten.var.correction, (F32, BF16, F64))
    yield from _along(aten.var_mean.correction, (F32,))


@asks("aten.linalg_vector_norm.default")
def _vector_norm_calls() -> Iterator[OpCall]:
    yield from _whole(aten.linalg_vector_norm.default, (F32, BF16))
    for shape in _REDUCED:
        yield op_call(aten.linalg_vector_norm.default, zeros(*shape), 2.0, [0])


@asks("aten.count_nonzero.default")
def _count_nonzero_calls() -> Iterator[OpCall]:
    yield from _whole(aten.count_nonzero.default, (F32, BOOL))


@asks("aten.logsumexp.default")
def _logsumexp_calls() -> Iterator[OpCall]:
    yield from _along(aten.logsumexp.default, (F32, BF16))
