"""Rules of convolutions: copies in one memory format, workspaces, the gradient of the bias.

Which kernels run is PyTorch's choice (`backend`). How large cuDNN's workspace is, cuDNN decides
(`vramlab.cudnn`), and the rules take what `KernelContext.cudnn` answers; nothing where that is not
known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import torch
from torch import Tensor

from vramlab.cudnn.problems import ALIGNMENT, Convolution, Operation
from vramlab.kernels.calls import BF16, F16, F32, F64, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.operands import nbytes
from vramlab.kernels.reductions import reduction_steps
from vramlab.kernels.registry import CUBLAS, OUTPUTS, Call, Give, Output, Status, Step, Take, rule

_SOURCE = "aten/src/ATen/native/Convolution.cpp and cudnn/ConvShared.cpp, PyTorch 2.13"
_DTYPES = {F32: "f32", F16: "f16", BF16: "bf16", F64: "f64"}
_WORKSPACE = "cuDNN's workspace"


class Backend(Enum):
    """Whose kernels compute a convolution."""

    CUDNN = "cuDNN's"
    DEPTHWISE = "PyTorch's for one filter a channel"
    SLOW = "PyTorch's, by products of matrices"
    EMPTY = "nobody's: there is nothing to compute"


def backend(
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    capability: tuple[int, int],
) -> Backend:
    """Choose as PyTorch does on a GPU.

    Args:
        input: (N, C, ...), of one to three spatial dimensions.
        weight: of as many dimensions.
        stride: of each spatial dimension, or one for all; as are the next.
        dilation: likewise.
        transposed: whether it is a transposed convolution.
        output_padding: likewise.
        groups: of channels.
        capability: the GPU's.

    Source: `_select_conv_backend`, `use_cudnn` and `use_cudnn_depthwise` in
    aten/src/ATen/native/Convolution.cpp; `supportsBFloat16ConvolutionWithCuDNNv8` in
    cuda/detail/CUDAHooks.cpp, PyTorch 2.13.
    """
    if 0 in (input.size(0), input.size(1)):
        return Backend.EMPTY
    enabled = torch.backends.cudnn.enabled
    channels, filters = input.size(1), weight.size(0)
    if not transposed and channels == groups > 1 and filters % channels == 0:
        contiguous = memory_format(input, weight) is torch.contiguous_format
        fast = not contiguous or _is_fast_depthwise(input, weight, stride, dilation)
        return Backend.CUDNN if enabled and fast else Backend.DEPTHWISE
    padded_too_much = any(more >= step for more, step in zip(output_padding, stride, strict=False))
    emulated = BF16 in (input.dtype, weight.dtype) and capability < (8, 0)
    known = enabled and not emulated and not padded_too_much and input.dtype in _DTYPES
    return Backend.CUDNN if known else Backend.SLOW


def _is_fast_depthwise(
    input: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Tell whether cuDNN computes a contiguous depthwise convolution: in float16, and if it pays.

    Source: `use_cudnn_depthwise` and `check_cudnn_depthwise_workload_with_filter` in
    aten/src/ATen/native/Convolution.cpp, PyTorch 2.13.
    """
    batch, channels, height, width = _as_image(input)[0]
    _, _, filter_height, filter_width = _as_image(weight)[0]
    step_down, step = (1, *stride)[-2:]
    half = input.dtype == weight.dtype == F16
    if not half or any(each != 1 for each in dilation) or channels < 32:
        return False
    if height == 1 and step == 1:
        return True
    if step_down != step and height != 1:
        return False
    if filter_height != filter_width or filter_width not in (1, 3, 5) or width < 7:
        return False
    if step != 2:
        return step == 1
    if filter_width == 1:
        return width <= 28 if batch == 1 else batch <= 16 and channels >= 128 and width <= 7
    return batch == 1 or channels >= 512 or (channels >= 256 and width >= 28)


def memory_format(input: Tensor, weight: Tensor) -> torch.memory_format:
    """Give the memory format in which a convolution works, and in which all its results are.

    Channels last where input or weight is. PyTorch's own depthwise kernels, which know no other
    than contiguous tensors, step aside then. With one spatial dimension it is the format of the
    images of height 1 that PyTorch makes of them: input that is a transposed (N, length, C) is
    channels last, and stays so.

    Args:
        input: (N, C, ...), of one to three spatial dimensions.
        weight: of as many dimensions.

    Source: cudnn_conv_suggest_memory_format in aten/src/ATen/native/ConvUtils.h, and
    use_cudnn_depthwise and view4d in Convolution.cpp, PyTorch 2.13.
    """
    if F64 in (input.dtype, weight.dtype):
        return torch.contiguous_format
    if not any(_is_channels_last(*_as_image(tensor)) for tensor in (input, weight)):
        return torch.contiguous_format
    return torch.channels_last_3d if input.dim() == 5 else torch.channels_last


def _as_image(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides with two spatial dimensions or more (`view4d`)."""
    sizes, strides = tuple(tensor.size()), tensor.stride()
    if len(sizes) != 3:
        return sizes, strides
    height = sizes[2] * strides[2]
    return (*sizes[:2], 1, sizes[2]), (*strides[:2], height, strides[2])


def _is_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Tell whether strides are those of channels last, and of nothing else.

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


def is_in_format(tensor: Tensor, wanted: torch.memory_format) -> bool:
    """Tell whether a tensor lies in a format; one with a single spatial dimension as an image."""
    if tensor.dim() != 3 or wanted is torch.contiguous_format:
        return tensor.is_contiguous(memory_format=wanted)
    sizes, strides = _as_image(tensor)
    return all(
        size == 1 or stride == expected
        for size, stride, expected in zip(sizes, strides, channels_last_strides(sizes), strict=True)
    )


def channels_last_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Give the strides of (N, C, ...) with its channels innermost."""
    strides, step = [0] * len(sizes), 1
    for dim in (1, *reversed(range(2, len(sizes))), 0):
        strides[dim] = step
        step *= sizes[dim]
    return tuple(strides)


def _in_format(tensor: Tensor, wanted: torch.memory_format, what: str) -> Iterator[Step]:
    """Yield the copy that brings a tensor into a convolution's memory format."""
    if not is_in_format(tensor, wanted):
        yield Take(nbytes(tensor), f"copy of {what} in the memory format")


def _workspace(
    call: Call,
    operation: Operation,
    image: Tensor,
    weight: Tensor,
    output: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    wanted: torch.memory_format,
) -> Iterator[Step]:
    """Yield what cuDNN takes while it computes, and gives back."""
    if call.context.cudnn is None or 0 in (image.numel(), weight.numel(), output.numel()):
        return
    spatial = weight.dim() - 2

    def of_each(values: Sequence[int], before: int) -> tuple[int, ...]:
        each = tuple(values) if len(values) == spatial else tuple(values) * spatial
        return (before, *each) if spatial == 1 else each

    cudnn = torch.backends.cudnn
    tensors = (image, weight, output)
    image_sizes, weight_sizes, output_sizes = (_as_image(tensor)[0] for tensor in tensors)
    convolution = Convolution(
        operation,
        _DTYPES[weight.dtype],
        image_sizes,
        weight_sizes,
        output_sizes,
        padding=of_each(padding, 0),
        stride=of_each(stride, 1),
        dilation=of_each(dilation, 1),
        channels_last=wanted is not torch.contiguous_format,
        deterministic=cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
        allow_tf32=weight.dtype != F32 or cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        alignments=tuple(  # type: ignore[arg-type]
            _alignment(tensor) if is_in_format(tensor, wanted) else ALIGNMENT for tensor in tensors
        ),
    )
    size_bytes = call.context.cudnn(convolution, is_timed=cudnn.benchmark)
    if size_bytes:
        yield Take(size_bytes, _WORKSPACE)
        yield Give(_WORKSPACE)


def _alignment(tensor: Tensor) -> int:
    """By how much a tensor's address can be divided: blocks begin at multiples of 512 bytes."""
    return math.gcd(tensor.storage_offset() * tensor.element_size(), ALIGNMENT)


@rule(
    "aten.convolution.default",
    takes="copies of input or weight where their memory formats differ; cuDNN's workspace, where "
    "vramlab's table or cuDNN's library says it",
    source=_SOURCE + "; Conv_v8.cpp",
    status=Status.FROM_SOURCE,
)
def convolution(
    call: Call,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Iterable[Step]:
    by = _backend_of(call, input, weight, stride, dilation, transposed, output_padding, groups)
    wanted = torch.contiguous_format if by is Backend.SLOW else memory_format(input, weight)
    yield from _in_format(input, wanted, "the input")
    yield OUTPUTS
    yield from _in_format(weight, wanted, "the weight")
    (output,) = call.outputs
    if by is Backend.SLOW and output is not None and input.dim() == 4 and groups == 1:
        yield from _by_products(weight, output, stride, padding, transposed)
    if by is Backend.CUDNN and output is not None:
        if weight.dtype == BF16 and call.context.model.compute_capability < (8, 0):
            # Depthwise and channels last: PyTorch asks cuDNN, which computes no bfloat16 there.
            raise RuntimeError("GET was unable to find an engine to execute this computation")
        how = (padding, stride, dilation, wanted)
        if transposed:
            yield from _workspace(call, "input", output, weight, input, *how)
        else:
            yield from _workspace(call, "forward", input, weight, output, *how)


def _by_products(
    weight: Tensor,
    output: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    transposed: bool,
) -> Iterator[Step]:
    """Yield the columns of one image that are multiplied with the filters, and cuBLAS's workspace.

    Source: slow_conv2d_forward and slow_conv2d_backward in
    aten/src/ATen/native/cuda/ConvolutionMM2d.cu, PyTorch 2.13. Dilated, transposed and grouped
    convolutions are taken to do without.
    """
    if transposed:
        return
    steps = (*weight.shape[2:], *stride)
    if any(each != 1 for each in steps) or any(padding):
        columns = weight.numel() // weight.size(0) * output.shape[2:].numel()
        yield Take(columns * weight.element_size(), "columns")
    yield CUBLAS
    yield Give("columns")


def _backend_of(
    call: Call,
    input: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Backend:
    capability = call.context.model.compute_capability
    return backend(input, weight, stride, dilation, transposed, output_padding, groups, capability)


@rule(
    "aten.convolution_backward.default",
    takes="copies of gradient, input or weight where their memory formats differ; what the sum of "
    "the gradient takes, for the bias; cuDNN's workspaces, where vramlab's table or cuDNN's "
    "library says them",
    source=_SOURCE + "; Conv_v8.cpp",
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
    by = _backend_of(call, input, weight, stride, dilation, transposed, output_padding, groups)
    wanted = torch.contiguous_format if by is Backend.SLOW else memory_format(input, weight)
    is_slow = by is Backend.SLOW and input.dim() == 4 and groups == 1
    how = (padding, stride, dilation, wanted)
    image, output = (grad_output, input) if transposed else (input, grad_output)
    if output_mask[1]:
        yield from _in_format(input, wanted, "the input")
    yield from _in_format(grad_output, wanted, "the gradient")
    if output_mask[0]:
        yield Output(0)
        yield from _in_format(weight, wanted, "the weight")
        if by is Backend.CUDNN:
            operation: Operation = "forward" if transposed else "input"
            yield from _workspace(call, operation, image, weight, output, *how)
        if is_slow:
            yield from _by_products(weight, grad_output, stride, padding, transposed)
        yield Give("copy of the weight in the memory format")
    if output_mask[1]:
        yield Output(1)
        if by is Backend.CUDNN:
            yield from _workspace(call, "weight", image, weight, output, *how)
        if is_slow:
            yield from _by_products(weight, grad_output, stride, padding, transposed)
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
