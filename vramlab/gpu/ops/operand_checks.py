"""What CUDA's kernels refuse and meta kernels let pass: mixed dtypes, a dimension out of range.

Source: ADDMM_META in aten/src/ATen/native/LinearAlgebra.cpp, `addmm_out_cuda_impl` and
`bmm_out_cuda_impl` in aten/src/ATen/native/cuda/Blas.cpp, Embedding.cpp in aten/src/ATen/native,
NLLLoss.cu and SoftMax.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.errors import type_name
from vramlab.gpu.core.op_table import check

_NAMES = {
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.bool: "Bool",
}
_CPP_NAMES = {
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.int32: "int",
    torch.int64: "long int",
}

_NO_REDUCTION = 0
"""`at::Reduction::None`, in aten/src/ATen/core/Reduction.h."""


def _name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def cpp_name(dtype: torch.dtype) -> str:
    """Name a dtype as C++ does in its messages."""
    return _CPP_NAMES.get(dtype, str(dtype).removeprefix("torch."))


@check("aten.mm.default", "aten.mm.out")
def mm(self: Tensor, mat2: Tensor, *_: Any) -> None:
    """Refuse operands of different dtypes."""
    if self.dtype != mat2.dtype:
        raise RuntimeError(
            "expected mat1 and mat2 to have the same dtype, but got: "
            f"{cpp_name(self.dtype)} != {cpp_name(mat2.dtype)}"
        )


@check("aten.addmm.default", "aten.addmm.out", "aten.addmm_.default")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *_: Any) -> None:
    """Refuse operands of different dtypes."""
    for name, left in (("self", self), ("mat1", mat1)):
        if left.dtype != mat2.dtype:
            raise RuntimeError(
                f"{name} and mat2 must have the same dtype, but got {_name(left.dtype)} and "
                f"{_name(mat2.dtype)}"
            )


@check("aten.bmm.default", "aten.bmm.out")
def bmm(self: Tensor, mat2: Tensor, *_: Any) -> None:
    """Refuse operands of different dtypes."""
    if self.dtype != mat2.dtype:
        raise RuntimeError(
            f"expected scalar type {_name(self.dtype)} but found {_name(mat2.dtype)}"
        )


@check("aten.embedding.default")
def embedding(weight: Tensor, indices: Tensor, *_: Any) -> None:
    """Refuse indices that are no whole numbers, as C++ does for meta tensors from 2.13 on."""
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {type_name(indices)} instead (while checking arguments for "
            "embedding)"
        )


@check("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, *_: Any) -> None:
    """Refuse targets that are neither Long nor Byte.

    There is one check for all devices from PyTorch 2.12 on; before, each kernel had words of its
    own. Source of those: NLLLoss.cu and NLLLoss2d.cu in aten/src/ATen/native/cuda, PyTorch 2.11.
    """
    if target.dtype in (torch.int64, torch.uint8):
        return
    found = _name(target.dtype)
    if torch.__version__ >= "2.12":  # compared as a version, not letter by letter
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {found}")
    if self.dim() > 2:
        raise RuntimeError(f"expected scalar type Long but found {found}")
    reduces = reduction != _NO_REDUCTION or self.dim() == 1
    kernel = f"reduce_cuda_kernel_{self.dim()}d" if reduces else "no_reduce_cuda_kernel"
    raise NotImplementedError(f"\"nll_loss_forward_{kernel}_index\" not implemented for '{found}'")


@check("aten._softmax.default", "aten._log_softmax.default")
def softmax(self: Tensor, dim: int, *_: Any) -> None:
    """Refuse a dimension that the operand does not have."""
    size = max(self.dim(), 1)
    if not -size <= dim < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got "
            f"{dim})"
        )


@check("aten._nested_tensor_from_tensor_list.default")
def nested_tensor(*_: Any) -> None:
    """Refuse nested tensors of an older kind: C++ makes none on the device behind a virtual GPU."""
    raise UnsupportedOnVirtualGPU(
        "nested tensors of layout torch.strided are not modelled by the virtual GPU. Take "
        "layout=torch.jagged, or run on the native engine (--engine native)."
    )
