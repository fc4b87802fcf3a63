"""Remember what meta kernels infer, so that shapes are inferred once for operands that are alike.

PyTorch infers the results of many ops in Python: milliseconds for the backward pass of a norm, more
than all else that happens to an op here. A program that trains runs the same ops on the same shapes
again and again, in each layer and in each step. So the meta kernel is asked once for operands of
these shapes, strides and dtypes, and new tensors like its results are made from then on.
`torch._subclasses.fake_tensor.FakeTensorMode` keeps such a cache for the same reason.

It is asked each time by ops that return views, whose result depends on values, that move storages,
by those of other libraries, and by those that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from vramlab.gpu import torch_internals
from vramlab.gpu.core.op_table import OpSpec
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import OpOverload, len_torch_dispatch_stack, schema_of

Compute = Callable[[OpOverload, Sequence[Any], Mapping[str, Any]], Any]
Key = tuple[Any, ...]

_META = torch.device("meta")
_NAMESPACES = ("aten", "prims", "fsdp")
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_WORDS = (int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_IRREGULAR = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
}
_MOST = 2**14


class _New(NamedTuple):
    """A tensor that an op makes, alone in its storage."""

    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    def make(self) -> torch.Tensor:
        """Make another one like it."""
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=_META)


class _Argument(NamedTuple):
    """The argument that an op changes and returns."""

    position: int


class _Known(NamedTuple):
    """What an op returns."""

    parts: tuple[_New | _Argument | int | None, ...]
    kind: type | None
    """Of the sequence that they are in; None for one alone."""

    def answer(self, args: Sequence[Any]) -> Any:
        """Return what the op returns for these arguments."""
        made = [
            part.make()
            if type(part) is _New
            else args[part.position]
            if type(part) is _Argument
            else part
            for part in self.parts
        ]
        return made[0] if self.kind is None else self.kind(made)


class InferredShapes:
    """Answers for meta kernels that have been asked before."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known | None] = {}
        self._is_regular: dict[OpOverload, bool] = {}

    def infer(
        self,
        spec: OpSpec,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        compute: Compute,
    ) -> Any:
        """Return what `compute(func, args, kwargs)` returns for meta tensors like these.

        Args:
            spec: what is known of the op.
            func: the op.
            args: positional arguments.
            kwargs: arguments by keyword.
            compute: asks the meta kernel.
        """
        key = self._key(spec, func, args, kwargs)
        if key is None:
            return compute(func, args, kwargs)
        known = self._known.get(key, ...)
        if isinstance(known, _Known):
            return known.answer(args)
        if known is None:
            return compute(func, args, kwargs)
        before = [*map(_state, tensors_in(args, kwargs))]
        result = compute(func, args, kwargs)
        if _is_iterated(spec, func):
            result = _as_iterated(args, result)
        is_same = before == [*map(_state, tensors_in(args, kwargs))]
        if len(self._known) >= _MOST:
            self._known.clear()
        storages = {identity for identity, *_ in before}
        self._known[key] = _described(result, args, storages) if is_same else None
        return result

    def _key(
        self, spec: OpSpec, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Key | None:
        """All that a result depends on; None where that is not known."""
        regular = self._is_regular.get(func)
        if regular is None:
            regular = self._is_regular[func] = _is_regular(spec, func)
        # What is below the virtual GPU's mode, as make_fx's is, wants to see the op itself.
        if not regular or len_torch_dispatch_stack() != 0:
            return None
        numbers_count = spec.creates
        try:
            return (
                func,
                torch.get_default_dtype(),
                torch.are_deterministic_algorithms_enabled(),
                *[_key_of(arg, numbers_count) for arg in args],
                *[(name, _key_of(arg, numbers_count)) for name, arg in kwargs.items()],
            )
        except _Other:
            return None


INFERRED = InferredShapes()
"""Of all virtual GPUs: what a meta kernel infers does not depend on the GPU."""


class _Other(Exception):
    """An argument of which not all is known."""


def _key_of(arg: Any, numbers_count: bool = True) -> Any:
    """Return what counts of an argument.

    Args:
        arg: the argument.
        numbers_count: whether the values of numbers that are not whole do, or their types alone.
            Learning rates are others in each step; a list of scales gives an image its size. 0 and
            1 always count: a dropout by 0 is none.

    Raises:
        _Other: it is a host tensor, or something else that has more to it.
    """
    kind = type(arg)
    if kind in _TENSORS:
        if not arg.is_meta or arg.layout is not torch.strided:
            raise _Other
        return arg.shape, arg.stride(), arg.dtype
    if kind is float or kind is complex:
        return (kind, arg) if numbers_count or arg in (0, 1) else kind
    if kind is bool:
        return kind, arg  # True is 1, but promotes otherwise
    if kind in (list, tuple, torch.Size):
        return kind, *[_key_of(item) for item in arg]
    if kind in _WORDS:
        return arg
    raise _Other


def _is_regular(spec: OpSpec, func: OpOverload) -> bool:
    """Check whether shapes alone decide what an op returns: new tensors, or what it has changed."""
    schema = schema_of(func)
    return (
        func.namespace in _NAMESPACES
        and spec.make_outputs is None  # some ask for values
        and not spec.resizes
        and _IRREGULAR.isdisjoint(func.tags)
        and all(
            each.alias_info is None or each.alias_info.is_write
            for each in (*schema.arguments, *schema.returns)
        )
    )


def _is_iterated(spec: OpSpec, func: OpOverload) -> bool:
    """Return whether TensorIterator lays out what an op makes.

    Copies are laid out as they are asked to be, and masked_fill fills a contiguous one.
    """
    return (
        torch.Tag.pointwise in func.tags
        and spec.base_name != "masked_fill"
        and all(each.name != "memory_format" for each in schema_of(func).arguments)
    )


def _as_iterated(args: Sequence[Any], result: Any) -> Any:
    """Lay out what an element-wise op makes of expanded operands as TensorIterator does.

    Meta kernels in Python convert operands first, to float32 say: what they make of an expanded one
    has an order of its own. Source: `elementwise_type_promotion_wrapper` in
    torch/_prims_common/wrappers.py, PyTorch 2.13.
    """
    if not isinstance(result, torch.Tensor):
        return result
    operands = [*tensors_in(args)]
    if any(each is result for each in operands) or not any(map(_is_expanded, operands)):
        return result
    wide = [each.expand(result.shape) for each in operands]
    strides = torch_internals.compute_elementwise_output_strides(*wide)
    if tuple(strides) == result.stride():
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=_META)


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(
        size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    return id(storage), storage.nbytes(), tensor.shape, tensor.stride(), tensor.storage_offset()


def _described(result: Any, args: Sequence[Any], storages: set[int]) -> _Known | None:
    """Describe what an op returned; None if it is more than new tensors and its arguments.

    Args:
        result: what it returned.
        args: its arguments.
        storages: the identities of those of its operands.
    """
    is_many = isinstance(result, list | tuple)
    parts: list[_New | _Argument | int | None] = []
    try:
        for each in result if is_many else [result]:
            parts.append(_part(each, args, storages))
            if isinstance(each, torch.Tensor):
                storages.add(id(each.untyped_storage()))
    except _Other:
        return None
    return _Known(tuple(parts), type(result) if is_many else None)


def _part(part: Any, args: Sequence[Any], storages: set[int]) -> _New | _Argument | int | None:
    if part is None or type(part) is int:
        return part
    for index, arg in enumerate(args):
        if arg is part:
            return _Argument(index)
    if type(part) is not torch.Tensor or not part.is_meta or part.layout is not torch.strided:
        raise _Other
    new, storage = _New(part.shape, part.stride(), part.dtype), part.untyped_storage()
    if id(storage) in storages or storage.nbytes() != new.make().untyped_storage().nbytes():
        raise _Other
    return new
