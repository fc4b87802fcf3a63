"""Rules of products of many matrices of different sizes in one op, as mixtures of experts use."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from vramlab.kernels.rule_table.registry import CUBLAS, OUTPUTS, Call, Status, Step, Take, rule

_POINTERS_AND_STRIDES = 3
"""Of the left operand, the right one and the result, for each group: 8 B each."""

_SIZES_BYTES = 3 * 4
"""Rows, columns and inner length of a group, of 32 bit."""


@rule(
    "aten._grouped_mm.default",
    takes="on GPUs of capability 9 and 10, in bfloat16: pointers, strides and sizes of each group "
    "(CUTLASS's workspace is not counted); otherwise one product after the other: cuBLAS's "
    "workspace",
    source="aten/src/ATen/native/cuda/GroupedBlas.cpp, GroupMM.cu and GroupedMMUtils.h, "
    "PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def grouped_mm(
    call: Call, mat_a: Tensor, mat_b: Tensor, offs: Tensor | None = None, *_: object, **__: object
) -> Iterable[Step]:
    yield OUTPUTS
    major, _minor = call.context.model.compute_capability
    if major in (9, 10) and mat_a.dtype == mat_b.dtype == torch.bfloat16:
        groups = mat_a.size(0) if offs is None else offs.size(0)
        even = groups + groups % 2  # pointers begin at multiples of 16 B
        bytes_each = _POINTERS_AND_STRIDES * 8
        yield Take(
            even * bytes_each + groups * (bytes_each + _SIZES_BYTES), "arguments of each group"
        )
    else:
        yield CUBLAS
