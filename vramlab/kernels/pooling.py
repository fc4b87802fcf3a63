"""Rules of pooling: contiguous copies, in the memory format that the input suggests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.kernels.calls import BF16, F32, I64, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.operands import nbytes
from vramlab.kernels.registry import OUTPUTS, Call, Step, Take, rule

_SOURCE = "aten/src/ATen/native/cuda/DilatedMaxPool2d.cu and AveragePool2d.cu, PyTorch 2.13"


def _in_suggested_format(tensor: Tensor, like: Tensor, what: str) -> Iterator[Step]:
    """Yield the copy that brings `tensor` into the memory format of `like`."""
    channels_last = (
        like.dim() == 4
        and not like.is_contiguous()
        and like.is_contiguous(memory_format=torch.channels_last)
    )
    there = (
        tensor.is_contiguous(memory_format=torch.channels_last)
        if channels_last
        else tensor.is_contiguous()
    )
    if not there:
        yield Take(nbytes(tensor), f"contiguous copy of {what}")


@rule(
    "aten.max_pool2d_with_indices.default",
    "aten.avg_pool2d.default",
    takes="a contiguous copy of an input that is not",
    source=_SOURCE,
)
def pool(call: Call, self: Tensor, *_: object, **__: object) -> Iterable[Step]:
    yield OUTPUTS
    yield from _in_suggested_format(self, self, "the input")


@rule(
    "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d_backward.default",
    takes="a contiguous copy of a gradient or input that is not",
    source=_SOURCE,
)
def pool_backward(
    call: Call, grad_output: Tensor, self: Tensor, *_: object, **__: object
) -> Iterable[Step]:
    yield OUTPUTS
    yield from _in_suggested_format(grad_output, self, "the gradient")
    yield from _in_suggested_format(self, self, "the input")


@rule(
    "aten._adaptive_avg_pool2d.default",
    takes="a contiguous copy of an input that is not, before its output",
    source="aten/src/ATen/native/cuda/AdaptiveAveragePooling.cu, PyTorch 2.13",
)
def adaptive_pool(call: Call, self: Tensor, output_size: Sequence[int]) -> Iterable[Step]:
    yield from _in_suggested_format(self, self, "the input")
    yield OUTPUTS


@rule(
    "aten._adaptive_avg_pool2d_backward.default",
    takes="a contiguous copy of a gradient that is not",
    source="aten/src/ATen/native/cuda/AdaptiveAveragePooling.cu, PyTorch 2.13",
)
def adaptive_pool_backward(call: Call, grad_output: Tensor, self: Tensor) -> Iterable[Step]:
    yield OUTPUTS
    yield from _in_suggested_format(grad_output, self, "the gradient")


# Calls that ask a real GPU.


@asks("aten.max_pool2d_with_indices.default")
def _pooling_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "channels last", "transposed", "apart"):
            x = zeros(16, 64, 56, 56, dtype=dtype, layout=layout)
            yield op_call(aten.max_pool2d_with_indices.default, x, [2, 2], [2, 2])
            yield op_call(aten.avg_pool2d.default, x, [2, 2], [2, 2])


@asks("aten.max_pool2d_with_indices_backward.default")
def _pooling_backward_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        x = zeros(16, 64, 56, 56, dtype=dtype)
        for layout in ("contiguous", "channels last", "transposed"):
            gradient = zeros(16, 64, 28, 28, dtype=dtype, layout=layout)
            indices = zeros(16, 64, 28, 28, dtype=I64)
            window = [2, 2], [2, 2], [0, 0]
            op = aten.max_pool2d_with_indices_backward.default
            yield op_call(op, gradient, x, *window, [1, 1], False, indices)
            op = aten.avg_pool2d_backward.default
            yield op_call(op, gradient, x, *window, False, True, None)


@asks("aten._adaptive_avg_pool2d.default")
def _adaptive_pooling_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "channels last", "transposed"):
            for side in (7, 3):
                x = zeros(16, 64, 56, 56, dtype=dtype, layout=layout)
                yield op_call(aten._adaptive_avg_pool2d.default, x, [side, side])


@asks("aten._adaptive_avg_pool2d_backward.default")
def _adaptive_pooling_backward_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "channels last", "transposed"):
            gradient = zeros(16, 64, 7, 7, dtype=dtype, layout=layout)
            x = zeros(16, 64, 56, 56, dtype=dtype)
            yield op_call(aten._adaptive_avg_pool2d_backward.default, gradient, x)
