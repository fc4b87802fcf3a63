"""Ops whose result has a shape that only values tell: nonzero, unique, tensor[mask]...

Without values that is an error which says so. Where reads of unknown values are answered, the
result is the largest that it can be: every element is chosen, all differ, each repeats once; whole
numbers that are counted are 0, as whole numbers read. The program's line is noted.

Known limitation: what the kernels of those without a rule take besides is not counted.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import OPS, MakeOutputs, op
from vramlab.gpu.core.storage_record import HOST, SHADOWS, has_values, known, mark_as_host
from vramlab.gpu.core.tensors import empty_meta, outputs_of, tensors_in
from vramlab.gpu.core.values.shadows import Unknown, one_element
from vramlab.gpu.torch_internals import OpOverload, tree_map

aten = torch.ops.aten
Tensor = torch.Tensor


def _empty(*size: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return empty_meta(size, dtype)


def _nonzero(self: Tensor) -> tuple[Tensor, ...]:
    return (_empty(self.dim(), self.numel()).t(),)


def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    values = _empty(self.numel(), dtype=self.dtype)
    inverse = _empty(*(self.shape if return_inverse else (0,)))
    return values, inverse, _empty(self.numel() if return_counts else 0)


def _unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, ...]:
    return _unique2(self, sorted, return_inverse)[:2]


def _unique_dim(
    self: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, ...]:
    length = self.size(dim)
    values = _empty(*self.shape, dtype=self.dtype)
    return values, _empty(length if return_inverse else 0), _empty(length if return_counts else 0)


def _unique_dim_consecutive(
    self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _unique_dim(self, dim, True, return_inverse, return_counts)


def _unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]:
    if dim is not None:
        return _unique_dim(self, dim, True, return_inverse, return_counts)
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
    """Run one of these ops: by its operands' values where they are known, else by the policy."""
    return _run(dispatcher, func, args, kwargs, f"{OPS[func].base_name}()")


def nonzero_of(dispatcher: Dispatcher, mask: Tensor) -> Tensor:
    """Find the places of what a mask chooses, for indexing by it."""
    places: Tensor = _run(dispatcher, aten.nonzero.default, (mask,), {}, "tensor[mask]")
    return places


def _run(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any, what: str) -> Any:
    device_index = dispatcher.find_device_index(func, args, kwargs)
    dispatcher.host_waits_for(args[0])
    spec = OPS[func]
    if (
        device_index is None
        or spec.make_outputs is None
        or all(has_values(tensor) for tensor in tensors_in(args, kwargs))
    ):
        result = func(*args, **kwargs)
        truth: Any = None
    elif (truth := _computed(func, args, kwargs)) is not None:
        truth = _asked_for(truth, spec.make_outputs(*args, **kwargs))
        result = tree_map(_like, truth)
        if func is aten.nonzero.default:
            result = _empty(*reversed(truth.shape)).t()  # as CUDA lays it out
    elif func is aten.nonzero.default and (chosen := _chosen(args[0])) is not None:
        result = _empty(args[0].dim(), chosen).t()
    else:
        dispatcher.values.assume_all(what, args[0])
        outputs = spec.make_outputs(*args, **kwargs)
        result = outputs if len(outputs) > 1 else outputs[0]
    if device_index == HOST:
        for output in outputs_of(result):
            if output is not None:
                mark_as_host(output)
    elif device_index is not None:
        dispatcher.count_call(func, device_index)
        dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    if truth is not None:
        SHADOWS.learn_all(result, truth)
    return result


def _computed(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Compute one of these ops on the host; None where its operands are not known there."""

    def host(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        values = arg if has_values(arg) else SHADOWS.readable(arg)
        if values is None:
            raise Unknown
        return values

    try:
        args, kwargs = tree_map(host, (args, kwargs))
        return func(*args, **kwargs)
    except Exception:  # as in `Shadows.follow`
        return None


def _asked_for(truth: Any, largest: tuple[Tensor, ...]) -> Any:
    """Leave out results that the program has not asked for: the CPU's `unique_dim` computes all."""
    if not isinstance(truth, tuple):
        return truth
    return tuple(
        values if there.numel() else values.new_empty(0)
        for values, there in zip(truth, largest, strict=True)
    )


def _chosen(mask: Tensor) -> int | None:
    """Count what is not zero in a tensor whose elements are equal; None where they may differ."""
    values = known(mask)
    element = None if values is None else one_element(values)
    return None if element is None else mask.numel() * bool(element)


def _like(values: Tensor) -> Tensor:
    return torch.empty_strided(
        values.size(), values.stride(), dtype=values.dtype, device=torch.device("meta")
    )


def _largest(make_outputs: MakeOutputs, name: str) -> None:
    op(name, handler=shape_from_values, make_outputs=make_outputs)


_largest(_nonzero, "aten.nonzero.default")
_largest(_unique, "aten._unique.default")
_largest(_unique2, "aten._unique2.default")
_largest(_unique_dim, "aten.unique_dim.default")
_largest(_unique_dim_consecutive, "aten.unique_dim_consecutive.default")
_largest(_unique_consecutive, "aten.unique_consecutive.default")
_largest(_bincount, "aten.bincount.default")
_largest(_repeat_interleave, "aten.repeat_interleave.Tensor")
_largest(_nms, "torchvision.nms.default")
