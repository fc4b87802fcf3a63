"""Indexing with tensors: indices may come from the host, and masks may decide the result's shape.

Source: `make_info` and `expandTensors` in aten/src/ATen/native/IndexingUtils.h and
TensorAdvancedIndexing.cpp, PyTorch 2.13: host indices are copied to the GPU of the tensor.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import device_name
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.storage_record import has_values, record_of
from vramlab.gpu.ops.data_dependent import all_of
from vramlab.gpu.torch_internals import OpOverload

aten = torch.ops.aten

_IN_PLACE = ("aten.index_put_.default", "aten._index_put_impl_.default")


@handler("aten.index.Tensor", "aten._unsafe_index.Tensor", *_IN_PLACE)
def index(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Index by tensors, or assign to what they index; the indices may be on the host."""
    tensor, indices, *rest = args
    record = record_of(tensor)
    for each in indices:
        if each is not None and device_name(each) not in ("cpu", "meta", device_name(tensor)):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({device_name(tensor)})"
            )
    if record is None or record.device_index < 0:
        return dispatcher.run_plain(func, args, kwargs)
    device = torch.device("cuda", record.device_index)

    def to_gpu(tensor: torch.Tensor) -> torch.Tensor:
        copied: torch.Tensor = dispatcher.run(aten._to_copy.default, (tensor,), {"device": device})
        return copied

    moved: list[torch.Tensor | None] = []
    for each in indices:
        if each is not None and each.is_meta and record_of(each) is None:
            dispatcher.allocate_storage(
                each, record.device_index
            )  # made by C++ of a list, on the tensor's device
        if each is not None and record_of(each) is None:
            if each.dtype in (torch.bool, torch.uint8):
                moved += [to_gpu(part) for part in each.nonzero(as_tuple=True)]
                continue
            each = to_gpu(each)
        moved.append(each)
    masks = [each for each in moved if each is not None and each.dtype == torch.bool]
    if masks and not rest and not all(has_values(e) for e in moved if e is not None):
        dispatcher.values.assume_all("tensor[mask]", tensor)
        moved = [
            part
            for each in moved
            for part in (
                all_of(dispatcher, each)
                if each is not None and each.dtype == torch.bool
                else (each,)
            )
        ]
    if rest and rest[0].dim() == 0 and record_of(rest[0]) is None:
        if str(func) in _IN_PLACE and len(masks) == len([e for e in moved if e is not None]) == 1:
            return _fill_where(dispatcher, tensor, moved, rest[0])
        rest[0] = to_gpu(rest[0])
    return dispatcher.run_plain(func, (tensor, moved, *rest), kwargs)


def _fill_where(
    dispatcher: Dispatcher, tensor: torch.Tensor, indices: list[torch.Tensor | None], value: Any
) -> torch.Tensor:
    """Assign a number to `tensor[mask]`, which is one kernel that needs no indices.

    Source: `canDispatchToMaskedFill` in TensorAdvancedIndexingUtils.h, PyTorch 2.13.
    """
    at = next(at for at, each in enumerate(indices) if each is not None)
    mask = indices[at]
    assert mask is not None
    trailing = tensor.dim() - at - mask.dim()
    mask = mask[(..., *[None] * trailing)]
    filled: torch.Tensor = dispatcher.run(aten.masked_fill_.Tensor, (tensor, mask, value), {})
    return filled


@handler("aten.masked_fill.Tensor", "aten.masked_fill_.Tensor")
def masked_fill(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Fill where a mask says so; the value may be a scalar of the host."""
    tensor, mask, value = args
    if tensor.is_meta and not value.is_meta and value.dim() == 0:
        value = torch.empty((), dtype=value.dtype, device="meta")
    return dispatcher.run_plain(func, (tensor, mask, value), kwargs)
