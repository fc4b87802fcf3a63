"""Rules of convolutions by cuDNN: copies in one memory format, and the gradient of the bias.

The workspace is cuDNN's to decide, when the op runs, and is not counted: `classify` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.kernels.operands import nbytes
from vramlab.kernels.reductions import reduction_steps
from vramlab.kernels.registry import OUTPUTS, Call, Give, Output, Step, Take, rule

_SOURCE = "aten/src/ATen/native/Convolution.cpp and cudnn/ConvShared.cpp, PyTorch 2.13"


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether channels are innermost, and that is not just another reading of contiguous."""
    if tensor.is_contiguous():
        return False
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    memory_format = formats.get(tensor.dim())
    return memory_format is not None and tensor.is_contiguous(memory_format=memory_format)


def _in_format(tensor: Tensor, channels_last: bool, what: str) -> Iterator[Step]:
    """Yield the copy that brings a tensor into a convolution's memory format."""
    is_there = _is_channels_last(tensor) if channels_last else tensor.is_contiguous()
    if not is_there:
        yield Take(nbytes(tensor), f"copy of {what} in the memory format")


@rule(
    "aten.convolution.default",
    takes="copies of input or weight where their memory formats differ; cuDNN's workspace unknown",
    source=_SOURCE,
)
def convolution(
    call: Call, input: Tensor, weight: Tensor, *_: object, **__: object
) -> Iterable[Step]:
    channels_last = _is_channels_last(input) or _is_channels_last(weight)
    yield from _in_format(input, channels_last, "the input")
    yield OUTPUTS
    yield from _in_format(weight, channels_last, "the weight")


@rule(
    "aten.convolution_backward.default",
    takes="copies of gradient, input or weight where their memory formats differ; what the sum of "
    "the gradient takes, for the bias; cuDNN's workspace unknown",
    source=_SOURCE,
)
def convolution_backward(
    call: Call,
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Iterable[Step]:
    channels_last = _is_channels_last(input) or _is_channels_last(weight)
    if output_mask[1]:
        yield from _in_format(input, channels_last, "the input")
    yield from _in_format(grad_output, channels_last, "the gradient")
    if output_mask[0]:
        yield Output(0)
        yield from _in_format(weight, channels_last, "the weight")
        yield Give("copy of the weight in the memory format")
    if output_mask[1]:
        yield Output(1)
    yield Give("copy of the gradient in the memory format")
    yield Give("copy of the input in the memory format")
    bias_gradient = call.outputs[2]
    if bias_gradient is not None:
        yield Output(2)
        dims = [dim for dim in range(grad_output.dim()) if dim != 1]
        yield from reduction_steps(
            call.launch,
            grad_output,
            [bias_gradient],
            dims,
            4 if grad_output.element_size() < 8 else 8,
            grad_output.dtype,
        )
