"""Send host tensors without values to other processes, as DataLoader's workers do with batches.

What the virtual GPU keeps no values of, such as a batch of large images, has no memory that could
be shared. The process that receives it makes one alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import HOST, record_of_storage
from vramlab.gpu.torch_internals import DisableTorchFunction, StorageBase


@contextmanager
def install(session: Session) -> Iterator[None]:
    """Register how tensors are sent; afterwards, it is PyTorch's way again."""
    classes = (torch.Tensor, torch.nn.Parameter)
    for kind in classes:
        ForkingPickler.register(kind, reduce_with_or_without_values)
    try:
        yield
    finally:
        for kind in classes:
            ForkingPickler.register(kind, reduce_tensor)


def reduce_with_or_without_values(tensor: torch.Tensor) -> tuple[Callable[..., Any], Any]:
    """Return how a tensor is sent: as PyTorch does, or only its shape if it has no values.

    Raises:
        RuntimeError: it needs a gradient and is no leaf, as PyTorch says.
    """
    with DisableTorchFunction():
        if not _is_without_values(tensor) or (tensor.requires_grad and not tensor.is_leaf):
            return reduce_tensor(tensor)
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        needs = tensor.requires_grad
        storage_bytes = tensor.untyped_storage().nbytes()
        how = (size, stride, tensor.storage_offset(), tensor.dtype, storage_bytes)
        return make_without_values, (*how, needs, is_parameter)


def make_without_values(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    storage_bytes: int,
    needs_gradient: bool,
    is_parameter: bool,
) -> torch.Tensor:
    """Make a host tensor like one that was sent; where no GPU is virtual, its values are any."""
    base = torch.empty(storage_bytes // dtype.itemsize, dtype=dtype)
    tensor = base.as_strided(size, stride, offset)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=needs_gradient)
    return tensor.requires_grad_(needs_gradient)


def _is_without_values(tensor: torch.Tensor) -> bool:
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):  # sparse, lazy, or a wrapper
        return False
    raw: Any = StorageBase
    record = record_of_storage(storage)
    is_meta = raw.device.__get__(storage).type == "meta"
    return is_meta and record is not None and record.device_index == HOST
