"""Rules of pooling: contiguous copies, in the memory format that the input suggests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from vramlab.kernels.copies import copies, copying, is_channels_last
from vramlab.kernels.rule_table.calls import BF16, F32, I64, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.registry import Call, Status, Step, rule

_CUDA = "aten/src/ATen/native/cuda"

_POOLS: tuple[tuple[Status, str, str, tuple[str, ...]], ...] = (
    (
        Status.RECORDED,
        "outputs, self as self",
        "DilatedMaxPool2d.cu and AveragePool2d.cu",
        ("aten.max_pool2d_with_indices.default", "aten.avg_pool2d.default"),
    ),
    (
        Status.RECORDED,
        "outputs, self as self, grad_output as self, indices as self",
        "DilatedMaxPool2d.cu",
        ("aten.max_pool2d_with_indices_backward.default",),
    ),
    (
        Status.FROM_SOURCE,
        "outputs, self as self, grad_output as self",
        "AveragePool2d.cu",
        ("aten.avg_pool2d_backward.default",),
    ),
    (
        Status.FROM_SOURCE,
        "outputs, self as self",
        "DilatedMaxPool3d.cu",
        ("aten.max_pool3d_with_indices.default",),
    ),
    (
        Status.FROM_SOURCE,
        "outputs, grad_output as self, indices as self",
        "DilatedMaxPool3d.cu",
        ("aten.max_pool3d_with_indices_backward.default",),
    ),
    (
        Status.FROM_SOURCE,
        "outputs, self",
        "AveragePool3d.cu and AdaptiveMaxPooling3d.cu",
        ("aten.avg_pool3d.default", "aten.adaptive_max_pool3d.default"),
    ),
    (
        Status.FROM_SOURCE,
        "outputs, grad_output",
        "AveragePool3d.cu, AdaptiveMaxPooling3d.cu and AdaptiveAveragePooling3d.cu",
        (
            "aten.avg_pool3d_backward.default",
            "aten.adaptive_max_pool3d_backward.default",
            "aten._adaptive_avg_pool3d_backward.default",
        ),
    ),
    (
        Status.FROM_SOURCE,
        "self, outputs",
        "AdaptiveAveragePooling3d.cu",
        ("aten._adaptive_avg_pool3d.default",),
    ),
    (
        Status.FROM_SOURCE,
        "outputs, grad_output, indices, output 0",
        "AdaptiveMaxPooling2d.cu",
        ("aten.adaptive_max_pool2d_backward.default",),
    ),
    (
        Status.FROM_SOURCE,
        "grad_output, outputs",
        "FractionalMaxPool2d.cu",
        ("aten.fractional_max_pool2d_backward.default",),
    ),
    (
        Status.FROM_SOURCE,
        "outputs",
        "FractionalMaxPool2d.cu and FractionalMaxPool3d.cu",
        (
            "aten.fractional_max_pool2d.default",
            "aten.fractional_max_pool3d.default",
            "aten.fractional_max_pool3d_backward.default",
        ),
    ),
    (
        Status.FROM_SOURCE,
        "self, indices, outputs",
        "MaxUnpooling.cu",
        ("aten.max_unpool2d.default", "aten.max_unpool3d.default"),
    ),
)

for _status, _order, _file, _ops in _POOLS:
    copying(*_ops, order=_order, source=f"{_CUDA}/{_file}, PyTorch 2.13", status=_status)


@rule(
    "aten._adaptive_avg_pool2d.default",
    takes="a contiguous copy of a batch that is not, before its output",
    source=f"{_CUDA}/AdaptiveAveragePooling.cu, PyTorch 2.13",
)
def adaptive_pool(call: Call, self: Tensor, output_size: Sequence[int]) -> Iterable[Step]:
    """Read one image, without a batch, as it is."""
    order = "self as self, outputs" if self.dim() == 4 else "outputs"
    return copies(call, order, (self, output_size))


@rule(
    "aten._adaptive_avg_pool2d_backward.default",
    takes="a contiguous copy of a gradient that is not; none of channels last",
    source=f"{_CUDA}/AdaptiveAveragePooling.cu, PyTorch 2.13",
)
def adaptive_pool_backward(call: Call, grad_output: Tensor, self: Tensor) -> Iterable[Step]:
    order = "outputs" if is_channels_last(self) else "outputs, grad_output"
    return copies(call, order, (grad_output, self))


@rule(
    "aten.adaptive_max_pool2d.default",
    takes="contiguous copies of a batch that is not, and of its outputs",
    source=f"{_CUDA}/AdaptiveMaxPooling2d.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def adaptive_max_pool(call: Call, self: Tensor, output_size: Sequence[int]) -> Iterable[Step]:
    order = "outputs, output 0, output 1, self" if self.dim() == 4 else "outputs"
    return copies(call, order, (self, output_size))


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
