"""Operators that take functions, such as `flex_attention`: they run as their eager programs do.

Compiled by Inductor they are one kernel, which is not modelled (`stand_ins/compile.py`). Run
eagerly, on CUDA as anywhere, they are ordinary ops, written in Python, and those are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.torch_internals import DispatchKey, HigherOrderOperator


def in_eager(operator: HigherOrderOperator) -> Callable[..., Any]:
    """Return the eager program of an operator that takes functions.

    Raises:
        UnsupportedOnVirtualGPU: it has none, because it exists for compilers only.
    """
    program = operator.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
    if program is None:
        raise UnsupportedOnVirtualGPU(
            f"the operator {operator} is not modelled by the virtual GPU: it has no eager program. "
            "Replace it by ordinary ops, run this part on the host (.cpu() first), or run on a "
            "real GPU."
        )
    return program
