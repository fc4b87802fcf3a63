"""Which storage is where: the link between torch's storages and the allocator's blocks.

A meta tensor holds no device index and no values, so both are written on its storage, as a
`Holding`. PyTorch keeps the Python object of a storage alive as long as the storage itself
(PyObject preservation, torch 2.1 and later), so a holding lives exactly as long as its storage:
when the last tensor goes, the holding goes, and its block is given back to the cache. No table is
kept, nothing is looked up, nothing can be forgotten.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vramlab.allocator import Block
    from vramlab.gpu.core.machine import Machine

HOST = -1
"""The place of a host tensor that holds no values."""

ATTRIBUTE = "_vramlab_holding"
"""The attribute of a storage that holds its holding."""

Scalar = bool | int | float | complex


class Holding:
    """What one storage holds, and where.

    Attributes:
        place: CUDA device index, or `HOST`.
        block: the allocator's block; None for host storages and for empty ones.
        value: what every element of the storage is, where that is known, else None.
        numbers: a copy of few whole numbers that came from the host, while they are unchanged.
        pinned: host memory that is page-locked.
        overwritten: host memory with values, over which values were copied that nobody knows.
    """

    __slots__ = ("_machine", "block", "numbers", "overwritten", "pinned", "place", "value")

    def __init__(self, place: int, block: Block | None = None, machine: Machine | None = None):
        self.place = place
        self.block = block
        self._machine = machine
        self.value: Scalar | None = None
        self.numbers: torch.Tensor | None = None
        self.pinned = False
        self.overwritten = False

    def forget(self) -> None:
        """Note that nobody knows any longer what the storage holds."""
        self.value = self.numbers = None

    def release(self) -> None:
        """Give the block back now, instead of when the storage goes."""
        block, self.block = self.block, None
        if block is not None and self._machine is not None:
            self._machine.free(self.place, block)

    def __del__(self) -> None:
        self.release()


def attach_holding(tensor: torch.Tensor, holding: Holding) -> None:
    """Write on `tensor`'s storage where it is."""
    tensor.untyped_storage().__dict__[ATTRIBUTE] = holding


def holding_of(tensor: torch.Tensor) -> Holding | None:
    """Where `tensor`'s storage is: None for what the virtual GPU does not manage.

    Must be called where torch functions are not intercepted (inside a kernel or a handler). A
    tensor that wraps others, such as a DTensor, is where the first of them is.
    """
    if wraps(type(tensor)):
        wrapper: Any = tensor
        return holding_of(getattr(tensor, wrapper.__tensor_flatten__()[0][0]))
    try:
        return tensor.untyped_storage().__dict__.get(ATTRIBUTE)
    except (NotImplementedError, RuntimeError):  # sparse and wrapper tensors have no storage
        return holding_of(tensor._values()) if tensor.layout == torch.sparse_coo else None
    except ValueError:  # parameters without a shape yet, of lazy modules
        return None


@cache
def wraps(tensor_type: type) -> bool:
    """Whether tensors of a type hold others, and ops on them become ops on those."""
    return hasattr(tensor_type, "__tensor_flatten__")


def has_values(tensor: torch.Tensor) -> bool:
    """Whether `tensor`'s elements can be read: not on meta, and not overwritten by unknown ones."""
    if tensor.is_meta:
        return False
    holding = holding_of(tensor)
    return holding is None or not holding.overwritten


def holding_of_storage(storage: torch.UntypedStorage) -> Holding | None:
    """The same for a storage."""
    return storage.__dict__.get(ATTRIBUTE)
