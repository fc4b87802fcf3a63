"""Truths that can be known without values: logic on tensors whose elements are all equal.

Programs loop until a tensor says that they are done: `while not finished.all()`. What such a tensor
holds is often known, because it was made by `torch.full` or `torch.ones` (a length limit that was
reached, say), or because one operand decides (`done | limit_reached`). Here that knowledge is
carried through comparisons, logic, reductions and counting, so that such a loop ends when it would.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.storage_record import Scalar, known, record_of, remember
from vramlab.gpu.ops.sparse import add_to_dense
from vramlab.gpu.torch_internals import OpOverload, schema_of


def _invert(value: Any) -> Any:
    return not value if isinstance(value, bool) else ~value


_LOGIC: dict[str, Callable[..., Any]] = {
    "bitwise_not": _invert,
    "logical_not": operator.not_,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "logical_and": lambda left, right: bool(left) and bool(right),
    "logical_or": lambda left, right: bool(left) or bool(right),
    "logical_xor": lambda left, right: bool(left) != bool(right),
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "max": lambda value: value,
    "min": lambda value: value,
    "any": bool,
    "all": bool,
}

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor")
_OF_TENSORS = ("bitwise_not", "logical_not", "logical_and", "logical_or", "logical_xor")
_OPERANDS = ("Tensor", "Scalar")
_REDUCTIONS = ("max", "min", "any", "all")


@handler(
    *(f"aten.{name}{end}.{of}" for name in _COMPARISONS for end in ("", "_") for of in _OPERANDS),
    *(f"aten.{name}{end}.default" for name in _OF_TENSORS for end in ("", "_")),
    *(f"aten.{name}.default" for name in _REDUCTIONS),
)
def propagate_logic(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> torch.Tensor:
    """Run logic; its result is known where its operands, or the deciding one, are."""
    name = schema_of(func).name.removeprefix("aten::").removesuffix("_")
    values = [_value(arg) for arg in args]
    result: torch.Tensor = dispatcher.run_plain(func, args, kwargs)
    if result.is_meta and record_of(result) is not None:
        if all(value is not None for value in values):
            remember(result, _LOGIC[name](*values))
        elif _decides(name, values, result.dtype):
            remember(result, name.endswith("or"))
    return result


@handler("aten.add_.Tensor")
def propagate_count(
    dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any
) -> torch.Tensor:
    """Add in place; a whole number goes on being known, as batch norm's number of batches."""
    counter, added = args
    if isinstance(added, torch.Tensor) and added.layout is torch.sparse_coo:
        return add_to_dense(dispatcher, counter, added)
    if counter.dim() or counter.dtype.is_floating_point or not counter.is_meta:
        plain: torch.Tensor = dispatcher.run_plain(func, args, kwargs)
        return plain
    values: list[Any] = [_value(arg) for arg in args]
    result: torch.Tensor = dispatcher.run_plain(func, args, kwargs)
    if None not in values and record_of(result) is not None:
        remember(result, values[0] + kwargs.get("alpha", 1) * values[1])
    return result


def _value(arg: Any) -> Scalar | None:
    return known(arg) if isinstance(arg, torch.Tensor) else arg


def _decides(name: str, values: list[Scalar | None], dtype: torch.dtype) -> bool:
    """Tell whether one operand alone makes the result 0 (and), or True (or)."""
    if name in ("bitwise_and", "logical_and"):
        return any(value is not None and not value for value in values)
    if name in ("bitwise_or", "logical_or"):
        return dtype == torch.bool and any(values)
    return False
