"""Rules of losses: most first make the loss of every element, then reduce it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.kernels.operands import contiguous, nbytes
from vramlab.kernels.reductions import whole_sum
from vramlab.kernels.registry import OUTPUTS, Call, Give, Output, Status, Step, Take, rule

_NO_REDUCTION = 0
_EACH_LOSS = "loss of each element"


def _result(call: Call) -> Tensor:
    (result,) = call.outputs
    assert result is not None
    return result


def _each_numel(self: Tensor, target: Tensor) -> int:
    return math.prod(torch.broadcast_shapes(self.shape, target.shape))


@rule(
    "aten.mse_loss.default",
    "aten.mse_loss.out",
    "aten.smooth_l1_loss.default",
    "aten.smooth_l1_loss.out",
    takes="if it is reduced, the loss of each element, and what its sum takes; its result has "
    "memory for each element all the same",
    source="aten/src/ATen/native/Loss.cpp and cuda/Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def elementwise_loss(
    call: Call, self: Tensor, target: Tensor, reduction: int = 1, *_: object, **__: object
) -> Iterable[Step]:
    result = _result(call)
    numel = _each_numel(self, target)
    yield Output(0, storage_bytes=numel * result.element_size())
    if reduction != _NO_REDUCTION:
        yield Take(numel * result.element_size(), _EACH_LOSS)
        yield from whole_sum(call.context, numel, result.dtype)


@rule(
    "aten.huber_loss.default",
    takes="the loss of each element if it is reduced, and what its sum takes",
    source="aten/src/ATen/native/Loss.cpp and cuda/Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def huber_loss(
    call: Call, self: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0
) -> Iterable[Step]:
    return _reduced_last(call, self, reduction)


def _reduced_last(call: Call, self: Tensor, reduction: int) -> Iterator[Step]:
    """Make the loss of each element, which is the result unless it is reduced."""
    result = _result(call)
    if reduction == _NO_REDUCTION:
        yield OUTPUTS
        return
    yield Take(self.numel() * result.element_size(), _EACH_LOSS)
    yield OUTPUTS
    yield from whole_sum(call.context, self.numel(), result.dtype)


@rule(
    "aten.binary_cross_entropy.default",
    takes="a result as large as its input, even if reduced: it is made for each element and then "
    "holds the one number; what the mean takes",
    source="aten/src/ATen/native/cuda/Loss.cu and Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def binary_cross_entropy(
    call: Call, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Iterable[Step]:
    result = _result(call)
    yield Output(0, storage_bytes=nbytes(self))
    if reduction != _NO_REDUCTION:
        yield Take(result.element_size(), "reduced loss")
        yield from whole_sum(call.context, self.numel(), self.dtype)


@rule(
    "aten.binary_cross_entropy_with_logits.default",
    takes="the log-sigmoid and the loss of each element; a weight for each if `pos_weight` is "
    "given; what the mean takes",
    source="aten/src/ATen/native/Loss.cpp and cuda/Reduce.cuh, PyTorch 2.13",
    status=Status.RECORDED,
)
def binary_cross_entropy_with_logits(
    call: Call,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Iterable[Step]:
    each_bytes = nbytes(self)
    yield Take(each_bytes, "log-sigmoid of each element")
    if pos_weight is not None:
        yield Take(nbytes(pos_weight), "weights less one")
        yield Take(each_bytes, "weight of each element")
        yield Give("weights less one")
        yield Give("weight of each element")
    yield from _reduced_last(call, self, reduction)


@rule(
    "aten.log_sigmoid_forward.default",
    takes="nothing: the buffer it returns is for the CPU, and empty",
    source="aten/src/ATen/native/cuda/Activation.cpp, PyTorch 2.13",
    status=Status.RECORDED,
)
def log_sigmoid(call: Call, self: Tensor) -> Iterable[Step]:
    return (Output(1, storage_bytes=0), Output(0))


@rule(
    "aten._softmax.default",
    "aten._softmax.out",
    "aten._log_softmax.default",
    "aten._log_softmax.out",
    takes="a contiguous copy of an input that is not",
    source="aten/src/ATen/native/cuda/SoftMax.cu, PyTorch 2.13",
    status=Status.RECORDED,
)
def softmax(call: Call, self: Tensor, dim: int, half_to_float: bool, **_: object) -> Iterable[Step]:
    yield OUTPUTS
    yield from contiguous(self, "the input")


@rule(
    "aten._softmax_backward_data.default",
    "aten._softmax_backward_data.out",
    "aten._log_softmax_backward_data.default",
    "aten._log_softmax_backward_data.out",
    takes="of softmax, the gradient times the output; a contiguous copy of that, or of a gradient "
    "or output, that is not",
    source="aten/src/ATen/native/cuda/SoftMax.cu, PyTorch 2.13",
    status=Status.RECORDED,
)
def softmax_backward(
    call: Call,
    grad_output: Tensor,
    output: Tensor,
    dim: int,
    input_dtype: torch.dtype,
    **_: object,
) -> Iterable[Step]:
    yield OUTPUTS
    if call.func._schema.name == "aten::_log_softmax_backward_data":
        yield from contiguous(grad_output, "the gradient")
    else:
        product = grad_output * output  # for its layout: meta tensors have no values
        yield Take(nbytes(product), "gradient times output")
        yield from contiguous(product, "the product")
    yield from contiguous(output, "the output")


@rule(
    "aten.nll_loss_forward.default",
    "aten.nll_loss_backward.default",
    takes="a contiguous copy of targets or weights that are not",
    source="aten/src/ATen/native/cuda/Loss.cu, PyTorch 2.13",
    status=Status.RECORDED,
)
def nll_loss(call: Call, *arguments: object, **_: object) -> Iterable[Step]:
    # forward: input, target, weight, ...; backward: gradient, input, target, weight, ...
    start = 1 if len(call.outputs) == 2 else 2
    yield OUTPUTS
    for each, what in zip(arguments[start : start + 2], ("targets", "weights"), strict=True):
        if isinstance(each, Tensor):
            yield from contiguous(each, what)
