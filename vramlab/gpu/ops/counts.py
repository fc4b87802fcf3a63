"""Counts of masks that agree with what indexing by them gives.

`x[mask]` is as if every element were chosen (`data_dependent.py`). So an unknown `mask.sum()`
reads as the number of elements, because programs divide by it. The number is carried through
copies, sums and means. It is returned only to reads; it never counts as a known value.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.core.storage_record import Scalar, record_of
from vramlab.gpu.torch_internals import OpOverload, schema_of


def counted_as(tensor: torch.Tensor) -> Scalar | None:
    """Return what each element of a tensor counts as if masks chose all; None if it is no count."""
    record = record_of(tensor)
    if record is None or not tensor.is_meta or record.shadow is not None:
        return None
    return 1 if tensor.dtype == torch.bool else record.counted_as


def count_as(tensor: torch.Tensor, number: Scalar) -> None:
    """Note what each element of a tensor counts."""
    record = record_of(tensor)
    if record is not None and tensor.is_meta and tensor.dtype != torch.bool:
        record.counted_as = number


@handler(
    "aten.sum.default",
    "aten.sum.dim_IntList",
    "aten.count_nonzero.default",
    "aten.count_nonzero.dim_IntList",
    "aten.mean.default",
    "aten.mean.dim",
)
def count(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Add up, count, or take the mean of what may be a mask or count."""
    number = counted_as(args[0])
    result: torch.Tensor = dispatcher.run_plain(func, args, kwargs)
    if number is not None and result.numel():
        name = schema_of(func).name.removeprefix("aten::")
        each = bool(number) if name == "count_nonzero" else number
        count_as(result, each if name == "mean" else each * (args[0].numel() // result.numel()))
    return result


@handler("aten.clamp.default", "aten.clamp_min.default")
def clamp(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Clamp; a count has a least value, as in `mask.sum().clamp(min=1)`."""
    number = counted_as(args[0])
    result: torch.Tensor = dispatcher.run_plain(func, args, kwargs)
    least = args[1] if len(args) > 1 else kwargs.get("min")
    most = args[2] if len(args) > 2 else kwargs.get("max")
    if isinstance(number, int | float):
        above = number if least is None else max(number, least)
        count_as(result, above if most is None else min(above, most))
    return result
