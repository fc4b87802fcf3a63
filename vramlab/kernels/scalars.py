"""Rules of ops with a number for an operand, which some kernels want as a tensor on the GPU."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from vramlab.kernels.registry import OUTPUTS, Call, Status, Step, Take, rule


@rule(
    "aten.pow.Scalar",
    "aten.pow.Scalar_out",
    takes="the base as a tensor of 8 B, unless it is 1",
    source="aten/src/ATen/native/Pow.cpp, PyTorch 2.13",
    status=Status.RECORDED,
)
def power_of_number(call: Call, self: complex, exponent: Tensor, **_: object) -> Iterable[Step]:
    yield OUTPUTS
    if self != 1:
        yield Take(8, "base")
