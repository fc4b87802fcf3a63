"""Say in words what an op meets on a virtual GPU: its record in the table of ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vramlab.gpu.core.op_table import OPS
from vramlab.gpu.torch_internals import OpOverload, schema_of
from vramlab.kernels import classify

_COMPOSITE = "it consists of other ops, and takes what they take"

Description = dict[str, str | None]
"""By heading; None for a part that the op's record does not have."""


def describe(func: OpOverload) -> Description:
    """Describe an overload: who handles it, what it refuses, what it takes and who says so."""
    spec = OPS[func]
    rule = spec.rule
    return {
        "op": spec.name,
        "schema": str(schema_of(func)),
        "knowledge": _COMPOSITE if spec.is_composite else classify(func).value,
        "handler": _name_and_summary(spec.handler),
        "CUDA path": _name_and_summary(spec.cuda_path or spec.cuda_kernel),
        "autocast": None if spec.autocast is None else spec.autocast.value,
        "check": _name_and_summary(spec.check),
        "outputs": _name_and_summary(spec.make_outputs),
        "layout": _name_and_summary(spec.layout),
        "fill": None if spec.fill is None else "the value that it fills a tensor with is known",
        "rule": None if rule is None else _name_and_summary(rule.function),
        "takes": None if rule is None else rule.takes,
        "source": None if rule is None else rule.source,
        "status": None if rule is None else rule.status.value,
    }


def _name_and_summary(function: Callable[..., Any] | None) -> str | None:
    """Name a function and the first sentence of what it says of itself."""
    if function is None:
        return None
    first_line, *_ = (inspect.getdoc(function) or "").splitlines() or [""]
    name = f"{function.__module__}.{function.__qualname__}"
    return f"{name}: {first_line}" if first_line else name
