"""Rules of advanced indexing: reading by index, and adding into places that may repeat.

Indices are int64 or int32: those of a mask depend on values, which meta tensors have not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vramlab.cuda_rules.cub import key_bits, radix_sort_bytes, scan_bytes, select_bytes, sum_bytes
from vramlab.kernels.reductions import flat_reduction
from vramlab.kernels.rule_table.calls import I32, Ids, OpCall, asks, aten, zeros
from vramlab.kernels.rule_table.operands import contiguous
from vramlab.kernels.rule_table.registry import (
    OUTPUTS,
    Call,
    Give,
    KernelContext,
    Status,
    Step,
    Take,
    freed_after,
    rule,
)

Indices = Sequence[Tensor | None]


def _shape(indices: Iterable[Tensor]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*(index.shape for index in indices)))


def _broadcast_strides(index: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of `index.expand(shape)`."""
    missing = len(shape) - index.dim()
    own = zip(index.shape, index.stride(), shape[missing:], strict=True)
    return (0,) * missing + tuple(0 if size != wide else step for size, step, wide in own)


def _as_int64(indices: Iterable[Tensor]) -> Iterator[Step]:
    for index in indices:
        if index.dtype == torch.int32 and index.device.type != "cpu":
            yield Take(8 * index.numel(), "index as int64")


def _one_layout(indices: Sequence[Tensor]) -> Iterator[Step]:
    """Yield copies of several indices that broadcast in different ways (AdvancedIndex)."""
    shape = _shape(indices)
    layouts = [_broadcast_strides(index, shape) for index in indices]
    if len(set(layouts)) > 1:
        for index, layout in zip(indices, layouts, strict=True):
            if index.shape != shape or not index.is_contiguous():
                yield Take(8 * math.prod(shape), f"index laid out as the others, from {layout}")


@rule(
    "aten.index.Tensor",
    "aten._unsafe_index.Tensor",
    takes="copies of indices that are int32, or that broadcast in different ways",
    source="aten/src/ATen/native/TensorAdvancedIndexing.cpp, PyTorch 2.13",
)
def index(call: Call, self: Tensor, indices: Indices) -> Iterable[Step]:
    defined = [each for each in indices if each is not None]
    yield from _as_int64(defined)
    yield from _one_layout(defined)
    yield OUTPUTS


@rule(
    "aten.index_put.default",
    "aten._unsafe_index_put.default",
    "aten.index_put_.default",
    "aten._index_put_impl_.default",
    takes="adding: the linear index of each row, sorted, with its places before; the sort's "
    "storage; a copy of values that are expanded or not contiguous. Else as index",
    source="aten/src/ATen/native/cuda/Indexing.cu and TensorAdvancedIndexing.cpp, PyTorch 2.13",
)
def index_put(
    call: Call,
    self: Tensor,
    indices: Indices,
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Iterable[Step]:
    """Write values to their places, sorted by place where they are added."""
    yield OUTPUTS
    defined = [each for each in indices if each is not None]
    if not accumulate and not torch.are_deterministic_algorithms_enabled():
        yield from _as_int64(defined)
        yield from _one_layout(defined)
        return
    yield from contiguous(self, "the tensor")
    yield from _as_int64(defined)
    shape = _shape(defined)
    count = math.prod(shape)
    for nth, each in enumerate(defined):
        wide = each.expand(shape)
        yield from _linear_index(call.context, wide, count, check_range=not unsafe)
        if nth > 0:
            yield Give("linear index")  # added to the first
    indexed = [dim for dim, index in enumerate(indices) if index is not None]
    is_moved = indexed != list(range(indexed[0], indexed[-1] + 1))
    first = 0 if is_moved else indexed[0]
    sliced = [size for dim, size in enumerate(self.shape) if dim not in indexed]
    after = math.prod(sliced[first:])
    if values.numel() < count * math.prod(sliced):
        yield Take(count * math.prod(sliced) * values.element_size(), "expanded values")
    else:
        yield from contiguous(values, "the values")
    if not count or not after:
        return
    if is_moved:
        yield Take(self.numel() * self.element_size(), "the tensor, indexed dimensions first")
    yield Take(8 * count, "sorted index")
    yield Take(8 * count, "places before")
    yield Take(8 * count, "places in order")
    bits = key_bits((self.numel() - 1) // after)
    yield Take(radix_sort_bytes(count, 8, 8, call.context.model, bits), "storage of the sort")
    yield Give("storage of the sort")
    yield Give("places in order")


def _linear_index(
    context: KernelContext, index: Tensor, count: int, *, check_range: bool
) -> Iterator[Step]:
    """Yield the steps from one index to its part of the linear one (computeLinearIndex).

    That of an index on the host is computed there, and copied.
    """
    if index.device.type == "cpu":
        yield Take(8 * count, "linear index")
        return
    if check_range and count:
        if context.torch_version >= _RANGE_AT_ONCE:
            yield Take(8, "smallest index")
            yield Take(8, "largest index")
            yield from freed_after(flat_reduction(context, index, 16))
            for what in ("largest index", "smallest index"):
                yield Take(1, f"{what} in range")
                yield Give(f"{what} in range")
            yield Give("largest index")
            yield Give("smallest index")
        else:
            for what in ("largest index", "smallest index"):
                yield Take(8, what)
                yield from freed_after(flat_reduction(context, index, 8))
                yield Give(what)
    yield Take(8 * count, "wrapped index")
    yield Take(8 * count, "linear index")
    yield Give("wrapped index")


_RANGE_AT_ONCE = (2, 13)
"""The version in which both ends of the range are seen to be found by one reduction, and compared
on the GPU; 2.11 reads one after the other. (2.12 was not looked at.)"""


@rule(
    "aten.nonzero.default",
    takes="a contiguous copy of an input that is not; the count, and what CUB's sum takes for it; "
    "what CUB takes to select",
    source="aten/src/ATen/native/cuda/Nonzero.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def nonzero(call: Call, self: Tensor) -> Iterable[Step]:
    """Count the elements that are not zero, and select their places.

    Known limitation: inputs of 2^31 elements and more go in parts, which is not modelled.
    """
    model, count = call.context.model, self.numel()
    yield from contiguous(self, "the input")
    yield Take(4, "count")
    yield Take(sum_bytes(count, 4, model), "storage of the sum")
    yield Give("storage of the sum")
    yield OUTPUTS
    if self.dim():
        yield Take(select_bytes(count, model), "storage of the selection")


@rule(
    "aten.masked_scatter_.default",
    "aten.masked_scatter.default",
    takes="places of the mask's elements, as int64, and what CUB's scan takes for them; contiguous "
    "copies of the mask and of the source",
    source="aten/src/ATen/native/cuda/IndexKernel.cpp and IndexKernel.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def masked_scatter(call: Call, self: Tensor, mask: Tensor, source: Tensor) -> Iterable[Step]:
    """Count the elements that the mask chooses, and write the source's to them in order."""
    yield OUTPUTS
    wide = mask.expand(torch.broadcast_shapes(self.shape, mask.shape))
    count = wide.numel()
    if not count:
        return
    yield Take(8 * count, "places")
    yield from contiguous(wide, "the mask")
    yield Take(scan_bytes(count, 8), "storage of the scan")
    yield Give("storage of the scan")
    yield from contiguous(source, "the source")


# Calls that ask a real GPU.


@asks("aten.index.Tensor")
def _index_calls() -> Iterator[OpCall]:
    def index(self: Tensor, *ids: Tensor) -> Any:
        return aten.index.Tensor(self, list(ids))

    for ids in (Ids((64,), 100), Ids((4096,), 100), zeros(64, dtype=I32)):
        yield OpCall(f"index by {ids}", index, (zeros(1000, 512), ids))
    pair = Ids((64, 1), 100), Ids((1, 64), 100)
    yield OpCall("index by a column and a row", index, (zeros(1000, 512), *pair))


@asks("aten.index_put.default")
def _index_put_calls() -> Iterator[OpCall]:
    def put(self: Tensor, ids: Tensor, values: Tensor, accumulate: bool) -> Any:
        return aten.index_put_.default(self, [ids], values, accumulate)

    for count in (64, 4096, 100_000):
        for accumulate in (False, True):
            values = zeros(count, 64)
            text = f"index_put_ of {count} rows{', adding' if accumulate else ''}"
            yield OpCall(text, put, (zeros(1000, 64), Ids((count,), 1000), values, accumulate))
            expanded = zeros(count, 64, layout="expanded")
            operands = (zeros(1000, 64), Ids((count,), 1000), expanded, accumulate)
            yield OpCall(f"{text}, one row", put, operands)
