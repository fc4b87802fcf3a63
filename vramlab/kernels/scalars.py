"""Rules of ops with a number for an operand, which some kernels want as a tensor on the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from vramlab.kernels.calls import OpCall, asks, aten, op_call, zeros
from vramlab.kernels.registry import OUTPUTS, Call, Step, Take, rule


@rule(
    "aten.pow.Scalar",
    "aten.pow.Scalar_out",
    takes="the base as a tensor of 8 B, unless it is 1",
    source="aten/src/ATen/native/Pow.cpp, PyTorch 2.13",
)
def power_of_number(call: Call, self: complex, exponent: Tensor, **_: object) -> Iterable[Step]:
    yield OUTPUTS
    if self != 1:
        yield Take(8, "base")


# Calls that ask a real GPU.


@asks("aten.pow.Scalar")
def _pow_calls() -> Iterator[OpCall]:
    for base in (10000.0, 2, 1.0):
        yield op_call(aten.pow.Scalar, base, zeros(1000))
