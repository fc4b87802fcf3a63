"""Copies between the host and GPUs, and between GPUs.

Source of the temporaries: `copy_requires_temporaries` and `copy_kernel_cuda` in
aten/src/ATen/native/cuda/Copy.cu, PyTorch 2.13.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.storage_record import (
    HOST,
    SHADOWS,
    has_values,
    known,
    mark_as_host,
    record_of,
)
from vramlab.gpu.ops.counts import count_as, counted_as
from vramlab.gpu.ops.sparse import copy_in_place, copy_sparse
from vramlab.gpu.torch_internals import OpOverload, current_graph_task_id, storage_id
from vramlab.kernels.rule_table.operands import is_dense

aten = torch.ops.aten


def device_index_of(tensor: torch.Tensor) -> int:
    """Return the index of a tensor's GPU, or `HOST` for any host tensor, with values or without."""
    record = record_of(tensor)
    return HOST if record is None else record.device_index


@handler("aten._to_copy.default")
def to_copy(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Make a new tensor for `tensor.to(...)`: on another device, of another dtype, or both."""
    (source,) = args
    if not isinstance(source, torch.Tensor):  # below vmap a number comes as it is
        return func(*args, **kwargs)
    device = kwargs.get("device")
    if source.layout is not torch.strided:
        return copy_sparse(dispatcher, func, args, kwargs)
    source_index = device_index_of(source)
    if device is not None and device.type != "meta":
        _must_have_data(source)
    if device is None:
        target_index = source_index
    elif device.type == "cuda":
        target_index = dispatcher.index_of(device)
    elif (
        device == dispatcher.backing_device
        and not dispatcher.machine.thread.user_named_backing_device
    ):
        # C++ asks for the backing device where it means the same GPU, or that of the op before
        target_index = source_index
        if device.type == "meta" and record_of(source) is None:
            recent = dispatcher.machine.thread.recent
            if source.is_meta or recent is None:
                return func(*args, **kwargs)
            target_index = recent
    elif device.type == "cpu":
        target_index = HOST
    else:
        return func(*args, **kwargs)
    if source_index == HOST and target_index == HOST:
        return _within_host(dispatcher, func, source, kwargs)
    pinned = bool(kwargs.get("pin_memory"))
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    non_blocking = bool(kwargs.get("non_blocking"))
    if target_index == HOST:
        result = _to_host(dispatcher, func, source, kwargs)
        if pinned or non_blocking:  # `_to_copy` of TensorConversions.cpp
            mark_as_host(result).pinned = True
        dispatcher.crosses_to_host(source_index, result, non_blocking)
        _temporaries(dispatcher, source, result, source_index, target_index, non_blocking)
        return result
    dispatcher.find_device_index(func, args, {})
    carried = (
        source
        if source.device == dispatcher.backing_device
        else _on_backing_device(dispatcher, source)
    )
    result = func(carried, **{**kwargs, "device": dispatcher.backing_device})
    if storage_id(result.untyped_storage()) == storage_id(source.untyped_storage()):
        result = result.clone()
    dispatcher.allocate_storage(result, target_index)
    if source_index != target_index:
        if source_index == HOST:
            dispatcher.crosses_to_host(target_index, source, non_blocking)
        _temporaries(dispatcher, source, result, source_index, target_index, non_blocking)
    _pass_value_on(source, result)
    return result


@handler("aten.copy_.default")
def copy_(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Copy in place, also behind slice assignment and load_state_dict."""
    target, source = args[0], args[1]
    non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    target_index, source_index = device_index_of(target), device_index_of(source)
    if source.layout is torch.sparse_coo and HOST not in (target_index, source_index):
        return copy_in_place(dispatcher, target, source)
    if target_index != HOST:
        for tensor in (target, source):
            dispatcher.find_device_index(func, (tensor,), {})
    if not target.is_meta or record_of(target) is not None:
        _must_have_data(source)
    if not target.is_meta and not has_values(source):
        mark_as_host(target).overwritten = True  # it has the memory for values, and lost them
    elif target.is_meta and not source.is_meta:
        func(target, _on_backing_device(dispatcher, source))
    else:
        func(target, source)
    if target_index != source_index:
        if HOST in (target_index, source_index):
            host, gpu = (target, source_index) if target_index == HOST else (source, target_index)
            dispatcher.crosses_to_host(gpu, host, non_blocking)
        _temporaries(dispatcher, source, target, source_index, target_index, non_blocking)
    _pass_value_on(source, target)
    return target


@handler("aten._foreach_copy_.default")
def foreach_copy_(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Copy pair by pair, as the slow path of CUDA does across devices."""
    targets, sources = args[0], args[1]
    for target, source in zip(targets, sources, strict=True):
        copy_(dispatcher, aten.copy_.default, (target, source), {})


@handler("aten._pin_memory.default")
def pin_memory(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Copy a host tensor to page-locked memory."""
    (source, *_) = args
    result = source.clone()
    if result.is_meta:
        mark_as_host(result)
    mark_as_host(result).pinned = True
    return result


@handler("aten.is_pinned.default")
def is_pinned(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Return whether a host tensor is page-locked."""
    record = record_of(args[0])
    return record is not None and record.pinned


@handler("aten.record_stream.default")
def record_stream(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Let another stream use a tensor's block too."""
    tensor, stream = args
    use_on_stream(dispatcher, tensor, stream.stream_id)


def use_on_stream(dispatcher: Dispatcher, tensor: torch.Tensor, stream: int) -> None:
    """Tell the allocator that `stream` uses `tensor`'s block."""
    record = record_of(tensor)
    if record is not None and record.block is not None:
        dispatcher.machine.device(record.device_index).allocator.record_stream(record.block, stream)


def _must_have_data(source: torch.Tensor) -> None:
    """Refuse what the program itself keeps on meta, in torch's words."""
    if source.is_meta and record_of(source) is None:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")


def _within_host(
    dispatcher: Dispatcher, func: OpOverload, source: torch.Tensor, kwargs: dict[str, Any]
) -> torch.Tensor:
    pinned = kwargs.get("pin_memory")
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if not has_values(source):
        kwargs = {**kwargs, "device": torch.device("meta")}
    result: torch.Tensor = func(source, **kwargs)
    if result.is_meta:
        mark_as_host(result)
    if pinned:
        mark_as_host(result).pinned = True
    return result


def _to_host(
    dispatcher: Dispatcher, func: OpOverload, source: torch.Tensor, kwargs: dict[str, Any]
) -> torch.Tensor:
    if dispatcher.backing_device.type == "cpu":
        return func(source, **{**kwargs, "device": torch.device("cpu")})
    result: torch.Tensor = func(source, **{**kwargs, "device": torch.device("meta")})
    values = known(source)
    if values is not None and result.nbytes < dispatcher.host_values_below_bytes:
        return torch.empty_like(result, device="cpu").copy_(values)
    if current_graph_task_id() != -1:
        # The gradient of a host tensor with values: autograd insists on a host tensor. It has none.
        return torch.full(result.size(), float("nan"), dtype=result.dtype, device="cpu")
    mark_as_host(result)
    _pass_value_on(source, result)
    return result


def _on_backing_device(dispatcher: Dispatcher, source: torch.Tensor) -> torch.Tensor:
    """Make a host tensor's like on the backing device, where it takes no memory."""
    if dispatcher.backing_device.type == "meta" and not source.is_meta:
        return torch.empty_strided(
            source.size(), source.stride(), dtype=source.dtype, device="meta"
        )
    return source


def _temporaries(
    dispatcher: Dispatcher,
    source: torch.Tensor,
    target: torch.Tensor,
    source_index: int,
    target_index: int,
    non_blocking: bool,
) -> None:
    """Allocate and free what a copy between devices needs when it cannot go in one piece.

    A copy goes in one piece when dtypes are equal and both sides are dense alike. Otherwise both
    are made contiguous first, and a dtype is converted on the host (on the GPU if `non_blocking`).
    """
    same_dtype = source.dtype == target.dtype
    if same_dtype and source.is_contiguous() and target.is_contiguous():
        return
    if same_dtype and source.stride() == target.stride() and is_dense(source):
        return
    converts_on_gpu = non_blocking or (source_index != HOST and target_index != HOST)
    convert_source = (source_index != HOST) == converts_on_gpu
    machine = dispatcher.machine
    taken = []
    if convert_source:
        if target_index != HOST and not target.is_contiguous():
            taken.append((target_index, target.numel() * target.dtype.itemsize))
        if source_index != HOST and not (same_dtype and source.is_contiguous()):
            taken.append((source_index, target.numel() * target.dtype.itemsize))
    else:
        if target_index != HOST and not (same_dtype and target.is_contiguous()):
            taken.append((target_index, target.numel() * source.dtype.itemsize))
        if source_index != HOST and not source.is_contiguous():
            taken.append((source_index, source.numel() * source.dtype.itemsize))
    blocks = [
        (device_index, machine.malloc(device_index, size)) for device_index, size in taken if size
    ]
    for device_index, block in reversed(blocks):
        machine.free(device_index, block)


def _pass_value_on(source: torch.Tensor, target: torch.Tensor) -> None:
    """Let the target of a copy be known as its source is."""
    record = record_of(target)
    if record is None or not SHADOWS.is_followed(target):
        return
    record.counted_as = None
    SHADOWS.write(target, known(source))
    if record.shadow is None and (number := counted_as(source)) is not None:
        count_as(target, number)
