"""Ops whose result has a shape that only values tell: nonzero, unique, tensor[mask]...

Without values that is an error which says so. Where reads of unknown values are answered, the
result is the largest that it can be: every element is chosen, all differ, each repeats once; whole
numbers that are counted are 0, as whole numbers read. The program's line is noted.

Known limitation: what the kernels of these ops take besides their results is not counted.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import OPS, MakeOutputs, op
from vramlab.gpu.core.storage_record import HOST, has_values, mark_as_host
from vramlab.gpu.core.tensors import empty_meta, tensors_in
from vramlab.gpu.torch_internals import OpOverload, schema_of

aten = torch.ops.aten
Tensor = torch.Tensor


def _empty(*size: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return empty_meta(size, dtype)


def _nonzero(self: Tensor) -> tuple[Tensor, ...]:
    return (_empty(self.numel(), self.dim()),)


def _masked_select(self: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    numel = torch.broadcast_shapes(self.shape, mask.shape).numel()
    return (_empty(numel, dtype=self.dtype),)


def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    values = _empty(self.numel(), dtype=self.dtype)
    inverse = _empty(*(self.shape if return_inverse else (0,)))
    return values, inverse, _empty(self.numel() if return_counts else 0)


def _unique_dim(
    self: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, ...]:
    length = self.size(dim)
    values = _empty(*self.shape, dtype=self.dtype)
    return values, _empty(length), _empty(length)


def _unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]:
    if dim is not None:
        return _unique_dim(self, dim)
    return _unique2(self, True, return_inverse, return_counts)


def _bincount(
    self: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> tuple[Tensor, ...]:
    if weights is None:
        dtype = torch.int64
    else:
        dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    return (_empty(max(minlength, 1), dtype=dtype),)


def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> tuple[Tensor, ...]:
    return (_empty(repeats.numel() if output_size is None else output_size),)


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> tuple[Tensor, ...]:
    return (_empty(scores.numel()),)


def shape_from_values(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run one of these ops: with values as it is, without them by `dispatcher.values`."""
    device_index = dispatcher.find_device_index(func, args, kwargs)
    make_outputs = OPS[func].make_outputs
    if (
        device_index is None
        or make_outputs is None
        or all(has_values(tensor) for tensor in tensors_in(args, kwargs))
    ):
        result = func(*args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
    else:
        name = schema_of(func).name.rpartition("::")[2]
        dispatcher.values.assume_all(f"{name}()", args[0])
        outputs = make_outputs(*args, **kwargs)
        result = outputs if len(outputs) > 1 else outputs[0]
    if device_index == HOST:
        for output in outputs:
            mark_as_host(output)
    elif device_index is not None:
        dispatcher.seen[func] = dispatcher.seen.get(func, 0) + 1
        for output in outputs:
            dispatcher.allocate_storage(output, device_index)
    return result


def _largest(make_outputs: MakeOutputs, name: str) -> None:
    op(name, handler=shape_from_values, make_outputs=make_outputs)


_largest(_nonzero, "aten.nonzero.default")
_largest(_masked_select, "aten.masked_select.default")
_largest(_unique2, "aten._unique2.default")
_largest(_unique_dim, "aten.unique_dim.default")
_largest(_unique_consecutive, "aten.unique_consecutive.default")
_largest(_bincount, "aten.bincount.default")
_largest(_repeat_interleave, "aten.repeat_interleave.Tensor")
_largest(_nms, "torchvision.nms.default")


def all_of(dispatcher: Dispatcher, mask: Tensor) -> tuple[Tensor, ...]:
    """Make the indices, by dimension, of a mask on a GPU whose every element is taken as chosen."""
    device_index = dispatcher.find_device_index(aten.nonzero.default, (mask,), {})
    (indices,) = _nonzero(mask)
    assert device_index is not None
    dispatcher.allocate_storage(indices, device_index)
    return indices.unbind(1)
