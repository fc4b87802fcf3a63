"""Products of 8-bit and 4-bit numbers, with their scales: who has them, and what they give.

Source: `_scaled_mm_out_cuda` and `_scaled_mm_allowed_device` in
aten/src/ATen/native/cuda/ScaledBlas.cpp, PyTorch 2.13; shapes and layouts are checked by
`_check_scaled_mm_sizes` in torch/_meta_registrations.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.torch_internals import OpOverload

_LEAST_CAPABILITY = (8, 9)
_BLOCK_SCALES = (torch.float8_e8m0fnu, torch.float8_e4m3fn)


@handler("aten._scaled_mm.default")
def scaled_mm(
    dispatcher: Dispatcher, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Refuse it where CUDA does; where values are wanted, multiply in float32.

    Raises:
        RuntimeError: the GPU has no such products, or not of these operands.
        UnsupportedOnVirtualGPU: values are wanted of blocks, whose scales lie in tiles.
    """
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if device_index is None or device_index < 0:
        return dispatcher.run_plain(func, args, kwargs)
    _refuse_older_gpus("_scaled_mm", dispatcher, device_index)
    if dispatcher.backing_device.type == "meta":
        return dispatcher.run_plain(func, args, kwargs)
    shape = func(*map(_on_meta, args), **{name: _on_meta(arg) for name, arg in kwargs.items()})
    left, right, left_scale, right_scale, *rest = args
    if left_scale.dtype in _BLOCK_SCALES:
        raise UnsupportedOnVirtualGPU("values of a product whose scales lie in tiles (MX, NVFP4)")
    bias = rest[0] if rest else kwargs.get("bias")
    product = (left.float() * left_scale) @ (right.float() * right_scale)
    result = (product if bias is None else product + bias).to(shape.dtype)
    dispatcher.count_call(func, device_index)
    dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    return result


@handler("aten._scaled_addmm.default")
def scaled_addmm(
    dispatcher: Dispatcher, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Refuse it where CUDA does.

    Raises:
        RuntimeError: the GPU has no such products.
    """
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if device_index is not None and device_index >= 0:
        _refuse_older_gpus("_scaled_addmm", dispatcher, device_index)
    return dispatcher.run_plain(func, args, kwargs)


def _refuse_older_gpus(name: str, dispatcher: Dispatcher, device_index: int) -> None:
    model = dispatcher.machine.devices[device_index].model
    major, minor = model.compute_capability
    if (major, minor) < _LEAST_CAPABILITY:
        raise RuntimeError(
            f"torch.{name} is only supported on CUDA devices with compute capability >= 9.0 or "
            f"8.9, or ROCm MI300+: this {model.name} has {major}.{minor}"
        )


def _on_meta(argument: Any) -> Any:
    """Return the same tensor without values; anything else as it is."""
    if not isinstance(argument, Tensor):
        return argument
    size, stride = argument.size(), argument.stride()
    return torch.empty_strided(size, stride, dtype=argument.dtype, device="meta")
