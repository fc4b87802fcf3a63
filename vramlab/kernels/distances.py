"""Rules of distances between rows; their gradients have a buffer with a part for each pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.kernels.rule_table.operands import contiguous
from vramlab.kernels.rule_table.registry import OUTPUTS, Call, Status, Step, Take, rule


@rule(
    "aten._cdist_forward.default",
    takes="copies of operands that are expanded to the batch of the other, or not contiguous",
    source="`cdist_impl` in aten/src/ATen/native/Distance.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def cdist(call: Call, x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Iterable[Step]:
    yield from _expanded(x1, x2)
    yield OUTPUTS


def _expanded(x1: Tensor, x2: Tensor) -> Iterator[Step]:
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    for what, each in (("the first rows", x1), ("the second rows", x2)):
        yield from contiguous(each.expand(*batch, *each.shape[-2:]), what)


@rule(
    "aten._cdist_backward.default",
    takes="copies of operands that are expanded to the batch of the other, or not contiguous; a "
    "gradient for each pair of rows",
    source="aten/src/ATen/native/Distance.cpp and cuda/DistanceKernel.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def cdist_backward(
    call: Call, grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor
) -> Iterable[Step]:
    if not grad.numel() or not x1.numel():
        return
    yield from _expanded(x1, x2)
    yield from contiguous(cdist, "the distances")
    yield from contiguous(grad, "the gradient")
    yield OUTPUTS
    if p:
        numel = grad.numel() * x1.size(-1)
        yield Take(numel * x1.element_size(), "gradients of pairs")


@rule(
    "aten._pdist_backward.default",
    takes="a gradient for each pair of rows",
    source="aten/src/ATen/native/cuda/DistanceKernel.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def pdist_backward(
    call: Call, grad: Tensor, self: Tensor, p: float, pdist: Tensor
) -> Iterable[Step]:
    yield OUTPUTS
    if p and grad.numel() and self.numel():
        yield Take((self.size(0) - 1) * self.numel() * self.element_size(), "gradients of pairs")
