"""Sorting tensors by device and dtype, as foreach optimizers and gradient clipping do.

C++ would find one device, meta, for the tensors of all GPUs.

Source: `_group_tensors_by_first_tensors_device_and_dtype` in aten/src/ATen/native/ForeachUtils.h,
PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import Replaced

Group = tuple[list[list[Tensor | None]], list[int]]


def install(session: Session) -> None:
    """Replace the function of `torch._C` that sorts."""
    session.patches.set(*Replaced.GROUP_TENSORS.at, group_tensors)


def group_tensors(
    lists: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[torch.device, torch.dtype], Group]:
    """Sort by the first list's tensors: the group of each takes its neighbours in other lists.

    Returns:
        (device, dtype) -> (the group's part of each list, or an empty list for an empty one; the
        group's positions if `with_indices`).
    """
    groups: dict[tuple[torch.device, torch.dtype], Group] = {}
    for at, first in enumerate(lists[0]):
        if first is None:
            raise RuntimeError(
                "Tensors of the first list of nested Tensor lists are supposed to be defined but "
                f"the {at}-th Tensor is not."
            )
        parts, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for part, tensors in zip(parts, lists, strict=True):
            if tensors:
                part.append(tensors[at])
        if with_indices:
            indices.append(at)
    return groups
