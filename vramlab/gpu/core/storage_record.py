"""Which storage is where: the link between torch's storages and the allocator's blocks.

A meta tensor holds no device index and no values, so both are written on its storage, as a
`StorageRecord`. PyTorch keeps the Python object of a storage alive as long as the storage itself
(PyObject preservation, torch 2.1 and later), so a record lives exactly as long as its storage:
when the last tensor goes, the record goes, and its block is given back to the cache. No table is
kept, nothing is looked up, nothing can be forgotten.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from vramlab.gpu.core.values.shadows import Shadow, Shadows, covers
from vramlab.gpu.torch_internals import sparse_parts

if TYPE_CHECKING:
    from vramlab.allocator import Block
    from vramlab.gpu.core.machine import Machine

HOST = -1
"""The device index of a host tensor that holds no values."""

ATTRIBUTE = "_vramlab_record"
"""The attribute of a storage that holds its record."""

_CPU = torch.device("cpu")

Scalar = bool | int | float | complex


class StorageRecord:
    """What one storage holds, and where.

    Attributes:
        device_index: CUDA device index, or `HOST`.
        block: the allocator's block; None for host storages and for empty ones.
        machine: the machine whose GPU it is on; None for host storages.
        shadow: what the storage holds, where that is known (`shadows.py`), else None.
        counted_as: what every element is as if masks chose all that they can (`ops/counts.py`).
        pinned: host memory that is page-locked.
        overwritten: host memory with values that were overwritten with unknown ones.
    """

    __slots__ = (
        "block",
        "counted_as",
        "device_index",
        "machine",
        "overwritten",
        "pinned",
        "shadow",
    )

    def __init__(
        self, device_index: int, block: Block | None = None, machine: Machine | None = None
    ):
        self.device_index = device_index
        self.block = block
        self.machine = machine
        self.shadow: Shadow | None = None
        self.counted_as: Scalar | None = None
        self.pinned = False
        self.overwritten = False

    @property
    def device(self) -> torch.device:
        """The device that a program believes the storage to be on."""
        is_host = self.device_index == HOST
        return _CPU if is_host else torch.device("cuda", self.device_index)

    def forget_values(self) -> None:
        """Mark the storage's values as unknown."""
        self.shadow = self.counted_as = None

    def release(self) -> None:
        """Free the block now, before the storage is destroyed."""
        block, self.block = self.block, None
        if block is not None and self.machine is not None:
            self.machine.free(self.device_index, block)

    def __del__(self) -> None:
        self.release()


def record_of_storage(storage: torch.UntypedStorage) -> StorageRecord | None:
    """Read a storage's record; None for one that the virtual GPU does not manage."""
    return storage.__dict__.get(ATTRIBUTE)


def record_of(tensor: torch.Tensor) -> StorageRecord | None:
    """Read the record of a tensor's storage; None for what the virtual GPU does not manage.

    Must be called where torch functions are not intercepted (inside a kernel or a handler). A
    tensor that wraps others, such as a DTensor, is where the first of them is.
    """
    if wraps(type(tensor)):
        wrapper: Any = tensor
        return record_of(getattr(tensor, wrapper.__tensor_flatten__()[0][0]))
    try:
        return tensor.untyped_storage().__dict__.get(ATTRIBUTE)
    except (NotImplementedError, RuntimeError):  # sparse and wrapper tensors have no storage
        return record_of(sparse_parts(tensor)[1]) if tensor.layout == torch.sparse_coo else None
    except ValueError:  # parameters without a shape yet, of lazy modules
        return None


def mark_as_host(tensor: torch.Tensor) -> StorageRecord:
    """Return the record of a host tensor's storage; write one if it has none yet."""
    record = record_of(tensor)
    if record is None:
        record = StorageRecord(HOST)
        tensor.untyped_storage().__dict__[ATTRIBUTE] = record
    return record


@cache
def wraps(tensor_type: type) -> bool:
    """Return whether tensors of a type wrap others, and ops on them become ops on those."""
    return hasattr(tensor_type, "__tensor_flatten__")


def has_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements can be read: not meta, nor overwritten by unknown ones."""
    if tensor.is_meta:
        return False
    record = record_of(tensor)
    return record is None or not record.overwritten


class RecordShadows(Shadows):
    """Shadows that are kept in the records of meta storages."""

    def shadow_of(self, tensor: torch.Tensor) -> Shadow | None:
        """Return the shadow of a tensor's storage; None where it is not known."""
        record = record_of(tensor)
        return None if record is None else record.shadow

    def set_shadow(self, tensor: torch.Tensor, shadow: Shadow | None) -> None:
        """Give a tensor's storage a shadow, or take it away."""
        record = record_of(tensor)
        if record is not None:
            record.shadow = shadow
            record.counted_as = None

    def fill(self, tensor: torch.Tensor, value: Scalar) -> None:
        """Note that a tensor was filled with a number; what that is in bytes, when it is asked."""
        if covers(tensor):
            self.set_shadow(tensor, Shadow.filled(value, tensor.dtype))
        else:
            super().fill(tensor, value)

    def empty(self, tensor: torch.Tensor) -> Shadow:
        """Make a shadow of all bytes of a tensor's storage."""
        return Shadow(torch.UntypedStorage(tensor.untyped_storage().nbytes(), device=_CPU))

    def is_followed(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is dense, and has no values but those of its shadow."""
        return (
            tensor.is_meta
            and tensor.layout is torch.strided
            and not wraps(type(tensor))
            and record_of(tensor) is not None
        )


SHADOWS = RecordShadows()
"""Those of all virtual GPUs."""


def remember(tensor: torch.Tensor, value: Scalar) -> None:
    """Note that a tensor was filled with a number."""
    if SHADOWS.is_followed(tensor):
        SHADOWS.fill(tensor, value)


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor's values as a host tensor, where they are known. Do not change it."""
    if has_values(tensor):
        return tensor
    return SHADOWS.known(tensor) if SHADOWS.is_followed(tensor) else None


def known_number(tensor: torch.Tensor) -> Scalar | None:
    """Return the value of a tensor of one element, where it is known."""
    if tensor.numel() != 1:
        return None
    values = known(tensor)
    return None if values is None else values.item()
