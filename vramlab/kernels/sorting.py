"""Rules of sorting and of running sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.cuda_rules.cub import (
    DIFFERENCE_BYTES,
    int64_scan_bytes,
    int_scan_bytes,
    merge_sort_bytes,
    radix_sort_bytes,
    run_lengths_bytes,
    scan_by_key_bytes,
    scan_bytes,
    segmented_sort_bytes,
    sum_bytes,
    thrust_unique_by_key_bytes,
    thrust_unique_bytes,
    unique_bytes,
)
from vramlab.cuda_rules.gpu_facts import CudaGpuFacts
from vramlab.cuda_rules.rounding import ceil_div
from vramlab.kernels.reductions import flat_reduction
from vramlab.kernels.rule_table.calls import (
    BF16,
    BOOL,
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
from vramlab.kernels.rule_table.operands import contiguous, is_dense, nbytes
from vramlab.kernels.rule_table.registry import (
    OUTPUTS,
    Call,
    Give,
    Output,
    Status,
    Step,
    Take,
    freed_after,
    rule,
)

_SMALL_SORT = 4096  # numbers along the dimension
_STORAGE = "storage of the sort"


@rule(
    "aten.sort.default",
    "aten.sort.stable",
    takes="up to 4096 numbers along the dimension: their indices once; beyond: indices of every "
    "number, and what CUB's sort takes",
    source="aten/src/ATen/native/cuda/Sort.cpp and SortStable.cu, PyTorch 2.13",
)
def sort(call: Call, self: Tensor, *arguments: object, **named: object) -> Iterable[Step]:
    """Sort in one kernel of PyTorch's if the dimension is short, else by CUB."""
    dim = named.get("dim", arguments[0] if arguments else -1)
    assert isinstance(dim, int)
    yield OUTPUTS
    if not self.numel():
        return
    length = self.shape[dim] if self.dim() else 1
    if length <= _SMALL_SORT:
        yield Take(8 * length, "indices along the dimension")
        return
    yield from _large_sort(call.context.model, self, dim % self.dim(), call.outputs)


def _large_sort(
    model: CudaGpuFacts, self: Tensor, dim: int, outputs: Sequence[Tensor | None]
) -> Iterator[Step]:
    """Yield what sorting by CUB takes, once values and indices are there."""
    strides = self.stride()
    if strides[dim] != 1 or not is_dense(self):
        yield Take(nbytes(self), "input with the dimension innermost")
        strides = _innermost(self, dim)
    for output, what in zip(outputs, ("values", "indices"), strict=True):
        if output is not None and output.stride() != strides:
            yield Take(nbytes(output), f"{what} with the dimension innermost")

    count, length, key_bytes = self.numel(), self.shape[dim], self.element_size()
    segments = count // length
    if segments == 1 or length >= 1_000_000:
        yield Take(8 * length, "indices in order")
        for _ in range(segments):
            yield from _radix_sort(length, key_bytes, 8, model)
    elif segments < 128:
        yield Take(8 * count, "index and segment of each number")
        yield Take(8 * count, "the same, sorted")
        yield Take(key_bytes * count, "sorted numbers")
        yield from _radix_sort(count, key_bytes, 8, model)
        yield Give("sorted numbers")
        segment_bits = (segments - 1).bit_length()
        yield Take(radix_sort_bytes(count, 8, 0, model, bits=max(1, segment_bits)), _STORAGE)
        yield Give(_STORAGE)
    else:
        yield Take(8 * count, "indices in order")
        yield Take(segmented_sort_bytes(count, key_bytes, 8), _STORAGE)
        yield Give(_STORAGE)


def _radix_sort(
    count: int, key_bytes: int, value_bytes: int, model: CudaGpuFacts
) -> Iterator[Step]:
    yield Take(radix_sort_bytes(count, key_bytes, value_bytes, model), _STORAGE)
    yield Give(_STORAGE)


def _innermost(tensor: Tensor, dim: int) -> tuple[int, ...]:
    """Dense strides with `dim` innermost and the other dimensions in their order."""
    strides = [0] * tensor.dim()
    step = 1
    others = [each for each in range(tensor.dim()) if each != dim]
    for each in (dim, *reversed(others)):
        strides[each] = step
        step *= tensor.shape[each]
    return tuple(strides)


@rule(
    "aten.topk.default",
    "aten.topk.values",
    takes="counts for each block where several read a row; what sorting over 4096 results takes",
    source="aten/src/ATen/native/cuda/TensorTopK.cu and TensorTopK.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def topk(
    call: Call,
    self: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    **_: object,
) -> Iterable[Step]:
    yield OUTPUTS
    if not self.dim() or not self.numel() or not k:
        return
    length = self.shape[dim]
    rows = self.numel() // length
    if _has_several_blocks(rows, length):
        yield from freed_after(
            _blocks_of_topk(call.context.model, rows, length, self.element_size())
        )
    values, indices = call.outputs
    assert values is not None
    assert indices is not None
    if sorted and k > _SMALL_SORT:
        yield Take(nbytes(indices), "places of the sorted results")
        yield Take(nbytes(values), "sorted results")
        copies = torch.empty_like(values), torch.empty_like(indices)
        yield from freed_after(_large_sort(call.context.model, values, dim % self.dim(), copies))
        yield Take(nbytes(indices), "indices in that order")


def _has_several_blocks(rows: int, length: int) -> bool:
    """Return whether several blocks share a row (`should_use_multiblock`)."""
    least = ((20, 20_000), (40, 10_000), (80, 8_000), (199, 5_000), (799, 3_000), (4_000, 800))
    return length >= next((shortest for most, shortest in least if rows <= most), 400)


def _blocks_of_topk(
    model: CudaGpuFacts, rows: int, length: int, element_bytes: int
) -> Iterator[Step]:
    """Yield what finding the k-th number of each row takes, digit by digit (mbtopk::launch)."""
    resident = model.multiprocessors * _TOPK_BLOCKS * _TOPK_THREADS
    items = min(max(ceil_div(rows * length, resident), 4), 64) * _TOPK_THREADS
    blocks = rows * ceil_div(length, items)
    yield Take(rows * element_bytes, "k-th numbers")
    yield Take(rows * 8, "semaphores")
    yield Take(rows * 8, "what is left of each k")
    yield Take(blocks * 256 * 2, "counts of digits by block")
    yield Take(rows * 256 * 4, "counts of digits by row")
    yield Take(blocks * 4, "larger numbers by block")
    yield Take(blocks * 4, "equal numbers by block")
    for what in ("larger", "equal"):
        yield Take(scan_by_key_bytes(blocks), f"storage of the scan of {what} numbers")
        yield Give(f"storage of the scan of {what} numbers")


_TOPK_THREADS = 256
_TOPK_BLOCKS = 6  # 65,536 registers of a multiprocessor, 40 for each thread


@rule(
    "aten.cumsum.default",
    "aten.cumsum.out",
    "aten.cumprod.default",
    "aten.cumprod.out",
    "aten._logcumsumexp.default",
    "aten.logcumsumexp.default",
    takes="a copy of an input that is not contiguous or not of the result's dtype; of a single "
    "row, what CUB's scan takes",
    source="aten/src/ATen/native/ReduceOps.cpp and cuda/ScanUtils.cuh, PyTorch 2.13",
)
def running_result(call: Call, self: Tensor, dim: int, **_: object) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    if not self.dim() or not self.numel():
        return
    if self.dtype != result.dtype:
        yield Take(self.numel() * result.element_size(), "input in the result's dtype")
    else:
        yield from contiguous(self, "the input")
    in_parts = torch.are_deterministic_algorithms_enabled() and self.is_floating_point()
    if self.numel() == self.shape[dim] and not in_parts:
        yield Take(scan_bytes(self.numel(), result.element_size()), "storage of the scan")


@rule(
    "aten.cumsum_.default",
    "aten.cumprod_.default",
    takes="the same; of a number of no dimensions, a copy",
    source="aten/src/ATen/native/ReduceOps.cpp and Fill.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def running_result_in_place(call: Call, self: Tensor, dim: int, **named: object) -> Iterable[Step]:
    if self.dim() == 0:
        yield Take(self.element_size(), "the number")
    yield from running_result(call, self, dim)


@rule(
    "aten.segment_reduce.default",
    takes="a contiguous copy of the input; running sums of the lengths, with a 0 before them, and "
    "what CUB's scan takes; lengths, if offsets are given; what CUB takes to reduce a row",
    source="aten/src/ATen/native/SegmentReduce.cpp and cuda/SegmentReduce.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def segment_reduce(
    call: Call,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    **_: object,
) -> Iterable[Step]:
    """Yield what reducing each segment takes.

    Known limitation: the checks of lengths where they are not `unsafe`.
    """
    yield from contiguous(data, "the input")
    yield OUTPUTS
    yield from _segments(lengths, offsets, axis)
    result = call.outputs[0]
    if result is not None and result.dim() == 1 and result.numel():
        yield Take(1, "storage of the reduction")


@rule(
    "aten._segment_reduce_backward.default",
    takes="contiguous copies of gradient, output and input; what the sum of the lengths takes, or "
    "lengths",
    source="aten/src/ATen/native/SegmentReduce.cpp and cuda/SegmentReduce.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def segment_reduce_backward(
    call: Call,
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    **_: object,
) -> Iterable[Step]:
    for what, each in (("the gradient", grad), ("the output", output), ("the input", data)):
        yield from contiguous(each, what)
    yield OUTPUTS
    yield from _segments(lengths, offsets, axis)


def _segments(lengths: Tensor | None, offsets: Tensor | None, axis: int) -> Iterator[Step]:
    """Yield the offsets of lengths, or the lengths of offsets, which are kept."""
    if lengths is None:
        assert offsets is not None
        rows = offsets.numel() // max(offsets.shape[axis], 1)
        yield Take((offsets.numel() - rows) * offsets.element_size(), "lengths")
        return
    yield from contiguous(lengths, "the lengths")
    rows, size_bytes = lengths.numel() // max(lengths.shape[axis], 1), lengths.element_size()
    count = lengths.numel() + rows
    yield Take(rows * size_bytes, "zeros")
    yield Take(count * size_bytes, "offsets")
    yield Give("zeros")
    if rows == 1:
        yield from _scratch(scan_bytes(count, size_bytes), "the scan")


@rule(
    "aten.searchsorted.Tensor",
    takes="contiguous copies of operands that are not, or in their common dtype; the smallest and "
    "the largest number of a sorter",
    source="aten/src/ATen/native/BucketizationUtils.h and cuda/Bucketization.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def searchsorted(
    call: Call,
    sorted_sequence: Tensor,
    self: Tensor,
    *,
    sorter: Tensor | None = None,
    **_: object,
) -> Iterable[Step]:
    if sorter is not None and sorter.numel():
        for what in ("smallest place", "largest place"):
            yield Take(8, what)
        yield from freed_after(flat_reduction(call.context, sorter, 16))
        for what in ("smallest place", "largest place"):
            yield Give(what)
    yield OUTPUTS
    if self.numel():
        yield from contiguous(self, "the numbers")
        yield from contiguous(sorted_sequence, "the sequence")
        yield from contiguous(sorter, "the sorter")
        yield from _in_common_dtype(self, sorted_sequence)


@rule(
    "aten.bucketize.Tensor",
    takes="contiguous copies of operands that are not, or in their common dtype",
    source="aten/src/ATen/native/BucketizationUtils.h and cuda/Bucketization.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def bucketize(call: Call, self: Tensor, boundaries: Tensor, **_: object) -> Iterable[Step]:
    return searchsorted(call, boundaries, self)


def _in_common_dtype(*tensors: Tensor) -> Iterator[Step]:
    common = torch.result_type(*tensors)
    for tensor in tensors:
        if tensor.dtype != common:
            yield Take(tensor.numel() * common.itemsize, "operand in the common dtype")


@rule(
    "aten.mode.default",
    takes="a copy of an input whose dimension is not innermost",
    source="aten/src/ATen/native/cuda/TensorModeKernel.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def mode(call: Call, self: Tensor, dim: int = -1, keepdim: bool = False) -> Iterable[Step]:
    yield OUTPUTS
    if self.numel() > 1:
        yield from contiguous(self.transpose(dim, -1), "the input, with the dimension innermost")


@rule(
    "aten.randperm.default",
    "aten.randperm.generator",
    takes="the numbers in order, random keys twice, and what sorting pairs takes",
    source="aten/src/ATen/native/cuda/Randperm.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def randperm(call: Call, n: int, *_: object, **__: object) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    if not n:
        return
    value_bytes = result.element_size()
    yield Take(value_bytes, "first number")
    yield Give("first number")
    yield Take(n * value_bytes, "numbers in order")
    bits = min(64, math.ceil(math.log2(n - (6 * n * n + 1) / (math.log(0.9) * 12))))
    key_bytes = 4 if bits <= 32 else 8
    yield Take(n * key_bytes, "random keys")
    yield Take(n * key_bytes, "sorted keys")
    yield Take(radix_sort_bytes(n, key_bytes, value_bytes, call.context.model, bits), _STORAGE)


@rule(
    "aten.repeat_interleave.Tensor",
    takes="running sums of the repeats, and what CUB's scan takes",
    source="aten/src/ATen/native/Repeat.cpp and ReduceOps.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def repeat_interleave(
    call: Call, repeats: Tensor, *, output_size: int | None = None
) -> Iterable[Step]:
    count = repeats.numel()
    if count:
        yield Take(8 * count, "running sums")
        if repeats.dtype != torch.int64:
            yield Take(8 * count, "repeats as int64")
        yield Take(scan_bytes(count, 8), "storage of the scan")
        yield Give("storage of the scan")
        yield Give("repeats as int64")
        if output_size is None:
            yield Take(count, "which repeats are not negative")
            yield Take(1, "whether all are")
            yield Give("whether all are")
            yield Give("which repeats are not negative")
    yield OUTPUTS


@rule(
    "aten._unique.default",
    "aten._unique2.default",
    takes="sorted numbers, with their places where the inverse is wanted; what CUB's sort, scan "
    "and selection take",
    source="aten/src/ATen/native/cuda/Unique.cu and UniqueCub.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def unique(
    call: Call,
    self: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Iterable[Step]:
    count, model = self.numel(), call.context.model
    if not count:
        yield OUTPUTS
        return
    if self.dtype == torch.bool:
        yield Take(4, "how many are true")
        yield Take(sum_bytes(count, 4, model), "storage of the sum")
        yield Give("storage of the sum")
        yield Output(0, 2)
        yield Output(2, 16) if return_counts else Take(16, "counts")
        yield OUTPUTS
        return
    item_bytes = self.element_size()
    yield from contiguous(self, "the input")
    yield Take(nbytes(self), "sorted numbers")
    if not return_inverse:
        yield from _radix_sort(count, item_bytes, 0, model)
    else:
        yield Take(8 * count, "places in order")
        yield Take(8 * count, "places of the sorted numbers")
        yield from _radix_sort(count, item_bytes, 8, model)
        yield Give("places in order")
        yield Take(8 * count, "numbers of the runs")
        yield Output(1)
        yield from _scan_of_runs(count)
        yield Give("numbers of the runs")
    yield from _first_of_runs(call, self, return_counts)


@rule(
    "aten.unique_consecutive.default",
    takes="what CUB's selection takes; the number of each run where the inverse is wanted",
    source="aten/src/ATen/native/cuda/Unique.cu and UniqueCub.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def unique_consecutive(
    call: Call,
    self: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Iterable[Step]:
    if dim is not None:
        yield from _unique_along(call, self, dim, return_inverse, return_counts, is_sorted=True)
        return
    if not self.numel():
        yield OUTPUTS
        return
    yield from contiguous(self, "the input")
    if return_inverse:
        yield Output(1)
        yield Take(4 * self.numel(), "numbers of the runs")
        yield from _scan_of_runs(self.numel())
        yield Give("numbers of the runs")
    yield from _first_of_runs(call, self, return_counts)


@rule(
    "aten.unique_dim.default",
    takes="a copy of the input with the dimension first; places of the rows, and what Thrust takes "
    "to sort them and to find where they differ",
    source="aten/src/ATen/native/cuda/Unique.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def unique_dim(
    call: Call,
    self: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Iterable[Step]:
    return _unique_along(call, self, dim, return_inverse, return_counts, is_sorted=False)


@rule(
    "aten.unique_dim_consecutive.default",
    takes="the same, without the sort",
    source="aten/src/ATen/native/cuda/Unique.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def unique_dim_consecutive(
    call: Call, self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Iterable[Step]:
    return _unique_along(call, self, dim, return_inverse, return_counts, is_sorted=True)


def _unique_along(
    call: Call,
    self: Tensor,
    dim: int,
    return_inverse: bool,
    return_counts: bool,
    *,
    is_sorted: bool,
) -> Iterator[Step]:
    """Yield what `unique_dim_cuda_template` takes."""
    if not self.numel():
        yield OUTPUTS
        return
    count, model = self.shape[dim], call.context.model
    yield from contiguous(self.transpose(dim, 0), "the input, with the dimension first")
    yield Take(8 * count, "places of the rows")
    if not is_sorted:
        yield from _scratch(merge_sort_bytes(count, 8, 0), "the sort")
    if return_inverse:
        yield Take(8 * count, "numbers of the runs")
        yield Output(1)
        yield from _scratch(DIFFERENCE_BYTES, "the differences")
        yield from _scratch(int64_scan_bytes(count, model), "the scan")
        yield Give("numbers of the runs")
    if return_counts:
        yield Take(8 * (count + 1), "numbers in order")
        yield from _scratch(thrust_unique_by_key_bytes(count, model), "the selection")
        yield Output(2)
        yield from _scratch(DIFFERENCE_BYTES, "the differences")
        yield Give("numbers in order")
    else:
        yield from _scratch(thrust_unique_bytes(count), "the selection")
    yield OUTPUTS


def _scratch(size_bytes: int, what: str) -> Iterator[Step]:
    yield Take(size_bytes, f"storage of {what}")
    yield Give(f"storage of {what}")


def _scan_of_runs(count: int) -> Iterator[Step]:
    yield Take(int_scan_bytes(count), "storage of the scan")
    yield Give("storage of the scan")


def _first_of_runs(call: Call, self: Tensor, return_counts: bool) -> Iterator[Step]:
    """Yield the results, as large as they can be, and what CUB takes to find them."""
    count = self.numel()
    yield Output(0, nbytes(self))
    yield Take(8, "how many there are")
    if return_counts:
        yield Output(2, 8 * count)
        yield Take(run_lengths_bytes(count), "storage of the selection")
    else:
        storage = unique_bytes(count, self.element_size(), call.context.model)
        yield Take(storage, "storage of the selection")


@rule(
    "aten.nonzero_static.default",
    takes="counts for each 8,192 elements",
    source="aten/src/ATen/native/cuda/Nonzero.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def nonzero_static(call: Call, self: Tensor, *, size: int, fill_value: int = -1) -> Iterable[Step]:
    yield OUTPUTS
    if self.numel() and size and self.dim():
        blocks = ceil_div(self.numel(), 512 * 16)
        yield Take(4 * blocks, "counts of blocks")
        yield Take(8 * blocks, "places of blocks")


@rule(
    "aten.bincount.default",
    takes="weights of other types as float64; the smallest and the largest number",
    source="aten/src/ATen/native/cuda/SummaryOps.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def bincount(
    call: Call, self: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> Iterable[Step]:
    if weights is not None and weights.dtype not in (torch.float32, torch.float64):
        yield Take(8 * weights.numel(), "weights as float64")
    if self.numel():
        for what in ("smallest number", "largest number"):
            yield Take(self.element_size(), what)
            yield from freed_after(flat_reduction(call.context, self, self.element_size()))
    yield OUTPUTS


@rule(
    "aten.bernoulli.default",
    "aten.bernoulli_.Tensor",
    takes="probabilities of 16 bits as float32",
    source="aten/src/ATen/native/cuda/DistributionTemplates.h, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def bernoulli(call: Call, self: Tensor, *rest: object, **_: object) -> Iterable[Step]:
    yield OUTPUTS
    given = rest[0] if rest and isinstance(rest[0], Tensor) else self
    if given.dtype in (torch.float16, torch.bfloat16):
        yield Take(4 * given.numel(), "probabilities as float32")


# Calls that ask a real GPU.


@asks("aten.sort.default")
def _sort_calls() -> Iterator[OpCall]:
    shapes = (
        (1000,),
        (4096,),
        (4097,),
        (1 << 20,),
        (8, 5000),
        (200, 5000),
        (1000, 64),
        (2, 1 << 20),
    )
    for dtype in (F32, I64, F64, I32):
        for shape in shapes:
            yield op_call(aten.sort.default, zeros(*shape, dtype=dtype))
        yield op_call(aten.sort.default, zeros(5000, 8, dtype=dtype), 0)


@asks("aten.cumsum.default")
def _cumsum_calls() -> Iterator[OpCall]:
    for dtype in (I64, F32, I32, BF16):
        for shape in (
            (8,),
            (512,),
            (1024,),
            (4096,),
            (5000,),
            (30000,),
            (1 << 20,),
            (8, 512),
            (1, 512),
        ):
            yield op_call(aten.cumsum.default, zeros(*shape, dtype=dtype), -1)
        yield op_call(aten.cumsum.default, zeros(512, 8, dtype=dtype), 0)
    yield op_call(aten.cumsum.default, zeros(8, 512, dtype=BOOL), -1)
