"""The virtual GPU's error messages: torch's words where torch has them, else what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from vramlab.errors import NoValuesError, UnsupportedOnVirtualGPU
from vramlab.virtual.ledger import HOST, holding_of


def device_name(tensor: torch.Tensor) -> str:
    """Name the device that a program believes `tensor` to be on."""
    holding = holding_of(tensor)
    if holding is None:
        return str(tensor.device)
    return "cpu" if holding.place == HOST else f"cuda:{holding.place}"


def device_mismatch(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> RuntimeError:
    """Say that operands are on different devices, as CUDA's kernels do.

    Source: element-wise kernels check in aten/src/ATen/TensorIterator.cpp; others in the wrapper
    that torchgen writes, through c10::impl::check_and_update_common_device in
    aten/src/ATen/core/op_registration/adaption.cpp. PyTorch 2.13.
    """
    named = [
        (schema.name, tensor)
        for schema, arg in zip(func._schema.arguments, args, strict=False)
        for tensor in (arg if isinstance(arg, list | tuple) else [arg])
        if isinstance(tensor, torch.Tensor) and tensor.dim() > 0
    ]
    named += [(name, arg) for name, arg in kwargs.items() if isinstance(arg, torch.Tensor)]
    first = device_name(named[0][1])
    name, other = next(
        (name, device_name(tensor)) for name, tensor in named if device_name(tensor) != first
    )
    if torch.Tag.pointwise in func.tags:
        gpu, rest = (first, other) if first.startswith("cuda") else (other, first)
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{gpu} and {rest}!"
        )
    if not first.startswith("cuda"):
        name, first, other = named[0][0], other, first
    method = func._schema.name.removeprefix("aten::")
    return RuntimeError(
        f"Expected all tensors to be on the same device, but got {name} is on {other}, different "
        f"from other tensors on {first} (when checking argument in method wrapper_CUDA_{method})"
    )


def no_kernel(func: OpOverload, error: Exception) -> UnsupportedOnVirtualGPU:
    """Say that an op has no model, so that it is not counted as zero."""
    return UnsupportedOnVirtualGPU(
        f"{func} is not modelled by the virtual GPU: PyTorch has no shape rule for it "
        f"({_first_line(error)}). Replace the op, run this part on the host (.cpu() first), use "
        "values=True for small tensors, or run on a real GPU."
    )


def no_values(what: str, tensor: torch.Tensor | None = None) -> NoValuesError:
    """Say that a value was asked where there is none."""
    of = ""
    if tensor is not None:
        of = f" of a {tensor.dtype} tensor of shape {tuple(tensor.shape)} on {device_name(tensor)}"
    return NoValuesError(
        f"{what}{of}: a virtual GPU keeps sizes and places of tensors, not their values. Leave "
        "this line out, or guard it; for small programs whose values matter use "
        "VirtualGPU(..., values=True); `vramlab run` answers nan and 0 instead."
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
