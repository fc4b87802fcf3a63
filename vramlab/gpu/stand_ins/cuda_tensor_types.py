"""`torch.cuda.FloatTensor` and its like: the names by which older programs choose a GPU.

A CPU build of PyTorch has these names, but refuses to use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session

_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


class _CudaTensorType(type):
    """A type without instances of its own: tensors on a GPU with its dtype count as its instances.

    Calling it makes one, from sizes or from data, on the current GPU.
    """

    dtype: torch.dtype
    is_cuda = True

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype
        )

    def __call__(cls, *sizes_or_data: Any) -> torch.Tensor:
        first = sizes_or_data[0] if sizes_or_data else 0
        if isinstance(first, int | torch.Size):
            return torch.empty(*(sizes_or_data or (0,)), dtype=cls.dtype, device="cuda")
        return torch.tensor(first, dtype=cls.dtype, device="cuda")


CUDA_TYPES: dict[str, _CudaTensorType] = {
    f"torch.cuda.{name}": _CudaTensorType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
    for name, dtype in _DTYPES.items()
}


def cuda_type(named: Any) -> _CudaTensorType | None:
    """Find the type of a name such as "torch.cuda.HalfTensor", or `named` itself if it is one."""
    if isinstance(named, str):
        return CUDA_TYPES.get(named)
    return named if isinstance(named, _CudaTensorType) else None


@contextmanager
def install(session: Session) -> Iterator[None]:
    """Set the types on torch.cuda, until the session ends."""
    patches = session.patches
    for tensor_type in CUDA_TYPES.values():
        patches.set(torch.cuda, tensor_type.__name__, tensor_type)
    set_default_tensor_type = torch.set_default_tensor_type
    default = _DefaultType()

    def set_default(named: Any) -> None:
        tensor_type = cuda_type(named)
        if tensor_type is not None:
            torch.set_default_dtype(tensor_type.dtype)
            torch.set_default_device("cuda")
        else:
            if default.made_by_tensor is not None:
                torch.set_default_device(None)
            set_default_tensor_type(named)
        default.set(tensor_type)

    patches.set(torch, "set_default_tensor_type", set_default)
    try:
        yield
    finally:
        default.set(None)


class _DefaultType:
    """What `torch.Tensor(...)` makes: it asks for the default type, and for no default device."""

    def __init__(self) -> None:
        self.made_by_tensor: _CudaTensorType | None = None
        self._patches = Patches()

    def set(self, tensor_type: _CudaTensorType | None) -> None:
        """Have `torch.Tensor` make tensors of a type on a GPU; of None: as PyTorch does."""
        self._patches.undo()
        self.made_by_tensor = tensor_type
        if tensor_type is None:
            return
        make = torch.Tensor.__new__

        def new(cls: Any, *sizes_or_data: Any, **named: Any) -> Any:
            if cls is not torch.Tensor or named:
                return make(cls, *sizes_or_data, **named)
            return tensor_type(*sizes_or_data)

        self._patches.set(torch.Tensor, "__new__", staticmethod(new))
