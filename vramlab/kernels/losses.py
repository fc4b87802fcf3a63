"""Rules of losses: most first make the loss of every element, then reduce it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.gpu.torch_internals import schema_of
from vramlab.kernels.copies import copies, copying
from vramlab.kernels.reductions import whole_sum
from vramlab.kernels.rule_table.calls import BF16, F16, F32, Ids, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.operands import contiguous, nbytes
from vramlab.kernels.rule_table.registry import (
    OUTPUTS,
    Call,
    Give,
    Output,
    Status,
    Step,
    Take,
    rule,
)

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
)
def binary_cross_entropy(
    call: Call, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Iterable[Step]:
    return _reduced_in_place(call, self.numel(), reduction)


def _reduced_in_place(call: Call, numel: int, reduction: int) -> Iterator[Step]:
    """Make the loss of each element in the result, and write its sum over the first of them."""
    result = _result(call)
    yield Output(0, storage_bytes=numel * result.element_size())
    if reduction != _NO_REDUCTION:
        yield Take(result.element_size(), "reduced loss")
        yield from whole_sum(call.context, numel, result.dtype)


@rule(
    "aten.soft_margin_loss.default",
    takes="a result as large as its input, as binary cross-entropy has it; what the mean takes",
    source="aten/src/ATen/native/Loss.cpp and cuda/Reduce.cuh, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def soft_margin_loss(
    call: Call, self: Tensor, target: Tensor, reduction: int = 1
) -> Iterable[Step]:
    return _reduced_in_place(call, _each_numel(self, target), reduction)


@rule(
    "aten.binary_cross_entropy_with_logits.default",
    takes="the log-sigmoid and the loss of each element; a weight for each if `pos_weight` is "
    "given; what the mean takes",
    source="aten/src/ATen/native/Loss.cpp and cuda/Reduce.cuh, PyTorch 2.13",
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
    if schema_of(call.func).name == "aten::_log_softmax_backward_data":
        yield from contiguous(grad_output, "the gradient")
    else:
        product = grad_output * output  # for its layout: meta tensors have no values
        yield Take(nbytes(product), "gradient times output")
        yield from contiguous(product, "the product")
    yield from contiguous(output, "the output")


_LOSS_CU = "aten/src/ATen/native/cuda/Loss.cu, PyTorch 2.13"

copying(
    "aten.nll_loss_forward.default",
    order="outputs, self, target, weight",
    source=_LOSS_CU,
    status=Status.RECORDED,
)
copying(
    "aten.nll_loss_backward.default",
    order="outputs, target, self, grad_output, weight",
    source=_LOSS_CU,
)
copying(
    "aten.multi_margin_loss_backward.default",
    order="outputs, self, grad_output, target, weight",
    source="aten/src/ATen/native/cuda/MultiMarginLoss.cu, PyTorch 2.13",
)
copying(
    "aten.multilabel_margin_loss_backward.default",
    order="outputs, self, target, is_target, grad_output",
    source="aten/src/ATen/native/cuda/MultiLabelMarginCriterion.cu, PyTorch 2.13",
)


@rule(
    "aten.nll_loss2d_forward.default",
    takes="a contiguous copy of weights that are not; if it is reduced, of input and target too",
    source="aten/src/ATen/native/cuda/NLLLoss2d.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def nll_loss2d(
    call: Call,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> Iterable[Step]:
    yield Output(1)
    order = "outputs, weight" if reduction == _NO_REDUCTION else "outputs, self, weight, target"
    yield from copies(call, order, (self, target, weight))


@rule(
    "aten.nll_loss2d_backward.default",
    takes="a contiguous copy of weights that are not; of a reduced loss, of the target too",
    source="aten/src/ATen/native/cuda/NLLLoss2d.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def nll_loss2d_backward(
    call: Call,
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Iterable[Step]:
    order = "outputs, weight" if reduction == _NO_REDUCTION else "outputs, target, weight"
    return copies(call, order, (grad_output, self, target, weight))


@rule(
    "aten.multi_margin_loss.default",
    takes="contiguous copies of operands that are not; the loss of each row if it is reduced, and "
    "what its sum takes",
    source="aten/src/ATen/native/cuda/MultiMarginLoss.cu and Reduce.cuh, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def multi_margin_loss(
    call: Call,
    self: Tensor,
    target: Tensor,
    p: float = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = 1,
) -> Iterable[Step]:
    order = "outputs, self, target, weight" if self.dim() == 2 else "outputs, self, weight"
    yield from copies(call, order, (self, target, p, margin, weight))
    if reduction != _NO_REDUCTION and self.dim() == 2:
        yield Take(self.size(0) * self.element_size(), _EACH_LOSS)
        yield from whole_sum(call.context, self.size(0), self.dtype)


@rule(
    "aten.multilabel_margin_loss_forward.default",
    takes="contiguous copies of operands that are not; the loss of each row if it is reduced, and "
    "what its sum takes",
    source="aten/src/ATen/native/cuda/MultiLabelMarginCriterion.cu and Reduce.cuh, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def multilabel_margin_loss(
    call: Call, self: Tensor, target: Tensor, reduction: int
) -> Iterable[Step]:
    yield from contiguous(self, "the input")
    yield from contiguous(target, "the target")
    yield Output(1)
    is_reduced = reduction != _NO_REDUCTION and self.dim() == 2
    if is_reduced:
        yield Take(self.size(0) * self.element_size(), _EACH_LOSS)
    yield OUTPUTS
    if is_reduced:
        yield from whole_sum(call.context, self.size(0), self.dtype)


@rule(
    "aten.rrelu_with_noise.default",
    takes="in training, contiguous copies of input and slopes that are not",
    source="aten/src/ATen/native/cuda/RreluWithNoise.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def rrelu(
    call: Call,
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    return copies(call, "outputs, self, noise" if training else "outputs", (self, noise))


CTC_LISTS = 3
"""Of an int64 for each sample, that CTC loss's kernels read: lengths, and places in targets."""


@rule(
    "aten._ctc_loss.default",
    takes="8 B of each sample for the lengths of inputs and targets, and for where targets begin",
    source="ctc_loss_gpu_template in aten/src/ATen/native/cuda/LossCTC.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def ctc_loss(
    call: Call, log_probs: Tensor, targets: Tensor, *arguments: object, **_: object
) -> Iterable[Step]:
    for _list in range(CTC_LISTS):
        yield Take(8 * log_probs.size(1), "lengths, or where targets begin")
    yield Output(1)
    yield Output(0)


# Calls that ask a real GPU.


@asks("aten.mse_loss.default")
def _mse_calls() -> Iterator[OpCall]:
    for op in (aten.mse_loss.default, aten.smooth_l1_loss.default):
        for dtype in (F32, BF16):
            for shape in ((1000,), (4096, 1024), (1 << 24,)):
                for reduction in (0, 1, 2):
                    yield op_call(
                        op, zeros(*shape, dtype=dtype), zeros(*shape, dtype=dtype), reduction
                    )


@asks("aten.huber_loss.default")
def _huber_calls() -> Iterator[OpCall]:
    for shape in ((1000,), (4096, 1024), (1 << 24,)):
        for reduction in (0, 1, 2):
            yield op_call(aten.huber_loss.default, zeros(*shape), zeros(*shape), reduction)


@asks("aten.binary_cross_entropy.default")
def _binary_calls() -> Iterator[OpCall]:
    for shape in ((1000,), (4096, 1024), (1 << 24,)):
        for reduction in (0, 1, 2):
            op = aten.binary_cross_entropy.default
            yield op_call(op, zeros(*shape), zeros(*shape), None, reduction)


@asks("aten.binary_cross_entropy_with_logits.default")
def _binary_with_logits_calls() -> Iterator[OpCall]:
    op = aten.binary_cross_entropy_with_logits.default
    for shape in ((1000,), (4096, 1024), (1 << 24,)):
        for reduction in (0, 1, 2):
            yield op_call(op, zeros(*shape), zeros(*shape), None, None, reduction)
    yield op_call(op, zeros(4096, 1024), zeros(4096, 1024), None, zeros(1024), 1)
    yield op_call(op, zeros(4096, 1024), zeros(4096, 1024), zeros(4096, 1024), None, 1)


@asks("aten.log_sigmoid_forward.default")
def _log_sigmoid_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        yield op_call(aten.log_sigmoid_forward.default, zeros(4096, 1024, dtype=dtype))


@asks("aten._softmax.default")
def _softmax_calls() -> Iterator[OpCall]:
    for op in (aten._softmax.default, aten._log_softmax.default):
        for dtype in (F32, BF16):
            for layout in ("contiguous", "transposed", "apart"):
                yield op_call(op, zeros(4096, 1024, dtype=dtype, layout=layout), -1, False)
            yield op_call(op, zeros(4096, 1024, dtype=dtype), 0, False)
        yield op_call(op, zeros(4096, 1024, dtype=F16), -1, True)


@asks("aten._softmax_backward_data.default")
def _softmax_backward_calls() -> Iterator[OpCall]:
    for op in (aten._softmax_backward_data.default, aten._log_softmax_backward_data.default):
        for dtype in (F32, BF16):
            output = zeros(4096, 1024, dtype=dtype)
            for layout in ("contiguous", "transposed", "expanded"):
                gradient = zeros(4096, 1024, dtype=dtype, layout=layout)
                yield op_call(op, gradient, output, -1, dtype)


@asks("aten.nll_loss_forward.default")
def _nll_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for shape in ((1000, 10), (4096, 30522)):
            for reduction in (0, 1, 2):
                targets = Ids((shape[0],), 10)
                yield op_call(
                    aten.nll_loss_forward.default,
                    zeros(*shape, dtype=dtype),
                    targets,
                    None,
                    reduction,
                    -100,
                )
            yield op_call(
                aten.nll_loss_backward.default,
                zeros(dtype=dtype),
                zeros(*shape, dtype=dtype),
                Ids((shape[0],), 10),
                None,
                1,
                -100,
                zeros(dtype=dtype),
            )
