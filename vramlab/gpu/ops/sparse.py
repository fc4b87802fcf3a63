"""Sparse tensors of layout COO, and their products with dense matrices: graphs, as `torch.spmm`.

A sparse tensor is two dense ones, its indices and its values, and these have blocks. How many
entries there are is known where the tensor comes from the host, or is made of indices and values.
An entry that is there twice is added up by `coalesce()`; without known indices, all are taken to
differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.backward_nodes import running_node
from vramlab.gpu.core.dispatch_mode import engine_asks
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import Handler, handler, op
from vramlab.gpu.core.storage_record import SHADOWS
from vramlab.gpu.core.tensors import empty_meta
from vramlab.gpu.ops.missing_meta import in_shapes_of_cuda
from vramlab.gpu.torch_internals import OpOverload, mark_coalesced, sparse_parts

aten = torch.ops.aten


def copy_sparse(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Run `aten._to_copy` of a sparse tensor: to a GPU, part by part.

    Raises:
        UnsupportedOnVirtualGPU: its layout is another than COO, or it goes from a GPU to the host.
    """
    (source,) = args
    is_coo = source.layout == torch.sparse_coo
    device, dtype = kwargs.get("device"), kwargs.get("dtype") or source.dtype
    index = dispatcher.find_device_index(func, args, {})
    named = dispatcher.machine.thread.user_named_backing_device
    if device == dispatcher.backing_device and not named:  # C++ means the same GPU
        device = None
    if device is None and index is not None and index >= 0:
        device = torch.device("cuda", index)
    if device is None or device.type != "cuda":
        if index is None:
            return func(*args, **kwargs)
        raise UnsupportedOnVirtualGPU(
            "moving a sparse tensor from a virtual GPU is not modelled. Move its indices and "
            "values (._indices(), ._values()), or make it on the host."
        )
    if not is_coo:
        raise UnsupportedOnVirtualGPU(
            f"moving a tensor of layout {source.layout} is not modelled by the virtual GPU, nor "
            "are its products. Make it one of layout torch.sparse_coo first (.to_sparse_coo()), "
            "move a dense tensor (.to_dense()), or run on a real GPU."
        )
    indices, values = sparse_parts(source)
    # Of the arguments of a call in C++, GCC evaluates the last first.
    moved_values = dispatcher.run(
        aten._to_copy.default, (values,), {"dtype": dtype, "device": device}
    )
    moved_indices = dispatcher.run(aten._to_copy.default, (indices,), {"device": device})
    return _sparse(moved_indices, moved_values, source, source.is_coalesced())


def _sparse(
    indices: Tensor,
    values: Tensor,
    like: Tensor,
    coalesced: bool,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Make a sparse tensor of these parts, as large as another one or of another shape."""
    return _sparse_of(indices, values, like.shape if shape is None else shape, coalesced)


def _sparse_of(indices: Tensor, values: Tensor, shape: Sequence[int], coalesced: bool) -> Tensor:
    made = aten._sparse_coo_tensor_with_dims_and_tensors.default(
        len(indices),
        len(shape) - len(indices),
        list(shape),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
    )
    return mark_coalesced(made, coalesced)


def _when_sparse(name: str, operand: int = 0) -> Callable[[Handler], Handler]:
    """Enter the decorated function as the handler of an op of which this operand is sparse.

    For dense ones the op is run as it is.
    """

    def enter(function: Handler) -> Handler:
        @functools.wraps(function)
        def run(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
            if getattr(args[operand], "layout", torch.strided) is torch.strided:
                return dispatcher.run_plain(func, args, kwargs)
            index = dispatcher.find_device_index(func, args, kwargs)
            if index is None or index < 0:
                return dispatcher.run_plain(func, args, kwargs)
            return function(dispatcher, func, args, kwargs)

        op(name, handler=run)
        return function

    return enter


@handler("aten._to_sparse.default", "aten._to_sparse.sparse_dim")
def to_sparse(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Find what is not zero, and copy its places and values; of dense dimensions, whole rows.

    Source: `dense_to_sparse` in aten/src/ATen/native/TensorConversions.cpp, PyTorch 2.13.

    Raises:
        UnsupportedOnVirtualGPU: the layout is another than COO.
    """
    source, *rest = args
    index = dispatcher.find_device_index(func, args, kwargs)
    if index is None or index < 0:
        result: Tensor = dispatcher.run_plain(func, args, kwargs)
        return result
    layout = kwargs.get("layout")
    if source.layout is not torch.strided or layout not in (None, torch.sparse_coo):
        raise UnsupportedOnVirtualGPU(
            f"making a tensor of layout {source.layout} one of layout {layout} is not modelled by "
            "the virtual GPU. Make it of a dense one, of layout torch.sparse_coo, or run on a real "
            "GPU."
        )
    dims = rest[0] if rest else source.dim() - (kwargs.get("dense_dim") or 0)
    places = dispatcher.run(aten.nonzero.default, (source,), {}).t()
    if dims == source.dim():
        indices = dispatcher.run(aten.clone.default, (places,), {})
    else:
        rows = places.narrow(0, 0, dims)
        indices = dispatcher.run(aten.unique_dim.default, (rows, 1), {})[0]
        if not indices.is_contiguous():
            to = {"memory_format": torch.contiguous_format}
            indices = dispatcher.run(aten.clone.default, (indices,), to)
    chosen = dispatcher.run(aten.index.Tensor, (source, list(indices.split(1))), {})
    values = dispatcher.run(aten.clone.default, (chosen.squeeze(0),), {})
    del chosen, places
    return _sparse_of(indices, values, source.shape, True)


@_when_sparse("aten.mm.default")
def mm(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Multiply a sparse matrix with a dense one: add the product to zeros, as CUDA does.

    Source: `_sparse_mm` in aten/src/ATen/native/sparse/SparseTensorMath.cpp, PyTorch 2.13.
    """
    left, right = args
    options = {"dtype": right.dtype, "device": _device_of(dispatcher, right)}
    zeros = dispatcher.run(aten.zeros.default, ([left.shape[0], right.shape[1]],), options)
    product: Tensor = dispatcher.run(aten._sparse_addmm.default, (zeros, left, right), {"beta": 0})
    return product


@_when_sparse("aten.addmm.default", operand=1)
def addmm(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Add the product of a sparse matrix with a dense one to a dense one."""
    added: Tensor = dispatcher.run(aten._sparse_addmm.default, args, kwargs)
    return added


@_when_sparse("aten.clone.default")
def clone(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Copy indices and values, unless it is the engine that keeps a gradient.

    It takes over the parts of a gradient, if they are contiguous; below a dispatch mode it sees
    others that hold them, and copies. Source: `AccumulateGrad::accumulateGrad` in
    torch/csrc/autograd/functions/accumulate_grad.h, PyTorch 2.13.
    """
    (source,) = args
    indices, values = sparse_parts(source)
    if (
        not torch.is_grad_enabled()
        and running_node() == "AccumulateGrad"
        and engine_asks()
        and indices.is_contiguous()
        and values.is_contiguous()
    ):
        return _sparse(indices, values, source, source.is_coalesced())
    return _copied(dispatcher, source, source.shape, source.is_coalesced())


@_when_sparse("aten.t.default")
@_when_sparse("aten.transpose.int")
def transpose(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Swap two sparse dimensions of a copy, row of indices by row; its order is lost.

    Source: `sparse_transpose_` in aten/src/ATen/native/TensorShape.cpp, PyTorch 2.13.

    Raises:
        UnsupportedOnVirtualGPU: one of the dimensions is dense.
    """
    source, *dims = args if len(args) == 3 else (*args, 0, 1)
    places = [dim % source.dim() for dim in dims]
    if max(places) >= source.sparse_dim():
        raise UnsupportedOnVirtualGPU(
            "transposing dense dimensions of a sparse tensor is not modelled by the virtual GPU. "
            "Transpose its values (._values()), or run on a real GPU."
        )
    shape = list(source.shape)
    first, second = places
    shape[first], shape[second] = shape[second], shape[first]
    made = _copied(dispatcher, source, shape, source.is_coalesced() and first == second)
    indices, _ = sparse_parts(made)
    if not indices.is_meta:  # a copy that has values
        indices[[first, second]] = indices[[second, first]]
    row = {"dtype": indices.dtype, "device": _device_of(dispatcher, indices)}
    dispatcher.run(aten.zeros.default, ([indices.shape[1]],), row)
    return made


def add(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Add a sparse tensor, times `alpha`, to a sparse or a dense one.

    The sum of two sparse ones has the entries of both, and is coalesced only if these are more than
    the tensor has numbers. Source: `add_out_sparse_cuda` in
    aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu, PyTorch 2.13.
    """
    first, second = args
    index = dispatcher.find_device_index(func, args, kwargs)
    if index is None or index < 0:
        result: Tensor = dispatcher.run_plain(func, args, kwargs)
        return result
    alpha = kwargs.get("alpha", 1)
    if first.layout is torch.strided:
        dense: Tensor = dispatcher.run(aten.clone.default, (first,), {})
        return add_to_dense(dispatcher, dense, second)
    (indices, values), (others, added) = sparse_parts(first), sparse_parts(second)
    if not len(added):
        return _copied(dispatcher, first, first.shape, first.is_coalesced())
    if not len(values):
        return _with_values(dispatcher, second, aten.mul.Tensor, alpha)
    if alpha != 1:
        added = dispatcher.run(aten.mul.Tensor, (added, alpha), {})
    both = dispatcher.run(aten.cat.default, ([indices, others], 1), {})
    made = _sparse(both, dispatcher.run(aten.cat.default, ([values, added],), {}), first, False)
    if both.shape[1] > first.numel():
        made = dispatcher.run(aten._coalesce.default, (made,), {})
    return made


@_when_sparse("aten.add_.Tensor", operand=1)
def add_(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Add a sparse tensor in place."""
    first, second = args
    if first.layout is torch.strided:
        return add_to_dense(dispatcher, first, second)
    indices, values = sparse_parts(first)
    _become(first, add(dispatcher, func, args, kwargs))
    del values, indices  # in the order in which C++ lets go of them
    return first


@_when_sparse("aten.sub.Tensor", operand=1)
def sub(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Subtract: add the negative."""
    return add(dispatcher, func, args, {"alpha": -kwargs.get("alpha", 1)})


@_when_sparse("aten.sub_.Tensor", operand=1)
def sub_(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Subtract in place: add the negative."""
    return add_(dispatcher, func, args, {"alpha": -kwargs.get("alpha", 1)})


@_when_sparse("aten.mul.Tensor")
@_when_sparse("aten.mul_.Tensor")
@_when_sparse("aten.div.Tensor")
@_when_sparse("aten.div_.Tensor")
def scale(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Multiply or divide by one number. A product in place is one that is copied.

    Source: `mul_out_sparse_zerodim` and `div_out_sparse_zerodim` in
    aten/src/ATen/native/sparse/SparseTensorMath.cpp, PyTorch 2.13.

    Raises:
        UnsupportedOnVirtualGPU: the other operand has dimensions.
    """
    source, by = args
    if isinstance(by, Tensor) and by.dim():
        raise UnsupportedOnVirtualGPU(
            f"{func} of a sparse tensor and one with dimensions is not modelled by the virtual "
            "GPU. Use their values (._values()), or run on a real GPU."
        )
    if func is aten.div_.Tensor:
        dispatcher.run(func, (sparse_parts(source)[1], by), kwargs)
        return source
    plain = aten.div.Tensor if func is aten.div.Tensor else aten.mul.Tensor
    made = _with_values(dispatcher, source, plain, by)
    if func is aten.mul_.Tensor:
        dispatcher.run(aten.copy_.default, (sparse_parts(source)[1], sparse_parts(made)[1]), {})
        return source
    return made


@_when_sparse("aten._sparse_sum.dim")
def sum_of_dims(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Refuse: its parts run in C++.

    Raises:
        UnsupportedOnVirtualGPU: always.
    """
    raise UnsupportedOnVirtualGPU(
        "the sum of a sparse tensor over dimensions is not modelled by the virtual GPU. Sum all of "
        "it, or a dense one (.to_dense()), or run on a real GPU."
    )


@_when_sparse("aten.neg.default")
def neg(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Copy, with the negative values."""
    (source,) = args
    made = _copied(dispatcher, source, source.shape, source.is_coalesced())
    dispatcher.run(aten.neg_.default, (sparse_parts(made)[1],), {})
    return made


def add_to_dense(dispatcher: Dispatcher, dense: Tensor, sparse: Tensor) -> Tensor:
    """Add a sparse tensor to a dense one in place, as optimizers do.

    What a coalesced one adds is added where it lies; else indices are made those of rows first.
    Source: `add_out_dense_sparse_cuda` in
    aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu, and `flatten_indices` in
    aten/src/ATen/native/SparseTensorUtils.cpp, PyTorch 2.13.
    """
    indices, values = sparse_parts(sparse)
    dtype = torch.promote_types(dense.dtype, values.dtype)
    to = {"dtype": dtype}
    kept = []
    if dense.dtype != dtype:
        kept.append(dispatcher.run(aten.empty_like.default, (dense,), to))
        kept.append(dispatcher.run(aten._to_copy.default, (dense,), to))
    if values.dtype != dtype:
        kept.append(dispatcher.run(aten._to_copy.default, (values,), to))
    if not sparse.is_coalesced() and len(indices) > 1:
        options = {"dtype": indices.dtype, "device": _device_of(dispatcher, indices)}
        dispatcher.run(aten.empty.memory_format, ([indices.shape[1]],), options)
    return dense


def copy_in_place(dispatcher: Dispatcher, target: Tensor, source: Tensor) -> Tensor:
    """Copy a sparse tensor to another one on a GPU, which gets new parts.

    Source: `copy_sparse_to_sparse_` in aten/src/ATen/native/sparse/SparseTensor.cpp, PyTorch 2.13.
    """
    made = _copied(dispatcher, source, source.shape, source.is_coalesced())
    return _become(target, made)


def _become(target: Tensor, made: Tensor) -> Tensor:
    """Give a sparse tensor the parts of another one."""
    if target is not made:
        target.data = made
    return target


def _with_values(dispatcher: Dispatcher, source: Tensor, func: OpOverload, by: Any) -> Tensor:
    """Copy the indices, and compute new values."""
    indices, values = sparse_parts(source)
    new_indices = dispatcher.run(aten.clone.default, (indices,), {})
    new_values = dispatcher.run(func, (values, by), {})
    return _sparse(new_indices, new_values, source, source.is_coalesced())


def _copied(
    dispatcher: Dispatcher, source: Tensor, shape: Sequence[int], coalesced: bool
) -> Tensor:
    indices, values = sparse_parts(source)
    new_values = dispatcher.run(aten.clone.default, (values,), {})
    new_indices = dispatcher.run(aten.clone.default, (indices,), {})
    return _sparse(new_indices, new_values, source, coalesced, shape)


def _device_of(dispatcher: Dispatcher, tensor: Tensor) -> torch.device:
    index = dispatcher.find_device_index(aten.clone.default, (tensor,), {})
    return torch.device("cuda", index or 0)


def _product(self: Tensor, mat1: Tensor, mat2: Tensor, **_: object) -> tuple[Tensor, ...]:
    return (empty_meta((mat1.shape[0], mat2.shape[1]), mat2.dtype),)


def _coalesced(self: Tensor) -> tuple[Tensor, ...]:
    indices, values = sparse_parts(self)
    known = SHADOWS.readable(indices)
    count = indices.shape[1] if known is None else torch.unique(known, dim=1).shape[1]
    # Those of one dimension are cut from as many as there are entries.
    size = (1, indices.shape[1]) if len(indices) == 1 else (len(indices), count)
    new_indices = empty_meta(size, indices.dtype)[:, :count]
    new_values = empty_meta((count, *values.shape[1:]), values.dtype)
    return (_sparse(new_indices, new_values, like=self, coalesced=True),)


def _dense(self: Tensor, *_: object, **__: object) -> tuple[Tensor, ...]:
    return (empty_meta(self.shape, self.dtype),)


def _masked(self: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    indices, _ = sparse_parts(mask)
    values = empty_meta((indices.shape[1], *self.shape[mask.sparse_dim() :]), self.dtype)
    new = empty_meta(indices.shape, indices.dtype)
    return (_sparse(new, values, like=mask, coalesced=mask.is_coalesced()),)


op("aten._sparse_addmm.default", handler=in_shapes_of_cuda, make_outputs=_product)
op("aten._coalesce.default", handler=in_shapes_of_cuda, make_outputs=_coalesced)
op("aten._to_dense.default", handler=in_shapes_of_cuda, make_outputs=_dense)
op("aten.sparse_mask.default", handler=in_shapes_of_cuda, make_outputs=_masked)
