"""Rules of sorting and of running sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.cuda_rules.cub import radix_sort_bytes, scan_bytes, segmented_sort_bytes
from vramlab.cuda_rules.gpu_facts import CudaGpuFacts
from vramlab.kernels.calls import BF16, BOOL, F32, F64, I32, I64, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.operands import contiguous, is_dense, nbytes
from vramlab.kernels.registry import OUTPUTS, Call, Give, Step, Take, rule

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
    """Sort in one kernel of PyTorch's if the dimension is short, else by CUB.

    Known limitation: the storage of CUB's sort of 16-bit and 8-bit keys is not counted.
    """
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
    if key_bytes in (4, 8):
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
    "aten.cumsum.default",
    "aten.cumsum.out",
    takes="a copy of an input that is not contiguous or not of the result's dtype; of a single "
    "row, what CUB's scan takes",
    source="aten/src/ATen/native/ReduceOps.cpp and cuda/ScanUtils.cuh, PyTorch 2.13",
)
def cumsum(call: Call, self: Tensor, dim: int, **_: object) -> Iterable[Step]:
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
