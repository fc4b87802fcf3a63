"""Let storages answer as storages on a GPU: their device, their address, and changes of their size.

Storage methods pass neither torch function modes nor the dispatcher, so they are set on torch's
class.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import HOST, record_of_storage
from vramlab.gpu.core.values.shadows import Shadow
from vramlab.gpu.torch_internals import Replaced, StorageBase, get_device_index


def install(session: Session) -> None:
    """Set the answers on `torch.UntypedStorage`."""
    machine, patches = session.machine, session.patches
    raw: Any = StorageBase
    cls = torch.UntypedStorage

    def device(storage: torch.UntypedStorage) -> torch.device:
        record = record_of_storage(storage)
        return raw.device.__get__(storage) if record is None else record.device

    def is_cuda(storage: torch.UntypedStorage) -> bool:
        return device(storage).type == "cuda"

    def get_device(storage: torch.UntypedStorage) -> int:
        index = device(storage).index
        return -1 if index is None else index

    def data_ptr(storage: torch.UntypedStorage) -> int:
        record = record_of_storage(storage)
        if record is None or record.block is None:
            return int(raw.data_ptr(storage))
        return int(record.block.address)

    def resize_(storage: torch.UntypedStorage, size_bytes: int) -> torch.UntypedStorage:
        record = record_of_storage(storage)
        if record is not None and record.device_index != HOST:
            block = machine.malloc(record.device_index, size_bytes) if size_bytes else None
            record.release()
            record.block = block
        if record is not None:
            record.forget_values()
        raw.resize_(storage, size_bytes)
        return storage

    def fill_(storage: torch.UntypedStorage, value: int) -> torch.UntypedStorage:
        record = record_of_storage(storage)
        if record is not None:
            record.shadow = Shadow.filled(value, torch.uint8)
            record.counted_as = None
        raw.fill_(storage, value)
        return storage

    def copy_(
        storage: torch.UntypedStorage,
        source: torch.UntypedStorage,
        non_blocking: bool | None = None,
    ) -> torch.UntypedStorage:
        record = record_of_storage(storage)
        if record is None and record_of_storage(source) is None:
            copied: torch.UntypedStorage = original_copy_(storage, source, non_blocking)
            return copied
        with torch.no_grad():
            _as_bytes(storage).copy_(_as_bytes(source))
        return storage

    def setitem(storage: torch.UntypedStorage, index: Any, value: Any) -> None:
        if (record := record_of_storage(storage)) is not None:
            record.forget_values()
        else:
            original_setitem(storage, index, value)

    def to(
        storage: torch.UntypedStorage, *, device: torch.device, non_blocking: bool = False
    ) -> torch.UntypedStorage:
        if torch.device(device).type != "cuda":
            return original_to(storage, device=device, non_blocking=non_blocking)
        return torch.empty(
            storage.nbytes(), dtype=torch.uint8, device=torch.device(device)
        ).untyped_storage()

    def cuda(
        storage: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
    ) -> torch.UntypedStorage:
        index = get_device_index(device, optional=True)
        return to(storage, device=torch.device("cuda", index), non_blocking=non_blocking)

    original_to, original_copy_, original_setitem = cls.to, cls.copy_, cls.__setitem__
    patches.set(cls, "to", to)
    patches.set(cls, "cuda", cuda)

    def share_cuda(storage: torch.UntypedStorage) -> None:
        raise UnsupportedOnVirtualGPU(
            "tensors on a virtual GPU cannot be shared with other processes: each process has its "
            "own virtual GPUs. Use threads, or keep what is shared on the host (.cpu() first)"
        )

    patches.set(cls, "device", property(device))
    patches.set(cls, "is_cuda", property(is_cuda))
    patches.set(cls, "get_device", get_device)
    patches.set(cls, "data_ptr", data_ptr)
    patches.set(cls, "resize_", resize_)
    patches.set(cls, "fill_", fill_)
    patches.set(cls, "copy_", copy_)
    patches.set(cls, "__setitem__", setitem)
    patches.set(*Replaced.SHARE_STORAGE.at, share_cuda)


def _as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
