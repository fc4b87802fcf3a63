"""Indexing with tensors: indices may come from the host, and masks may decide the result's shape.

Source: `expandTensors` in aten/src/ATen/native/IndexingUtils.h, `make_info` in
TensorAdvancedIndexingUtils.h and `_index_put_impl_` in TensorAdvancedIndexing.cpp, PyTorch 2.13:
masks become indices, and host indices are copied to the GPU of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import device_name, type_name
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.stack_frames import assigns_to_part
from vramlab.gpu.core.storage_record import SHADOWS, has_values, mark_as_host, record_of
from vramlab.gpu.ops.data_dependent import nonzero_of
from vramlab.gpu.torch_internals import OpOverload

aten = torch.ops.aten

_PUTS = ("aten.index_put_.default", "aten._index_put_impl_.default")
_MASKS = (torch.bool, torch.uint8)


@handler("aten.scalar_tensor.default")
def scalar_tensor(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Make a tensor of a number; on the host for `tensor[index] = number`, as for a CUDA tensor.

    There C++ sees a tensor on the backing device, on which it would make the number, too.
    Source: `THPVariable_setitem` in torch/csrc/autograd/python_variable_indexing.cpp, PyTorch 2.13.
    """
    if kwargs.get("device") == torch.device("meta") and assigns_to_part():
        kwargs = {**kwargs, "device": torch.device("cpu")}
    return dispatcher.run_plain(func, args, kwargs)


@handler("aten.index.Tensor", "aten._unsafe_index.Tensor", *_PUTS)
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
        if any(each is not None and not has_values(each) for each in indices):
            indices = list(_expanded(dispatcher, indices, lambda host: host))
        return dispatcher.run_plain(func, (tensor, indices, *rest), kwargs)
    device = torch.device("cuda", record.device_index)

    def to_gpu(tensor: Tensor) -> Tensor:
        if tensor.is_meta and record_of(tensor) is None:
            dispatcher.allocate_storage(tensor, device.index)
            return tensor  # made by C++ of a list, on the tensor's device
        if device_name(tensor) != "cpu":
            return tensor
        copied: Tensor = dispatcher.run(aten._to_copy.default, (tensor,), {"device": device})
        return copied

    if rest and rest[0].numel() == 1 and device_name(rest[0]) == "cpu":
        mask = None if rest[1:2] == [True] else _only_mask(tensor, indices)
        if mask is not None and str(func) in _PUTS:
            value = rest[0].reshape(())
            filled: Tensor = dispatcher.run(aten.masked_fill_.Tensor, (tensor, mask, value), {})
            return filled
        if rest[0].dim() == 0:
            rest[0] = to_gpu(rest[0])
    if tensor.is_meta and rest and _is_sorted(rest) and any(map(_is_on_host, indices)):
        return _add_by_host_indices(dispatcher, func, (tensor, indices, *rest), device.index)
    moved = list(_expanded(dispatcher, indices, to_gpu))
    if rest and not _is_sorted(rest) and rest[0].dtype != tensor.dtype:
        target, source = (_type_name(each) for each in (tensor, rest[0]))
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, "
            f"got {target} for the destination and {source} for the source."
        )
    return dispatcher.run_plain(func, (tensor, moved, *rest), kwargs)


@handler("aten.index_put.default")
def index_put(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Assign out of place: in a copy."""
    copy = dispatcher.run(aten.clone.default, args[:1], {})
    return dispatcher.run(aten.index_put_.default, (copy, *args[1:]), kwargs)


def _type_name(tensor: Tensor) -> str:
    return type_name(tensor).rpartition(".")[2].removesuffix("Tensor")


def _is_sorted(rest: Sequence[Any]) -> bool:
    """Return whether values are added, or written in order, so that places are sorted."""
    return rest[1:2] == [True] or torch.are_deterministic_algorithms_enabled()


def _is_on_host(index: Tensor | None) -> bool:
    return index is not None and has_values(index) and device_name(index) == "cpu"


def _add_by_host_indices(
    dispatcher: Dispatcher, func: OpOverload, args: Any, device_index: int
) -> Tensor:
    """Add by indices of which some are on the host: places are computed there, and copied.

    Source: `makeLinearIndex` in aten/src/ATen/native/cuda/Indexing.cu, PyTorch 2.13.
    """
    tensor, indices, *rest = args
    indices = list(_expanded(dispatcher, indices, lambda index: index))
    dispatcher.count_call(func, device_index)
    SHADOWS.forget(tensor)
    dispatcher.allocate_outputs(func, (tensor, indices, *rest), {}, tensor, device_index)
    added: Tensor = tensor
    return added


def _expanded(
    dispatcher: Dispatcher, indices: Sequence[Tensor | None], to_gpu: Callable[[Tensor], Tensor]
) -> Iterator[Tensor | None]:
    """Yield indices on the tensor's GPU, and for each mask those of its elements by dimension."""
    for each in indices:
        if each is None:
            yield None
        elif each.dtype in _MASKS and not (each.is_meta and record_of(each) is None):
            yield from to_gpu(nonzero_of(dispatcher, each)).unbind(1)
        else:
            yield to_gpu(each)


def _only_mask(tensor: Tensor, indices: Sequence[Tensor | None]) -> Tensor | None:
    """Return the mask on the GPU, of as many dimensions as it needs, if there is no other index.

    Then assigning a number is one kernel, which needs no indices.
    Source: `canDispatchToMaskedFill` in TensorAdvancedIndexingUtils.h, PyTorch 2.13.
    """
    (at, mask), *others = [(at, each) for at, each in enumerate(indices) if each is not None]
    if others or mask.dtype not in _MASKS or device_name(mask) != device_name(tensor):
        return None
    return mask[(..., *[None] * (tensor.dim() - at - mask.dim()))]


@handler("aten.masked_select.default")
def masked_select(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Select by a mask: index by it, once both are of one shape.

    Source: `masked_select_out_cuda_impl` in aten/src/ATen/native/cuda/IndexKernel.cpp, PyTorch
    2.13.
    """
    tensor, mask = args
    if all(map(has_values, (tensor, mask))):
        return dispatcher.run_plain(func, args, kwargs)
    shape = torch.broadcast_shapes(tensor.shape, mask.shape) or (1,)
    wide, chosen = tensor.expand(shape), mask.expand(shape)
    return dispatcher.run(aten.index.Tensor, (wide, [chosen]), {})


@handler("aten.masked_fill.Tensor", "aten.masked_fill_.Tensor")
def masked_fill(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Fill where a mask says so; the value may be a scalar of the host."""
    tensor, mask, value = args
    if tensor.is_meta and not value.is_meta and value.dim() == 0:
        host, value = value, torch.empty((), dtype=value.dtype, device="meta")
        mark_as_host(value)
        SHADOWS.learn(value, host)
    return dispatcher.run_plain(func, (tensor, mask, value), kwargs)
