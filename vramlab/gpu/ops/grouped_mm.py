"""Products of many matrices in one op, for which meta tensors know bfloat16 only.

CUDA has them in three dtypes. Which row belongs to which group, the values say; the result is as
large for any.

Source: `_grouped_mm_validate_inputs` and `create_grouped_gemm_output_tensor` in
aten/src/ATen/native/GroupedMMUtils.h, PyTorch 2.13.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def product(
    left: Tensor, right: Tensor, offsets: Tensor | None = None, *_: object, **named: Tensor | None
) -> tuple[Tensor]:
    """Make the result of `aten::_grouped_mm`, whose rows begin at multiples of 16 bytes."""
    _check(left, right)
    size = _size(left, right, named.get("offs", offsets))
    in_16_bytes = 16 // left.element_size()
    row = -(-size[-1] // in_16_bytes) * in_16_bytes
    stride = (row, 1) if len(size) == 2 else (size[1] * row, row, 1)
    return (torch.empty_strided(size, stride, dtype=left.dtype, device="meta"),)


def _size(left: Tensor, right: Tensor, offsets: Tensor | None) -> tuple[int, ...]:
    """Compute the result's size. A matrix for a batch holds all groups', one after another."""
    if left.dim() == right.dim() == 2 and offsets is not None:
        return offsets.size(0), left.size(0), right.size(1)
    if left.dim() == right.dim():
        return left.size(0), left.size(1), right.size(-1)
    return left.size(-2), right.size(-1)


def _check(left: Tensor, right: Tensor) -> None:
    for name, operand in (("mat_a", left), ("mat_b", right)):
        if operand.dtype not in _DTYPES:
            raise RuntimeError(
                f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {operand.dtype}"
            )
        if operand.dim() not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if left.dtype != right.dtype:
        raise RuntimeError(
            f"Expected mat_a and mat_b to have the same dtype, got {left.dtype} and {right.dtype}"
        )
    for operand in (left, right):
        _check_strides(operand)
    if (left.dim(), right.dim()) != (2, 2) and left.size(-1) != right.size(-2):
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")


def _check_strides(operand: Tensor) -> None:
    """Refuse rows, or columns, that do not begin at multiples of 16 B.

    Source: `check_valid_strides_and_return_transposed` in the same file.
    """
    in_16_bytes = 16 // operand.element_size()
    rows, columns = operand.shape[-2:]
    step, stride = operand.stride()[-2:]
    if step == 1 and stride >= max(1, rows):
        apart = stride
    elif stride == 1 and step >= max(1, columns):
        apart = step
    else:
        raise RuntimeError(
            f"Invalid strides/sizes, got {list(operand.stride())} for strides and "
            f"{list(operand.shape)} for sizes"
        )
    if apart % in_16_bytes:
        raise RuntimeError("strides should be multiple of 16 bytes")
