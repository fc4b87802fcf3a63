"""Answer ops at once where their result is plain to see, without the meta kernel.

PyTorch infers the shapes of many element-wise ops in Python, which takes longer than everything
else that happens to an op here. Where all operands are numbers or contiguous floating-point tensors
of one shape and dtype, the result has that shape and dtype too, or is the operand that is changed.
Sums and products may be of two dtypes, or of rows and one of them, as under autocast and in norms.
Norms, dropout, the gradient of softmax and matrix products with a bias are inferred as several such
ops; where their operands are as usual in training, their results are plain to see as well.
Anything else goes to the meta kernel: other broadcasts, other layouts, and all errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vramlab.gpu.core.op_table import fast_answer
from vramlab.gpu.core.tensors import empty_meta
from vramlab.gpu.torch_internals import len_torch_dispatch_stack

Result = torch.Tensor | tuple[torch.Tensor | None, ...]

IN_PLACE = (
    "aten.add_.Tensor",
    "aten.sub_.Tensor",
    "aten.mul_.Tensor",
    "aten.div_.Tensor",
    "aten.add_.Scalar",
    "aten.sub_.Scalar",
    "aten.mul_.Scalar",
    "aten.div_.Scalar",
    "aten.lerp_.Scalar",
    "aten.addcmul_.default",
    "aten.addcdiv_.default",
    "aten.sqrt_.default",
    "aten.neg_.default",
)
"""Ops whose result is their first argument."""

ARITHMETIC = ("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor")
"""Ops whose result is new, and like the larger of their arguments."""

NEW = (
    "aten.add.Scalar",
    "aten.sub.Scalar",
    "aten.mul.Scalar",
    "aten.div.Scalar",
    "aten.lerp.Scalar",
    "aten.addcmul.default",
    "aten.addcdiv.default",
    "aten.sqrt.default",
    "aten.rsqrt.default",
    "aten.neg.default",
    "aten.exp.default",
    "aten.gelu.default",
    "aten.silu.default",
    "aten.tanh.default",
    "aten.sigmoid.default",
    "aten.gelu_backward.default",
    "aten.silu_backward.default",
    "aten.tanh_backward.default",
    "aten.sigmoid_backward.default",
)
"""Ops whose result is new, and like their first argument."""


@fast_answer(*IN_PLACE)
def in_place(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Answer the operand that is changed."""
    return args[0] if _is_plain(args, kwargs) else None


@fast_answer(*NEW)
def new(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """Make a tensor like the first operand."""
    if not _is_plain(args, kwargs):
        return None
    return _like(args[0])


@fast_answer(*ARITHMETIC)
def arithmetic(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """Make a tensor like the larger operand, in the dtype that both promote to."""
    left, right = args
    if not isinstance(right, torch.Tensor):
        return new(args, kwargs)
    wide, narrow = (left, right) if left.dim() >= right.dim() else (right, left)
    if not (_is_plain((wide,), kwargs) and _is_plain((narrow,), {})):
        return None
    if narrow.shape != wide.shape:
        # Where a length is 1, strides are not always those of a contiguous tensor.
        if 1 in wide.shape or narrow.shape not in (wide.shape[-1:], ()):
            return None
        if not narrow.dim():  # a number on the GPU does not promote
            return _like(wide)
    return empty_meta(wide.shape, torch.promote_types(wide.dtype, narrow.dtype))


@fast_answer("aten.threshold_backward.default")
def threshold_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the result of operands with the usual strides.

    Strange strides of length 1 come out otherwise here.
    """
    result = new(args, kwargs)
    if result is None or any(operand.stride() != result.stride() for operand in args[:2]):
        return None
    return result


@fast_answer("aten.native_batch_norm.default")
def batch_norm(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the output, and mean and inverse deviation of each channel."""
    if kwargs or not _is_plain_batch(args[0], args[1:5], args[5]):
        return None
    images = args[0]
    return _like(images), *(_like(args[1]) for _ in range(2))


@fast_answer("aten.native_batch_norm_backward.default")
def batch_norm_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the gradients of input, weight and bias."""
    gradient, images, *channels, training, _, wanted = args
    if kwargs or not _is_plain_batch(images, channels, training):
        return None
    if not (all(wanted) and _is_plain((images, gradient), {})):
        return None
    return _like(images), *(_like(channels[0]) for _ in range(2))


@fast_answer("aten.native_layer_norm.default")
def layer_norm(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the output, and mean and inverse deviation of each row."""
    rows, shape, *parameters, _ = args
    if kwargs or not _are_plain_rows(rows, shape, parameters):
        return None
    each_row = rows.shape[: -len(shape)] + (1,) * len(shape)
    return _like(rows), *(empty_meta(each_row, torch.float32) for _ in range(2))


@fast_answer("aten.native_layer_norm_backward.default")
def layer_norm_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the gradients of input, weight and bias."""
    gradient, rows, shape, _, _, *parameters, wanted = args
    if kwargs or not _are_plain_rows(rows, shape, parameters):
        return None
    if not _is_plain((rows, gradient), {}):
        return None
    operands = (rows, *parameters)
    return tuple(_like(each) if want else None for each, want in zip(operands, wanted, strict=True))


@fast_answer("aten.native_dropout.default")
def dropout(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the output and the mask."""
    tensor, probability, training = args
    if kwargs or training is not True or not (0 < probability < 1 and _is_plain((tensor,), {})):
        return None
    return _like(tensor), empty_meta(tensor.shape, torch.bool)


@fast_answer("aten.native_dropout_backward.default")
def dropout_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the gradient of the input, whose mask is contiguous."""
    gradient, mask, scale = args
    if kwargs or not _is_plain((gradient, scale), {}):
        return None
    if mask.dtype is not torch.bool or mask.shape != gradient.shape or not _is_contiguous(mask):
        return None
    return _like(gradient)


@fast_answer("aten._softmax_backward_data.default")
def softmax_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the gradient of the input, in the dtype of the output's."""
    gradient, output, dim, dtype = args
    if kwargs or dtype is not gradient.dtype or not _is_plain((gradient, output), {}):
        return None
    return _like(gradient) if -gradient.dim() <= dim < gradient.dim() else None


@fast_answer("aten.addmm.default")
def addmm(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Make the product of matrices of any layout, and a bias of one number per column."""
    bias, *matrices = args
    if kwargs or not _is_plain((bias,), {}):
        return None
    if not all(_is_matrix(matrix) and matrix.dtype is bias.dtype for matrix in matrices):
        return None
    (rows, inner), (same_inner, columns) = (matrix.shape for matrix in matrices)
    if inner != same_inner or bias.shape != (columns,):
        return None
    return empty_meta((rows, columns), bias.dtype)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return empty_meta(tensor.shape, tensor.dtype)


def _is_plain_batch(images: object, channels: Sequence[object], training: object) -> bool:
    """Tell whether it is float32 (N, C, ...) in training, and all is there that has C numbers."""
    if training is not True or not isinstance(images, torch.Tensor) or images.dim() < 2:
        return False
    return (
        images.dtype is torch.float32
        and _is_plain((images,), {})
        and _are_alike(channels, torch.float32, images.shape[1:2])
    )


def _are_plain_rows(rows: torch.Tensor, shape: Sequence[int], parameters: Sequence[object]) -> bool:
    """Tell whether they are rows of `shape`; what there is of weight and bias is of that shape."""
    there = [parameter for parameter in parameters if parameter is not None]
    return (
        rows.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and _is_plain((rows,), {})
        and 0 < len(shape) <= rows.dim()
        and rows.shape[-len(shape) :] == torch.Size(shape)
        and _are_alike(there, rows.dtype, torch.Size(shape))
    )


def _are_alike(tensors: Sequence[object], dtype: torch.dtype, shape: torch.Size) -> bool:
    """Tell whether they are all there, contiguous, and of that dtype and shape."""
    return all(
        isinstance(tensor, torch.Tensor)
        and tensor.dtype is dtype
        and tensor.shape == shape
        and _is_contiguous(tensor)
        for tensor in tensors
    )


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and tensor.layout is torch.strided and tensor.dim() == 2


def _is_plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether the operands are contiguous, alike, and of a dtype that the op keeps."""
    first, *others = args
    dtype = first.dtype
    if not (dtype.is_floating_point and _is_contiguous(first)):
        return False
    for other in others:
        if isinstance(other, torch.Tensor):
            if other.dtype is not dtype or other.shape != first.shape or not _is_contiguous(other):
                return False
        elif type(other) is not float and type(other) is not int:
            return False
    for name, option in kwargs.items():
        if name == "approximate":
            if option not in ("none", "tanh"):
                return False
        elif type(option) is not float and type(option) is not int:
            return False
    # What is below the virtual GPU's mode, as make_fx's is, wants to see the op itself.
    return bool(len_torch_dispatch_stack() == 0)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and tensor.layout is torch.strided and tensor.is_contiguous()
