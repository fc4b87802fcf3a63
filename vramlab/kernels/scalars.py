"""Rules of ops with a number for an operand, which some kernels want as a tensor on the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.kernels.rule_table.calls import OpCall, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.registry import OUTPUTS, Call, Status, Step, Take, rule


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


@rule(
    "aten.pow.Tensor_Scalar",
    "aten.pow_.Scalar",
    takes="the base in the dtype that it has in common with the exponent, if that is another",
    source="aten/src/ATen/native/Pow.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def power(call: Call, self: Tensor, exponent: complex) -> Iterable[Step]:
    common = torch.result_type(self, exponent)
    if self.dtype != common:
        yield Take(self.numel() * common.itemsize, "base in the common dtype")
    yield OUTPUTS


# Calls that ask a real GPU.


@asks("aten.pow.Scalar")
def _pow_calls() -> Iterator[OpCall]:
    for base in (10000.0, 2, 1.0):
        yield op_call(aten.pow.Scalar, base, zeros(1000))
