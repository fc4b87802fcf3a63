"""DLPack: GPU tensors are exchanged without a copy within PyTorch, and refused by the host.

A capsule carries a few bytes of the host that say they are memory of the GPU, which is what NumPy
and others read, and keeps the tensor alive that it stands for.

Source: the structures of DLPack (dlpack.h, version 0.8); `Tensor.__dlpack__` in torch/_tensor.py
and torch/utils/dlpack.py, PyTorch 2.13.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import torch
import torch.utils.dlpack

from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import HOST, record_of
from vramlab.gpu.torch_internals import Replaced

_NAME = b"dltensor"


class _Bytes(bytearray):
    """Memory of the host that stands for a tensor, and keeps it alive."""

    tensor: torch.Tensor


class _Capsule(ctypes.Structure):
    """The beginning of DLManagedTensor."""

    _fields_ = [  # ctypes reads it so
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
    ]


_EXPORTED: weakref.WeakValueDictionary[int, _Bytes] = weakref.WeakValueDictionary()
"""By address."""


def _device_of(tensor: Any) -> int | None:
    """Return the index of a tensor's GPU; None: it is not on one."""
    record = record_of(tensor) if isinstance(tensor, torch.Tensor) else None
    return None if record is None or record.device_index == HOST else record.device_index


def export(tensor: torch.Tensor, device_index: int) -> Any:
    """Make a capsule of a GPU's tensor.

    Raises:
        BufferError: PyTorch does not export it.
    """
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    if tensor.layout != torch.strided:
        raise BufferError("Can't export tensors with layout other than torch.strided")
    memory = _Bytes(16)
    memory.tensor = tensor
    carrier = torch.frombuffer(memory, dtype=torch.uint8)
    capsule: Any = _to_dlpack(carrier)
    _EXPORTED[carrier.data_ptr()] = memory
    inside = _inside(capsule)
    inside.device_type = int(torch.utils.dlpack.DLDeviceType.kDLCUDA)
    inside.device_index = device_index
    return capsule


def _inside(capsule: Any) -> _Capsule:
    return _Capsule.from_address(_pointer(capsule, _NAME))


def _is_exported(capsule: Any) -> bool:
    return bool(_is_valid(capsule, _NAME)) and _inside(capsule).data in _EXPORTED


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_to_dlpack: Any = vars(torch.utils.dlpack)["to_dlpack"]


def install(session: Session) -> None:
    """Replace how tensors are exported and imported."""
    tensor, patches = torch.Tensor, session.patches
    make, describe = tensor.__dlpack__, tensor.__dlpack_device__
    receive = Replaced.FROM_DLPACK.value()

    def __dlpack__(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if (index := _device_of(self)) is None:
            return make(self, *args, **kwargs)
        return export(self.clone() if kwargs.get("copy") else self, index)

    def __dlpack_device__(self: torch.Tensor) -> Any:  # noqa: N807
        if (index := _device_of(self)) is None:
            return describe(self)
        return torch.utils.dlpack.DLDeviceType.kDLCUDA, index

    def from_capsule(capsule: Any) -> torch.Tensor:
        if not _is_exported(capsule):
            return receive(capsule)
        inside = _inside(capsule)
        found = _EXPORTED[inside.data].tensor
        inside.device_type, inside.device_index = int(torch.utils.dlpack.DLDeviceType.kDLCPU), 0
        receive(capsule)  # as any consumer does, which frees what the capsule holds
        return found.detach()

    def to_capsule(tensor: torch.Tensor) -> Any:
        index = _device_of(tensor)
        return _to_dlpack(tensor) if index is None else export(tensor, index)

    patches.set(tensor, "__dlpack__", __dlpack__)
    patches.set(tensor, "__dlpack_device__", __dlpack_device__)
    patches.set(*Replaced.FROM_DLPACK.at, from_capsule)
    for module in (torch, torch.utils.dlpack):
        patches.set(module, "to_dlpack", to_capsule)
