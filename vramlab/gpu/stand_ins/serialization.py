"""Saving and loading tensors that have no values.

A checkpoint of a virtual GPU could only hold rubbish. By default saving one is an error that says
so. Where unknown values are answered with nan, programs that save checkpoints go on: the file keeps
where each storage was and how large, and loading it allocates the same memory again, on the device
that `map_location` says. Such a file takes next to no room, and can only be loaded while a virtual
GPU is attached.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from vramlab.errors import NoValuesError
from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import (
    has_values,
    mark_as_host,
    record_of,
)
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    Replaced,
    disable_current_modes,
    make_subclass,
    storage_id,
)

MapLocation = str | torch.device | Mapping[str, str] | Callable[[Any, str], Any] | None


class _Loading(threading.local):
    """What the `torch.load` that is going on in a thread needs to know."""

    map_location: MapLocation = None
    bases: dict[int, torch.Tensor] | None = None


_loading = _Loading()


def install(session: Session) -> None:
    """Decide how tensors are pickled."""
    values, patches = session.values, session.patches
    reduce = Replaced.REDUCE_TENSOR.value()

    def reduce_ex(tensor: torch.Tensor, protocol: int) -> Any:
        with DisableTorchFunction():
            record = record_of(tensor)
            if record is None or has_values(tensor):
                return reduce(tensor, protocol)
            values.save(tensor)
            storage = tensor.untyped_storage()
            place = (storage_id(storage), storage.nbytes(), str(record.device))
            view = (tensor.size(), tensor.stride(), tensor.storage_offset())
            return rebuild, (place, tensor.dtype, view, tensor.requires_grad)

    patches.set(*Replaced.REDUCE_TENSOR.at, reduce_ex)
    patches.set(torch.Tensor, "__copy__", _copy)
    load = torch.load

    @functools.wraps(load)
    def load_shapes_too(file: Any, map_location: MapLocation = None, **options: Any) -> Any:
        before = _loading.map_location, _loading.bases
        _loading.map_location, _loading.bases = map_location, {}
        try:
            with torch.serialization.safe_globals([rebuild]):
                return load(file, map_location, **options)  # type: ignore[arg-type]
        finally:
            _loading.map_location, _loading.bases = before

    patches.set(torch, "load", load_shapes_too)
    patches.set(torch.serialization, "load", load_shapes_too)


def rebuild(
    place: tuple[int, int, str],
    dtype: torch.dtype,
    view: tuple[tuple[int, ...], tuple[int, ...], int],
    requires_grad: bool,
) -> torch.Tensor:
    """Make a tensor of a file again, with a size and a place, and without values.

    Args:
        place: which storage it was, the storage's size in bytes, and its device. Tensors of the
            same storage share one again.
        dtype: of the elements.
        view: size, stride and offset in the storage, in elements.
        requires_grad: whether it is a leaf that needs a gradient.
    """
    if _loading.bases is None:
        raise NoValuesError(
            "this file was saved on a virtual GPU and holds no values, only the sizes and places "
            "of tensors: load it while a virtual GPU is attached, or save it on a real GPU"
        )
    storage, storage_bytes, location = place
    base = _loading.bases.get(storage)
    if base is None:
        numel = storage_bytes // dtype.itemsize
        base = _loading.bases[storage] = _without_values(numel, dtype, _device_for(location))
    size, stride, offset = view
    with torch.no_grad():
        tensor = base.view(dtype).as_strided(size, stride, offset)
    return tensor.requires_grad_(requires_grad)


def _device_for(location: str) -> torch.device:
    """Return where torch.load puts what was at `location`."""
    wanted = _loading.map_location
    if isinstance(wanted, Mapping):
        wanted = wanted.get(location, location)
    elif callable(wanted):
        moved = wanted(torch.UntypedStorage(0), location)
        wanted = None if moved is None else moved.device
    return torch.device(location if wanted is None else wanted)


def _without_values(numel: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.empty(numel, dtype=dtype, device=device)
    with DisableTorchFunction(), disable_current_modes():
        made = torch.empty(numel, dtype=dtype, device="meta")
        mark_as_host(made)
    return made


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy for `copy.copy`, where PyTorch would pickle: another tensor of the same storage."""
    same = make_subclass(type(tensor), tensor.detach(), tensor.requires_grad)
    same.__dict__.update(tensor.__dict__)
    return same
