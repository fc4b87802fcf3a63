"""Operands of a call: their bytes, and the copies that make them contiguous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from vramlab.kernels.rule_table.registry import Step, Take


def nbytes(tensor: Tensor) -> int:
    """Multiply out the bytes of a tensor's numbers, without holes between them."""
    return tensor.numel() * tensor.element_size()


def opmath_bytes(dtype: torch.dtype) -> int:
    """Size the number that kernels accumulate in (`at::opmath_type`).

    float32 for float16 and bfloat16, complex64 for complex32, else the dtype itself.
    """
    wider = {torch.float16: 4, torch.bfloat16: 4, torch.complex32: 8}
    return wider.get(dtype, dtype.itemsize)


def contiguous(tensor: Tensor | None, what: str) -> Iterator[Step]:
    """Yield the copy that `Tensor.contiguous()` makes, if it makes one."""
    if tensor is not None and not tensor.is_contiguous():
        yield Take(nbytes(tensor), f"contiguous copy of {what}")


def in_format(tensor: Tensor | None, wanted: torch.memory_format, what: str) -> Iterator[Step]:
    """Yield the copy that `Tensor.contiguous(memory_format=wanted)` makes, if it makes one."""
    if tensor is not None and not tensor.is_contiguous(memory_format=wanted):
        yield Take(nbytes(tensor), f"contiguous copy of {what}")


def suggested_format(tensor: Tensor) -> torch.memory_format:
    """Return the format that strides suggest, as `Tensor::suggest_memory_format` does."""
    if tensor.dim() in (4, 5) and has_strides_of_channels_last(tensor.shape, tensor.stride()):
        return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return torch.contiguous_format


def has_strides_of_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides are those of channels last, and of nothing else.

    Source: is_channels_last_strides_2d_s4 and _3d_s5 in c10/core/MemoryFormat.h, PyTorch 2.13.
    """
    least = 0
    if strides[1] == 0:
        return False
    for dim in (1, *reversed(range(2, len(sizes))), 0):
        if sizes[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(sizes[dim], 1)
    return True


def flat_stride(tensor: Tensor) -> int | None:
    """Find the stride of `tensor.view(-1)`; None if that needs a copy first."""
    dims = [each for each in zip(tensor.shape, tensor.stride(), strict=True) if each[0] != 1]
    for (_, outer), (size, inner) in pairwise(dims):
        if outer != inner * size:
            return None
    return dims[-1][1] if dims else 1


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor's numbers fill their memory, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
