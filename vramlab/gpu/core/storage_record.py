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
        value: what every element of the storage is, where that is known, else None.
        counted_as: what every element is as if masks chose all that they can (`ops/counts.py`).
        numbers: a copy of few whole numbers that came from the host, while they are unchanged.
        pinned: host memory that is page-locked.
        overwritten: host memory with values, over which values were copied that nobody knows.
    """

    __slots__ = (
        "_machine",
        "block",
        "counted_as",
        "device_index",
        "numbers",
        "overwritten",
        "pinned",
        "value",
    )

    def __init__(
        self, device_index: int, block: Block | None = None, machine: Machine | None = None
    ):
        self.device_index = device_index
        self.block = block
        self._machine = machine
        self.value: Scalar | None = None
        self.counted_as: Scalar | None = None
        self.numbers: torch.Tensor | None = None
        self.pinned = False
        self.overwritten = False

    @property
    def device(self) -> torch.device:
        """The device that a program believes the storage to be on."""
        is_host = self.device_index == HOST
        return _CPU if is_host else torch.device("cuda", self.device_index)

    def forget_values(self) -> None:
        """Note that nobody knows any longer what the storage holds."""
        self.value = self.counted_as = self.numbers = None

    def release(self) -> None:
        """Give the block back now, instead of when the storage goes."""
        block, self.block = self.block, None
        if block is not None and self._machine is not None:
            self._machine.free(self.device_index, block)

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
    """Return the record of a host tensor's storage; write one where there is none yet."""
    record = record_of(tensor)
    if record is None:
        record = StorageRecord(HOST)
        tensor.untyped_storage().__dict__[ATTRIBUTE] = record
    return record


@cache
def wraps(tensor_type: type) -> bool:
    """Tell whether tensors of a type wrap others, and ops on them become ops on those."""
    return hasattr(tensor_type, "__tensor_flatten__")


def has_values(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's elements can be read: not meta, nor overwritten by unknown ones."""
    if tensor.is_meta:
        return False
    record = record_of(tensor)
    return record is None or not record.overwritten


def remember(tensor: torch.Tensor, value: Scalar) -> None:
    """Note what every element of a tensor is, as its dtype holds it, if it fills its storage."""
    record = record_of(tensor)
    if record is not None and tensor.untyped_storage().nbytes() == tensor.nbytes:
        record.value = torch.tensor(value, dtype=tensor.dtype, device="cpu").item()
        record.numbers = None


def known(tensor: torch.Tensor) -> Scalar | None:
    """Return the value of every element of a tensor, where it is known."""
    if has_values(tensor):
        return tensor.item() if tensor.numel() == 1 else None
    record = record_of(tensor)
    if record is None:
        return None
    if tensor.numel() == 1 and (numbers := known_numbers(tensor)) is not None:
        return numbers.item()
    return record.value


_MOST_NUMBERS_BYTES = 2**16


def remember_numbers(source: torch.Tensor, copied: torch.Tensor) -> None:
    """Note few whole numbers that are copied from the host: sizes, lengths, labels.

    Programs copy such numbers back to count with them, and to make tensors of those sizes.
    """
    record = record_of(copied)
    if record is None or copied.layout != torch.strided or wraps(type(copied)):
        return
    if copied.dtype.is_floating_point or copied.dtype.is_complex:
        return
    storage_bytes = copied.untyped_storage().nbytes()
    if storage_bytes != copied.nbytes or storage_bytes > _MOST_NUMBERS_BYTES:
        return
    flat = torch.empty(copied.numel(), dtype=copied.dtype, device="cpu")
    flat.as_strided(copied.size(), copied.stride()).copy_(source)
    record.numbers = flat


def known_numbers(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the numbers of a tensor on a GPU, as a host tensor, where they are known."""
    record = record_of(tensor)
    numbers = None if record is None else record.numbers
    if numbers is None or numbers.dtype != tensor.dtype:
        return None
    return numbers.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
