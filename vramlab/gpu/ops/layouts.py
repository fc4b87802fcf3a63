"""Lay results out in memory as CUDA's kernels do, where meta kernels do otherwise.

Strides decide which copies later ops make, and so how much memory they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vramlab.cudnn.problems import strides_of
from vramlab.gpu.core.op_table import layout
from vramlab.kernels.convolution import Backend, backend, gradient_formats, memory_format
from vramlab.kernels.normalization import has_one_kernel_backward
from vramlab.kernels.rule_table.operands import suggested_format


@layout("aten.convolution.default")
def convolution(args: Sequence[Any], output: torch.Tensor) -> torch.Tensor:
    """Lay the output out as the library does that CUDA runs; meta's is always contiguous."""
    return _in_format(output, _format_of(*args))


def _format_of(
    input: torch.Tensor,
    weight: torch.Tensor,
    _: object,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *__: object,
) -> torch.memory_format:
    """Find the memory format of a convolution's output: products of matrices are contiguous.

    Known limitation: before Ampere these compute bfloat16 too, which is not looked at here.
    """
    by = backend(input, weight, stride, dilation, transposed, output_padding, groups, (8, 0))
    return torch.contiguous_format if by is Backend.SLOW else memory_format(input, weight)


@layout("aten.convolution_backward.default")
def convolution_backward(
    args: Sequence[Any], gradients: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Lay the gradients out as cuDNN writes them; PyTorch's own kernels write contiguous ones."""
    of_input, of_weight, of_bias = gradients
    formats = (torch.contiguous_format, torch.contiguous_format)
    _, input, weight, _, stride, _, dilation, transposed, output_padding, groups = args[:10]
    how = (stride, dilation, transposed, output_padding, groups)
    if backend(input, weight, *how, (8, 0)) is Backend.CUDNN:
        formats = gradient_formats(*args[:3])
    return (
        None if of_input is None else _in_format(of_input, formats[0]),
        None if of_weight is None else _in_format(of_weight, formats[1]),
        of_bias,
    )


@layout("aten.native_batch_norm_backward.default")
def batch_norm_backward(
    args: Sequence[Any], gradients: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Lay the gradient out as the input suggests in training, and contiguously in evaluation.

    Source: batch_norm_elementwise_backward_train and _eval, and batch_norm_backward_cuda_template
    in aten/src/ATen/native/cuda/Normalization.cu and .cuh, PyTorch 2.13.
    """
    _, input, *_, train, _, mask = args
    of_input, *others = gradients
    if of_input is None or not mask[0]:  # meta makes it whether it is wanted or not
        return (None, *others)
    in_one_kernel = (train or mask[1] or mask[2]) and has_one_kernel_backward(input)
    wanted = suggested_format(input) if train and not in_one_kernel else torch.contiguous_format
    return (_in_format(of_input, wanted), *others)


def _in_format(tensor: torch.Tensor, wanted: torch.memory_format) -> torch.Tensor:
    # Any stride will do for a dimension of length 1, but CUDA's libraries always write the same.
    if tensor.dim() == 3 and wanted is torch.channels_last:
        batch, channels, _, length = strides_of(
            (*tensor.shape[:2], 1, tensor.size(2)), channels_last=True
        )
        return tensor.new_empty_strided(tensor.shape, (batch, channels, length))
    if tensor.is_contiguous(memory_format=wanted) and 1 not in tensor.shape:
        return tensor
    return torch.empty_like(tensor, memory_format=wanted)


@layout("aten.native_dropout.default")
def dropout(
    args: Sequence[Any], results: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the result a tensor of its own; meta's is the input where nothing is dropped."""
    kept, mask = results
    return (torch.empty_like(kept) if kept is args[0] else kept), mask
