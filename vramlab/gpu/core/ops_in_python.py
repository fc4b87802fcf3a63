"""Ops that a program defines in Python: `torch.library.custom_op`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramlab.gpu.torch_internals import PYTHON_OPS, OpOverload, kernel_in_python, schema_of


def kernel_of_program(func: OpOverload) -> Callable[..., Any] | None:
    """Return the function that runs on CUDA, where a program has defined an op; else None."""
    if func.namespace in ("aten", "prims", "prim"):
        return None
    return kernel_in_python(PYTHON_OPS.get(schema_of(func).name))
