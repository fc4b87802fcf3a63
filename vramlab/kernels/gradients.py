"""Rules of what a training step does to many gradients at once, and of dropout's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.cuda_rules.rounding import ceil_div
from vramlab.kernels.reductions import norm_steps
from vramlab.kernels.rule_table.calls import BF16, F32, OpCall, Several, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.operands import is_dense, opmath_bytes
from vramlab.kernels.rule_table.registry import OUTPUTS, Call, Output, Status, Step, Take, rule

_CHUNK = 65536  # numbers that one block of a multi-tensor kernel reads


def _is_fast(tensors: Sequence[Tensor]) -> bool:
    """Return whether one kernel can read all of them: one floating dtype, no holes or overlaps.

    Source: can_use_fast_route in aten/src/ATen/native/ForeachUtils.h, PyTorch 2.13.
    """
    first = tensors[0]
    return first.is_floating_point() and all(
        each.dtype == first.dtype and is_dense(each) for each in tensors
    )


@rule(
    "aten._foreach_norm.Scalar",
    takes="a partial norm for each 65536 numbers of each tensor, and where those of each begin; up "
    "to PyTorch 2.14 as many for every tensor as the largest has",
    source="aten/src/ATen/native/cuda/ForeachReduceOp.cu, PyTorch 2.13; of 2.15, the native engine",
)
def foreach_norm(
    call: Call, self: Sequence[Tensor], ord: float = 2, dtype: torch.dtype | None = None
) -> Iterable[Step]:
    if ord not in (1, 2, float("inf")) or not _is_fast(self):
        for index, tensor in enumerate(self):
            result = call.outputs[index]
            assert result is not None
            yield Output(index)
            yield from norm_steps(call.context, tensor, result, None)
        return
    chunks = [ceil_div(tensor.numel(), _CHUNK) for tensor in self]
    partial_bytes = opmath_bytes(dtype or self[0].dtype)
    if call.context.torch_version < (2, 15):
        yield Take(len(self) * max(chunks) * partial_bytes, "partial norms")
    else:
        yield Take(8 * (len(self) + 1), "where partial norms begin")
        yield Take(sum(chunks) * partial_bytes, "partial norms")
    yield OUTPUTS


@rule(
    "aten.native_dropout.default",
    takes="nothing; its mask is allocated before its result",
    source="aten/src/ATen/native/cuda/Dropout.cu, PyTorch 2.13",
)
def dropout(call: Call, input: Tensor, p: float, train: bool | None) -> Iterable[Step]:
    if train is False or p != 1:
        yield Output(1)
    yield OUTPUTS


@rule(
    "aten._efficientzerotensor.default",
    takes="nothing at all: it stands for zeros that are never written",
    source="aten/src/ATen/native/TensorFactories.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def efficient_zeros(call: Call, size: Sequence[int], **_: object) -> Iterable[Step]:
    yield Output(0, 0)


# Calls that ask a real GPU.


@asks("aten._foreach_norm.Scalar")
def _foreach_norm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for sizes in ((1000,), (65536, 1), (1 << 20, 1 << 22, 17), (65537,) * 40):
            listed = Several(tuple(zeros(size, dtype=dtype) for size in sizes))
            told = f" of {len(sizes)} {dtype}, the largest of {max(sizes)}"
            yield OpCall(f"_foreach_norm{told}", aten._foreach_norm.Scalar, (listed, 2))


@asks("aten.native_dropout.default")
def _dropout_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for shape in ((1000,), (4096, 1024)):
            yield op_call(aten.native_dropout.default, zeros(*shape, dtype=dtype), 0.1, True)
