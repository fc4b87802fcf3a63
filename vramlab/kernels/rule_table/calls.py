"""Single calls of ops that have a rule, so that a recording confirms each rule.

They stand below the rules of each family: calls with operands of several sizes, dtypes and layouts,
some on each side of every threshold that the rule knows. Operands are made before the op runs, so
that the stage of a call shows what the op alone takes. `vramlab.zoo.rule_calls` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
I64, I32, BOOL = torch.int64, torch.int32, torch.bool

aten = torch.ops.aten


@dataclass(frozen=True)
class OpCall:
    """One call.

    Attributes:
        label: unique among the calls of its rule: the op and what is special about its operands.
        function: the op, or a function that calls it once.
        operands: what it is called with; anything that is no function is passed as it is.
    """

    label: str
    function: Callable[..., Any]
    operands: tuple[Any, ...]


_MAKERS: dict[str, Callable[[], Iterator[OpCall]]] = {}


def calls_of(rule: str) -> tuple[OpCall, ...]:
    """List the calls that ask a rule.

    Args:
        rule: the first of the rule's ops, such as 'aten.mm.default'.

    Raises:
        KeyError: there are none of that rule.
    """
    return tuple(_MAKERS[rule]())


def rules_called() -> tuple[str, ...]:
    """List the rules that there are calls of, by their first op."""
    return tuple(_MAKERS)


def asks(rule: str) -> Callable[[Callable[[], Iterator[OpCall]]], None]:
    """Register the decorated function as the calls of a rule.

    Args:
        rule: the first of the rule's ops.
    """

    def register(maker: Callable[[], Iterator[OpCall]]) -> None:
        _MAKERS[rule] = maker

    return register


def op_call(function: Callable[..., Any], *operands: Any, also: str = "") -> OpCall:
    """Name a call by its op and operands."""
    name = str(function).removeprefix("aten.").removesuffix(".default")
    described = [_described(operand) for operand in operands]
    return OpCall(f"{name}({', '.join(described)}){also}", function, operands)


def _described(operand: Any) -> str:
    if isinstance(operand, torch.dtype):
        return str(operand).removeprefix("torch.")
    return str(operand)


@dataclass(frozen=True)
class Zeros:
    """Makes a tensor of zeros on the current GPU.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        layout: 'contiguous'; 'transposed' in its last two dimensions; 'channels last'; 'apart':
            every second element of its last dimension; 'expanded' along its first dimension.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = F32
    layout: str = "contiguous"

    def __call__(self) -> Tensor:
        *lead, last = self.shape if self.shape else (1,)
        if self.layout == "transposed":
            before, rows = lead[:-1], lead[-1]
            return self._zeros(*before, last, rows).transpose(-1, -2)
        if self.layout == "channels last":
            return self._zeros(*self.shape).contiguous(memory_format=torch.channels_last)
        if self.layout == "apart":
            return self._zeros(*lead, 2 * last)[..., ::2]
        if self.layout == "expanded":
            return self._zeros(1, *self.shape[1:]).expand(self.shape)
        return self._zeros(*self.shape)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device="cuda")

    def __str__(self) -> str:
        kind = {F32: "f32", F16: "f16", BF16: "bf16", F64: "f64", I64: "i64", I32: "i32"}
        text = f"{kind.get(self.dtype, str(self.dtype)[6:])}[{', '.join(map(str, self.shape))}]"
        return text if self.layout == "contiguous" else f"{text} {self.layout}"

    __repr__ = __str__


@dataclass(frozen=True)
class Ids:
    """Makes int64 numbers from 0 up to `below`, each equally likely."""

    shape: tuple[int, ...]
    below: int

    def __call__(self) -> Tensor:
        return torch.randint(self.below, self.shape).to("cuda")

    def __str__(self) -> str:
        return f"ids[{', '.join(map(str, self.shape))}] below {self.below}"

    __repr__ = __str__


@dataclass(frozen=True)
class Several:
    """Makes a list of tensors."""

    each: tuple[Zeros, ...]

    def __call__(self) -> list[Tensor]:
        return [make() for make in self.each]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.each))}]"

    __repr__ = __str__


def zeros(*shape: int, dtype: torch.dtype = F32, layout: str = "contiguous") -> Zeros:
    """Return which zeros to make; see `Zeros`."""
    return Zeros(shape, dtype, layout)
