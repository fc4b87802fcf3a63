"""Sums that are less exact on the CPU than on a GPU, where values are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vramlab.gpu.torch_internals import OpOverload, disable_current_modes

aten = torch.ops.aten

ONE_BY_ONE: frozenset[OpOverload] = frozenset(
    {aten.linalg_vector_norm.default, aten._foreach_norm.Scalar, aten.dot.default}
)
"""CPU kernels that add in float32, one number after the other (PyTorch 2.13). With 8 million random
numbers a norm is off by 2e-4, a 1-norm by 1e-3 and more; CUDA's kernels add in trees."""


def add_in_float64(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run one of `ONE_BY_ONE`, with sums in float64 where its result is in float32."""
    tensors = args[0] if isinstance(args[0], list | tuple) else [args[0]]
    if kwargs.get("dtype") is not None or any(each.dtype != torch.float32 for each in tensors):
        return func(*args, **kwargs)
    with disable_current_modes():
        if func is aten.dot.default:
            return func(*(each.double() for each in args)).float()
        result = func(*args, **{**kwargs, "dtype": torch.float64})
        return [each.float() for each in result] if isinstance(result, list) else result.float()
