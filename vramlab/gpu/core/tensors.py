"""The tensors among an op's arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from vramlab.gpu.torch_internals import tree_map

_META = torch.device("meta")


def empty_meta(size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make a contiguous tensor without values: what an op without a meta kernel returns."""
    return torch.empty(size, dtype=dtype, device=_META)


def tensors_in(args: Iterable[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Yield every tensor among arguments, also those in nested lists, tuples and dicts.

    `torch.utils._pytree.tree_leaves` does the same for any type that is registered there; for an op
    of two tensors it takes 14 times as long (PyTorch 2.13, CPython 3.11), and every op asks.
    """
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from tensors_in(arg)
        elif isinstance(arg, dict):
            yield from tensors_in(arg.values())
    if kwargs:
        yield from tensors_in(kwargs.values())


_WITHOUT_PARTS = (torch.Tensor, int, float, str, type(None), torch.device, torch.dtype)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Return arguments of an op with a function applied to all that is no list, tuple or dict.

    As `torch.utils._pytree.tree_map` does, which takes ten times as long.

    Args:
        function: gives what takes the place of a leaf.
        value: an argument, or all of them.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([map_leaves(function, each) for each in value])
    if kind is dict:
        return {key: map_leaves(function, each) for key, each in value.items()}
    return function(value) if isinstance(value, _WITHOUT_PARTS) else tree_map(function, value)


def outputs_of(result: Any) -> Iterator[torch.Tensor | None]:
    """Yield an op's outputs in the schema's order: lists flattened, numbers left out.

    An output that the op leaves undefined is None.
    """
    if isinstance(result, torch.Tensor) or result is None:
        yield result
    elif isinstance(result, list | tuple):
        for item in result:
            yield from outputs_of(item)
