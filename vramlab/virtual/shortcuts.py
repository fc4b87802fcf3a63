"""Answer ops at once where their result is plain to see, without the meta kernel.

PyTorch infers the shapes of many element-wise ops in Python, which takes longer than everything
else that happens to an op here. Where all operands are numbers or contiguous floating-point tensors
of one shape and dtype, the result has that shape and dtype too, or is the operand that is changed.
Batch norm is inferred as a score of such ops; in training its results are plain to see as well.
Anything else goes to the meta kernel: broadcasts, promotions, other layouts, and all errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

Result = torch.Tensor | tuple[torch.Tensor, ...]

Shortcut = Callable[[Sequence[Any], Mapping[str, Any]], Result | None]
"""From an op's arguments to its result; None where the meta kernel has to be asked."""

aten = torch.ops.aten

IN_PLACE = (
    aten.add_.Tensor,
    aten.sub_.Tensor,
    aten.mul_.Tensor,
    aten.div_.Tensor,
    aten.add_.Scalar,
    aten.sub_.Scalar,
    aten.mul_.Scalar,
    aten.div_.Scalar,
    aten.lerp_.Scalar,
    aten.addcmul_.default,
    aten.addcdiv_.default,
    aten.sqrt_.default,
    aten.neg_.default,
)
"""Ops whose result is their first argument."""

NEW = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.add.Scalar,
    aten.sub.Scalar,
    aten.mul.Scalar,
    aten.div.Scalar,
    aten.lerp.Scalar,
    aten.addcmul.default,
    aten.addcdiv.default,
    aten.sqrt.default,
    aten.rsqrt.default,
    aten.neg.default,
    aten.exp.default,
    aten.gelu.default,
    aten.silu.default,
    aten.tanh.default,
    aten.sigmoid.default,
    aten.gelu_backward.default,
    aten.silu_backward.default,
    aten.tanh_backward.default,
    aten.sigmoid_backward.default,
)
"""Ops whose result is new, and like their first argument."""

_META = torch.device("meta")


def _in_place(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    return args[0] if _is_plain(args, kwargs) else None


def _new(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    if not _is_plain(args, kwargs):
        return None
    return _like(args[0])


def _batch_norm(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Output, and mean and inverse deviation of each channel."""
    if kwargs or not _is_plain_batch(args[0], args[1:5], args[5]):
        return None
    images = args[0]
    return _like(images), *(_like(args[1]) for _ in range(2))


def _batch_norm_backward(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result | None:
    """Gradients of input, weight and bias."""
    gradient, images, *channels, training, _, wanted = args
    if kwargs or not _is_plain_batch(images, channels, training):
        return None
    if not (all(wanted) and _is_plain((images, gradient), {})):
        return None
    return _like(images), *(_like(channels[0]) for _ in range(2))


SHORTCUTS: Mapping[OpOverload, Shortcut] = {
    **dict.fromkeys(IN_PLACE, _in_place),
    **dict.fromkeys(NEW, _new),
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
}
"""By op. For meta tensors only: they compute nothing."""


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=_META)


def _is_plain_batch(images: object, channels: Sequence[object], training: object) -> bool:
    """Whether it is float32 (N, C, ...) in training, with everything there that has C numbers."""
    if training is not True or not isinstance(images, torch.Tensor) or images.dim() < 2:
        return False
    return (
        images.dtype is torch.float32
        and _is_plain((images,), {})
        and all(
            isinstance(numbers, torch.Tensor)
            and numbers.dtype is torch.float32
            and numbers.shape == images.shape[1:2]
            and _is_contiguous(numbers)
            for numbers in channels
        )
    )


def _is_plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the operands are contiguous, alike, and of a dtype that the op keeps."""
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
    # A dispatch mode that was there before the GPU was attached wants to see the op itself; another
    # virtual GPU, for which this one stands in, does not.
    modes = map(torch._C._get_dispatch_stack_at, range(torch._C._len_torch_dispatch_stack()))
    return all(getattr(mode, "is_virtual_gpu", False) for mode in modes)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and tensor.layout is torch.strided and tensor.is_contiguous()
