"""Rules of convolutions: copies in one memory format, and the gradient of the bias.

The workspace is cuDNN's to decide, when the op runs, and is not counted: `classify` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.gpu.torch_internals import suggest_memory_format
from vramlab.kernels.calls import BF16, F32, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.operands import nbytes
from vramlab.kernels.reductions import reduction_steps
from vramlab.kernels.registry import OUTPUTS, Call, Give, Output, Status, Step, Take, rule

_SOURCE = "aten/src/ATen/native/Convolution.cpp and cudnn/ConvShared.cpp, PyTorch 2.13"


def memory_format(input: Tensor, weight: Tensor) -> torch.memory_format:
    """Give the memory format in which a convolution works, and in which all its results are.

    Channels last where input or weight is. PyTorch's own depthwise kernels, which know no other
    than contiguous tensors, step aside then.

    Args:
        input: (N, C, ...), of one to three spatial dimensions.
        weight: of as many dimensions.

    Source: cudnn_conv_suggest_memory_format in aten/src/ATen/native/ConvUtils.h, and
    use_cudnn_depthwise in Convolution.cpp, PyTorch 2.13.
    """
    if torch.float64 in (input.dtype, weight.dtype):
        return torch.contiguous_format
    formats = (suggest_memory_format(tensor) for tensor in (input, weight))
    return next((f for f in formats if f is not torch.contiguous_format), torch.contiguous_format)


def _in_format(tensor: Tensor, wanted: torch.memory_format, what: str) -> Iterator[Step]:
    """Yield the copy that brings a tensor into a convolution's memory format."""
    if not tensor.is_contiguous(memory_format=wanted):
        yield Take(nbytes(tensor), f"copy of {what} in the memory format")


@rule(
    "aten.convolution.default",
    takes="copies of input or weight where their memory formats differ; cuDNN's workspace unknown",
    source=_SOURCE,
    status=Status.FROM_SOURCE,
)
def convolution(
    call: Call, input: Tensor, weight: Tensor, *_: object, **__: object
) -> Iterable[Step]:
    wanted = memory_format(input, weight)
    yield from _in_format(input, wanted, "the input")
    yield OUTPUTS
    yield from _in_format(weight, wanted, "the weight")


@rule(
    "aten.convolution_backward.default",
    takes="copies of gradient, input or weight where their memory formats differ; what the sum of "
    "the gradient takes, for the bias; cuDNN's workspace unknown",
    source=_SOURCE,
    status=Status.FROM_SOURCE,
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
    wanted = memory_format(input, weight)
    if output_mask[1]:
        yield from _in_format(input, wanted, "the input")
    yield from _in_format(grad_output, wanted, "the gradient")
    if output_mask[0]:
        yield Output(0)
        yield from _in_format(weight, wanted, "the weight")
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
            call.context,
            grad_output,
            [bias_gradient],
            dims,
            4 if grad_output.element_size() < 8 else 8,
            grad_output.dtype,
        )


# Calls that ask a real GPU.

_CONVOLUTIONS = (
    # images, channels, side, filters, kernel, stride, groups
    (16, 3, 224, 64, 3, 1, 1),
    (16, 64, 56, 64, 3, 1, 1),
    (16, 64, 56, 256, 1, 1, 1),
    (16, 256, 14, 512, 3, 2, 1),
    (16, 96, 56, 96, 7, 1, 96),
    (16, 3, 224, 768, 16, 16, 1),
)


@asks("aten.convolution.default")
def _convolution_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for n, c, side, filters, kernel, stride, groups in _CONVOLUTIONS:
            for layout in ("contiguous", "channels last"):
                x = zeros(n, c, side, side, dtype=dtype, layout=layout)
                weight = zeros(filters, c // groups, kernel, kernel, dtype=dtype)
                pad = 0 if kernel == stride else kernel // 2
                rest = [stride, stride], [pad, pad], [1, 1], False, [0, 0], groups
                yield op_call(
                    aten.convolution.default, x, weight, zeros(filters, dtype=dtype), *rest
                )


@asks("aten.convolution_backward.default")
def _convolution_backward_calls() -> Iterator[OpCall]:
    op = aten.convolution_backward.default
    for dtype in (F32, BF16):
        for n, c, side, filters, kernel, stride, groups in _CONVOLUTIONS:
            pad = 0 if kernel == stride else kernel // 2
            out = (side + 2 * pad - kernel) // stride + 1
            gradient = zeros(n, filters, out, out, dtype=dtype)
            x = zeros(n, c, side, side, dtype=dtype)
            weight = zeros(filters, c // groups, kernel, kernel, dtype=dtype)
            rest = [stride, stride], [pad, pad], [1, 1], False, [0, 0], groups
            yield op_call(op, gradient, x, weight, [filters], *rest, [True, True, True])
