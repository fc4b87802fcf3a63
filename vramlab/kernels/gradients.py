"""Rules of what a training step does to many gradients at once, and of dropout's order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from vramlab.kernels.operands import is_dense
from vramlab.kernels.reductions import norm_steps
from vramlab.kernels.registry import OUTPUTS, Call, Output, Status, Step, Take, rule

_CHUNK = 65536  # numbers that one block of a multi-tensor kernel reads


def _is_fast(tensors: Sequence[Tensor]) -> bool:
    """Whether one kernel can read all of them: one floating dtype, none with holes or overlaps.

    Source: can_use_fast_route in aten/src/ATen/native/ForeachUtils.h, PyTorch 2.13.
    """
    first = tensors[0]
    return first.is_floating_point() and all(
        each.dtype == first.dtype and is_dense(each) for each in tensors
    )


@rule(
    "aten._foreach_norm.Scalar",
    takes="a partial norm for each 65536 numbers of the largest tensor, for every tensor",
    source="aten/src/ATen/native/cuda/ForeachReduceOp.cu, PyTorch 2.13",
    status=Status.RECORDED,
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
    chunks = max(-(-tensor.numel() // _CHUNK) for tensor in self)
    partial_bytes = 8 if (dtype or self[0].dtype) == torch.float64 else 4
    yield Take(len(self) * chunks * partial_bytes, "partial norms")
    yield OUTPUTS


@rule(
    "aten.native_dropout.default",
    takes="nothing; its mask is allocated before its result",
    source="aten/src/ATen/native/cuda/Dropout.cu, PyTorch 2.13",
    status=Status.RECORDED,
)
def dropout(call: Call, input: Tensor, p: float, train: bool | None) -> Iterable[Step]:
    if train is not False and p != 1:
        yield Output(1)
    yield OUTPUTS
