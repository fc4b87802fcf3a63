"""Saving tensors that have no values.

A checkpoint of a virtual GPU could only hold rubbish. By default saving one is an error that says
so; where unknown values are answered with nan, the file keeps shapes and dtypes, and loads as meta
tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.virtual.ledger import has_values, holding_of
from vramlab.virtual.patches import Patches
from vramlab.virtual.values import ValuePolicy


def install(values: ValuePolicy, patches: Patches) -> None:
    """Decide how tensors are pickled; `patches.undo()` restores PyTorch's way."""
    reduce = torch.Tensor._reduce_ex_internal

    def reduce_ex(tensor: torch.Tensor, protocol: int) -> Any:
        with torch._C.DisableTorchFunction():
            if holding_of(tensor) is None or has_values(tensor):
                return reduce(tensor, protocol)
            values.save(tensor)
            description = (tensor.dtype, tensor.size(), tensor.stride(), tensor.requires_grad)
        return torch._utils._rebuild_meta_tensor_no_storage, description

    patches.set(torch.Tensor, "_reduce_ex_internal", reduce_ex)
    patches.set(torch.Tensor, "__copy__", _copy)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """`copy.copy(tensor)`, which PyTorch makes by pickling: another tensor of the same storage."""
    same = torch.Tensor._make_subclass(type(tensor), tensor.detach(), tensor.requires_grad)
    same.__dict__.update(tensor.__dict__)
    return same
