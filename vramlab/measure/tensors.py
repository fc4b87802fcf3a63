"""The tensors that nested values hold, and those that stand behind one tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    is_traceable_wrapper_subclass,
    sparse_parts,
)


def named_tensors(
    value: Any, label: str, *, number_alone: bool = True
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested lists, tuples and mappings, with a name that says where.

    Args:
        value: a tensor, or what holds some.
        label: the name of `value` itself.
        number_alone: whether the only item of a list has a number in its name, too.
    """
    if isinstance(value, torch.Tensor):
        yield label, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_tensors(item, f"{label}.{key}", number_alone=number_alone)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            name = f"{label}[{number}]" if number_alone or len(value) > 1 else label
            yield from named_tensors(item, name, number_alone=number_alone)


def plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors with storages that stand behind one: itself, unless it wraps others.

    A tensor subclass that wraps others (DTensor, quantized weights) stands for those it wraps, a
    sparse tensor for its indices and values.
    """
    if is_traceable_wrapper_subclass(tensor):
        inner_names, _ = tensor.__tensor_flatten__()
        for name in inner_names:
            if isinstance(inner := getattr(tensor, name), torch.Tensor):  # not a device mesh
                yield from plain_tensors(inner)
    elif tensor.layout is torch.sparse_coo:
        for part in sparse_parts(tensor):
            yield from plain_tensors(part)
    else:
        yield tensor


def storage_addresses(tensor: torch.Tensor, device: int) -> Iterator[int]:
    """Find where the storages behind a tensor begin, as far as they are on the device."""
    for plain in plain_tensors(tensor):
        with DisableTorchFunction():  # as it is in a backward pass that Python code has begun
            record = record_of(plain)
        if record is not None:
            if record.device_index == device and record.block is not None:
                yield record.block.address
        elif plain.is_cuda and plain.get_device() == device and plain.numel():
            yield plain.data_ptr() - int(plain.storage_offset()) * plain.element_size()
