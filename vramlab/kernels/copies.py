"""Rules of kernels that take contiguous copies of their operands and outputs, and nothing else.

Most of PyTorch's older CUDA kernels read contiguous memory: they call `contiguous()` on operands,
some with the memory format that one of them suggests. What differs is which operands, and whether
before or after the outputs are allocated. An order says both:

    grad_output, outputs              the gradient is copied before the outputs are allocated
    outputs, grad_output as self      after them, into the memory format that self suggests
    outputs, output 0, self           a kernel that writes contiguous memory only, and then copies

A copy is taken only where the tensor is not in that format already. An expanded gradient, such as
`sum()` passes on, never is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vramlab.gpu.torch_internals import OpOverload, schema_of
from vramlab.kernels.rule_table.operands import contiguous, in_format, suggested_format
from vramlab.kernels.rule_table.registry import OUTPUTS, Call, Status, Step, rule

_OUTPUTS = "outputs"


class _Copy(NamedTuple):
    """One operand or output of an order, and the operand whose format it is brought into."""

    name: str
    like: str


def copying(*ops: str, order: str, source: str, status: Status = Status.FROM_SOURCE) -> None:
    """Register the rule of ops that take copies in an order, and nothing else.

    Args:
        ops: names of ops.
        order: the copies, and the outputs among them.
        source: the file of PyTorch it was read from, and the version.
        status: how sure it is.
    """
    named = [each.name for each in _parsed(order) if each.name != _OUTPUTS]
    takes = f"a contiguous copy of {', '.join(named)} if it is not" if named else "nothing"

    @rule(*ops, takes=takes, source=source, status=status)
    def copy(call: Call, *args: object, **kwargs: object) -> Iterable[Step]:
        return copies(call, order, args, kwargs)


def copies(
    call: Call, order: str, args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> Iterator[Step]:
    """Yield the outputs, and the copies of an op's operands and outputs, in an order.

    Args:
        call: of the op.
        order: the copies, and the outputs among them.
        args: the op's arguments.
        kwargs: those that were passed by name.
    """
    by_name: dict[str, Any] = dict(zip(_names(call.func), args, strict=False))
    by_name.update(kwargs or {})
    for index, output in enumerate(call.outputs):
        by_name[f"output {index}"] = output
    for name, like in _parsed(order):
        if name == _OUTPUTS:
            yield OUTPUTS
        elif like:
            yield from in_format(by_name.get(name), suggested_format(by_name[like]), name)
        elif isinstance(tensor := by_name.get(name), Tensor):
            yield from contiguous(tensor, name)


@lru_cache(maxsize=256)
def _parsed(order: str) -> tuple[_Copy, ...]:
    parts = (each.strip().partition(" as ") for each in order.split(","))
    return tuple(_Copy(name, like) for name, _, like in parts)


@lru_cache(maxsize=1024)
def _names(func: OpOverload) -> tuple[str, ...]:
    return tuple(argument.name for argument in schema_of(func).arguments)


def is_channels_last(tensor: Tensor) -> bool:
    """Return whether a tensor suggests that kernels work with its channels innermost."""
    return suggested_format(tensor) is not torch.contiguous_format
