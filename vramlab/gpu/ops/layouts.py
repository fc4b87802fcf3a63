"""Lay results out in memory as CUDA's kernels do, where meta kernels do otherwise.

Strides decide which copies later ops make, and so how much memory they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vramlab.gpu.core.op_table import layout
from vramlab.kernels.convolution import channels_last_strides, memory_format


@layout("aten.convolution.default")
def convolution(args: Sequence[Any], output: torch.Tensor) -> torch.Tensor:
    """Lay the output out as the library does that CUDA runs; meta's is always contiguous."""
    input, weight, *_ = args
    return _in_format(output, memory_format(input, weight))


@layout("aten.convolution_backward.default")
def convolution_backward(
    args: Sequence[Any], gradients: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Lay the gradients out as input and weight are.

    Until 2.12 meta's gradient of the weight goes by the gradient of the output too.
    """
    _, input, weight, *_ = args
    wanted = memory_format(input, weight)
    of_input, of_weight, of_bias = gradients
    return (
        None if of_input is None else _in_format(of_input, wanted),
        None if of_weight is None else _in_format(of_weight, wanted),
        of_bias,
    )


def _in_format(tensor: torch.Tensor, wanted: torch.memory_format) -> torch.Tensor:
    # Any stride will do for a dimension of length 1, but CUDA's libraries always write the same.
    if tensor.dim() == 3 and wanted is torch.channels_last:
        batch, channels, _, length = channels_last_strides((*tensor.shape[:2], 1, tensor.size(2)))
        return tensor.new_empty_strided(tensor.shape, (batch, channels, length))
    if tensor.is_contiguous(memory_format=wanted) and 1 not in tensor.shape:
        return tensor
    return torch.empty_like(tensor, memory_format=wanted)
