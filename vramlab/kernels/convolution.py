"""Rules of convolutions: copies in one memory format, workspaces, the gradient of the bias.

Which kernels run is PyTorch's choice (`backend`). How large cuDNN's workspace is, cuDNN decides
(`vramlab.cudnn`): the rules say only that it computes (`Convolve`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from vramlab.cudnn.problems import ALIGNMENT, Convolution, Operation, strides_of
from vramlab.kernels.reductions import reduction_steps
from vramlab.kernels.rule_table.calls import BF16, F16, F32, F64, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.operands import contiguous, has_strides_of_channels_last, nbytes
from vramlab.kernels.rule_table.registry import (
    OUTPUTS,
    Call,
    Convolve,
    Give,
    Output,
    Status,
    Step,
    Take,
    rule,
)
from vramlab.kernels.slow_convolution import SlowConvolution

_SOURCE = "aten/src/ATen/native/Convolution.cpp and cudnn/ConvShared.cpp, PyTorch 2.13"
_INPUT = "copy of the input in the memory format"
_WEIGHT = "copy of the weight in the memory format"
_GRADIENT = "copy of the gradient in the memory format"
_IMAGE = "copy of the input for the gradient of the weight"
_DTYPES = {F32: "f32", F16: "f16", BF16: "bf16", F64: "f64"}


class Backend(Enum):
    """Whose kernels compute a convolution."""

    CUDNN = "cuDNN's"
    DEPTHWISE = "PyTorch's for one filter a channel"
    SLOW = "PyTorch's, by products of matrices"
    EMPTY = "none: there is nothing to compute"


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
        dilation: of each spatial dimension, or one for all.
        transposed: whether it is a transposed convolution.
        output_padding: of each spatial dimension, or one for all.
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
    """Return whether cuDNN computes a contiguous depthwise convolution: in float16, and if it pays.

    Source: `use_cudnn_depthwise` and `check_cudnn_depthwise_workload_with_filter` in
    aten/src/ATen/native/Convolution.cpp, PyTorch 2.13.
    """
    if input.dim() == 5:
        return False
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
    """Return the memory format in which a convolution works, and in which its output is.

    Channels last where input or weight is. PyTorch's own depthwise kernels, which know no other
    than contiguous tensors, step aside then. Input of one spatial dimension is made contiguous
    first.

    Args:
        input: (N, C, ...), of one to three spatial dimensions.
        weight: of as many dimensions.

    Source: cudnn_conv_suggest_memory_format in aten/src/ATen/native/ConvUtils.h, and
    use_cudnn_depthwise and _convolution in Convolution.cpp, PyTorch 2.13.
    """
    if F64 in (input.dtype, weight.dtype):
        return torch.contiguous_format
    tensors = (weight,) if input.dim() == 3 else (input, weight)
    if not any(has_strides_of_channels_last(*_as_image(tensor)) for tensor in tensors):
        return torch.contiguous_format
    return torch.channels_last_3d if input.dim() == 5 else torch.channels_last


def _as_image(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides with two spatial dimensions or more (`view4d`)."""
    sizes, strides = tuple(tensor.size()), tensor.stride()
    if len(sizes) != 3:
        return sizes, strides
    height = sizes[2] * strides[2]
    return (*sizes[:2], 1, sizes[2]), (*strides[:2], height, strides[2])


@dataclass(frozen=True)
class _Operand:
    """A tensor of a convolution as PyTorch's C++ code has it, which copies some.

    Attributes:
        what: the name of its copy.
        sizes: with two spatial dimensions or more.
        strides: of as many dimensions.
        element_bytes: of one element.
        alignment: of its address; blocks begin at multiples of 512 bytes.
    """

    what: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    element_bytes: int
    alignment: int = ALIGNMENT

    @classmethod
    def of(cls, what: str, tensor: Tensor) -> _Operand:
        alignment = math.gcd(tensor.storage_offset() * tensor.element_size(), ALIGNMENT)
        return cls(what, *_as_image(tensor), tensor.element_size(), alignment)

    @property
    def is_empty(self) -> bool:
        return 0 in self.sizes

    @property
    def suggests_channels_last(self) -> bool:
        """Whether `suggest_memory_format` says so: strides fit channels last and nothing else."""
        return has_strides_of_channels_last(self.sizes, self.strides)

    def new(self, what: str, channels_last: bool) -> _Operand:
        """Return a dense tensor of these sizes."""
        strides = strides_of(self.sizes, channels_last)
        return _Operand(what, self.sizes, tuple(strides), self.element_bytes)

    def to(self, channels_last: bool) -> Generator[Step, None, _Operand]:
        """Yield the copy that `to(memory_format)` makes, if any; return its result."""
        if self.suggests_channels_last == channels_last:
            return self
        yield Take(math.prod(self.sizes) * self.element_bytes, self.what)
        return self.new(self.what, channels_last)

    def contiguous(self, channels_last: bool) -> Generator[Step, None, _Operand]:
        """Yield the copy that `contiguous(memory_format)` makes, if any; return its result."""
        copy = self.new(self.what, channels_last)
        fits = all(
            size == 1 or stride == wanted
            for size, stride, wanted in zip(self.sizes, self.strides, copy.strides, strict=True)
        )
        if fits or self.is_empty:
            return self
        yield Take(math.prod(self.sizes) * self.element_bytes, self.what)
        return copy


@dataclass(frozen=True)
class _Geometry:
    """How filters move, with two spatial dimensions or more."""

    dtype: torch.dtype
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls,
        weight: Tensor,
        padding: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
    ) -> _Geometry:
        spatial = weight.dim() - 2

        def of_each(values: Sequence[int], before: int) -> tuple[int, ...]:
            each = tuple(values) if len(values) == spatial else tuple(values) * spatial
            return (before, *each) if spatial == 1 else each

        return cls(weight.dtype, of_each(padding, 0), of_each(stride, 1), of_each(dilation, 1))

    def suggests_channels_last(self, one: _Operand, other: _Operand) -> bool:
        """Whether cuDNN works in channels last: `cudnn_conv_suggest_memory_format`."""
        either = one.suggests_channels_last or other.suggests_channels_last
        return self.dtype != F64 and either

    def compute(
        self,
        operation: Operation,
        image: _Operand,
        weight: _Operand,
        output: _Operand,
        channels_last: bool,
    ) -> Iterator[Step]:
        """Yield the convolution that cuDNN computes; none where there is nothing to compute."""
        operands = (image, weight, output)
        if any(operand.is_empty for operand in operands):
            return
        of_image, of_weight, of_output = (operand.alignment for operand in operands)
        cudnn = torch.backends.cudnn
        convolution = Convolution(
            operation,
            _DTYPES[self.dtype],
            image.sizes,
            weight.sizes,
            output.sizes,
            padding=self.padding,
            stride=self.stride,
            dilation=self.dilation,
            channels_last=channels_last,
            deterministic=cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
            allow_tf32=self.dtype != F32 or cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
            alignments=(of_image, of_weight, of_output),
        )
        yield Convolve(convolution, cudnn.benchmark)


def _image(input: Tensor) -> Generator[Step, None, _Operand]:
    """Yield the copy of an input of one spatial dimension whose channels are innermost."""
    image = _Operand.of("copy of the input", input)
    if input.dim() == 3:
        image = yield from image.contiguous(False)
    return replace(image, what=_INPUT)


def gradient_formats(
    grad_output: Tensor, input: Tensor, weight: Tensor
) -> tuple[torch.memory_format, torch.memory_format]:
    """Return the memory formats of the gradients of input and weight, as cuDNN writes them.

    Args:
        grad_output: the gradient of the output.
        input: (N, C, ...), of one to three spatial dimensions.
        weight: of as many dimensions.

    Source: cudnn_convolution_backward and what it calls, in
    aten/src/ATen/native/cudnn/ConvShared.cpp, PyTorch 2.13.
    """
    how = _Geometry(weight.dtype, (), (), ())
    gradient, image = _Operand.of("", grad_output), _Operand.of("", input)
    if input.dim() == 3:
        image = image.new("", channels_last=False)
    if gradient.suggests_channels_last != image.suggests_channels_last:
        gradient = gradient.new("", image.suggests_channels_last)
    last = torch.channels_last_3d if input.dim() == 5 else torch.channels_last
    filters = _Operand.of("", weight)
    of_input = how.suggests_channels_last(gradient, filters)
    image_last = how.suggests_channels_last(image, filters)
    of_weight = how.suggests_channels_last(gradient, image.new("", image_last))
    return (
        last if of_input else torch.contiguous_format,
        last if of_weight else torch.contiguous_format,
    )


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
    (output,) = call.outputs
    assert output is not None
    how = _Geometry.of(weight, padding, stride, dilation)
    image = yield from _image(input)
    filters = _Operand.of(_WEIGHT, weight)
    last = by is Backend.CUDNN and how.suggests_channels_last(image, filters)
    image = yield from image.contiguous(last)
    if by is Backend.SLOW:
        how_slow = (stride, padding, dilation, transposed, groups)
        slow = SlowConvolution(call, input, weight, output, *how_slow)
        yield from slow.forward(bias is not None)
        return
    yield OUTPUTS
    filters = yield from filters.contiguous(last)
    if by is Backend.CUDNN:
        if weight.dtype == BF16 and call.context.model.compute_capability < (8, 0):
            # Depthwise and channels last: PyTorch asks cuDNN, which computes no bfloat16 there.
            raise RuntimeError("GET was unable to find an engine to execute this computation")
        result = _Operand.of("", output).new("", last)
        if transposed:
            yield from how.compute("input", result, filters, image, last)
        else:
            yield from how.compute("forward", image, filters, result, last)


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
    bias_gradient = call.outputs[2]
    if by is Backend.SLOW:
        yield from contiguous(input, "the input")
        how_slow = (stride, padding, dilation, transposed, groups)
        slow = SlowConvolution(call, input, weight, grad_output, *how_slow)
        yield from slow.backward(
            None if bias_gradient is None else nbytes(bias_gradient), output_mask
        )
        return
    operands = (
        _Operand.of(_GRADIENT, grad_output),
        (yield from _image(input)),
        _Operand.of(_WEIGHT, weight),
    )
    if by is Backend.CUDNN:
        how = _Geometry.of(weight, padding, stride, dilation)
        yield from _cudnn_backward(*operands, how, transposed, output_mask)
    elif by is Backend.DEPTHWISE:
        yield from _depthwise_backward(*operands, output_mask)
    else:
        yield from (Output(index) for index in (0, 1) if output_mask[index])
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


def _cudnn_backward(
    gradient: _Operand,
    image: _Operand,
    weight: _Operand,
    how: _Geometry,
    transposed: bool,
    output_mask: Sequence[bool],
) -> Iterator[Step]:
    """Yield what cuDNN's gradients take.

    Source: convolution_backward in aten/src/ATen/native/Convolution.cpp;
    cudnn_convolution_backward and cudnn_convolution_transpose_backward in
    cudnn/ConvShared.cpp, PyTorch 2.13.
    """
    if output_mask[1]:
        image = yield from image.contiguous(how.suggests_channels_last(image, weight))
    last = image.suggests_channels_last
    kept = replace(gradient, what=f"{_GRADIENT}, for both gradients")
    kept = yield from (kept.contiguous(last) if transposed else kept.to(last))
    gradient = replace(kept, what=_GRADIENT)
    if output_mask[0]:
        yield Output(0)
        last = how.suggests_channels_last(gradient, weight)
        result = image.new("", last)
        filters = yield from weight.contiguous(last)
        copy = yield from gradient.contiguous(last)
        if transposed:
            yield from how.compute("forward", copy, filters, result, last)
        else:
            yield from how.compute("input", result, filters, copy, last)
        yield Give(_GRADIENT)
        yield Give(_WEIGHT)
    if output_mask[1]:
        small, large = (image, gradient) if transposed else (gradient, image)
        small, large = replace(small, what=_GRADIENT), replace(large, what=_IMAGE)
        last = how.suggests_channels_last(small, large)
        small = yield from small.contiguous(last)
        large = yield from large.contiguous(last)
        yield Output(1)
        yield from how.compute("weight", large, weight.new("", last), small, last)
        yield Give(_IMAGE)
        yield Give(_GRADIENT)
    yield Give(kept.what)
    yield Give(_INPUT)


def _depthwise_backward(
    gradient: _Operand, image: _Operand, weight: _Operand, output_mask: Sequence[bool]
) -> Iterator[Step]:
    """Yield what the gradients of PyTorch's own depthwise kernels take.

    Of images the weight's gradient comes first; of volumes both come before any copy, and copies
    stay until the gradient of the bias is there.

    Source: conv_depthwise2d_backward_cuda_out in aten/src/ATen/native/cuda/DepthwiseConv2d.cu and
    conv_depthwise3d_backward_cuda_out in DepthwiseConv3d.cu, PyTorch 2.13.
    """
    if len(image.sizes) == 5:
        yield from (Output(index) for index in (0, 1) if output_mask[index])
        for operand in (gradient, image, weight):
            yield from operand.contiguous(False)
        return
    yield from gradient.contiguous(False)
    if output_mask[1]:
        yield from image.contiguous(False)
        yield Output(1)
        yield Give(_INPUT)
    if output_mask[0]:
        yield from weight.contiguous(False)
        yield Output(0)
        yield Give(_WEIGHT)
    yield Give(_GRADIENT)


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
