"""Rules of normalization layers: contiguous copies, and sums over the batch in parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.kernels.calls import BF16, F32, OpCall, Zeros, asks, aten, op_call, zeros
from vramlab.kernels.operands import contiguous, opmath_bytes
from vramlab.kernels.reductions import whole_column_sum
from vramlab.kernels.registry import OUTPUTS, Call, Give, Output, Status, Step, Take, rule

_LAYER_NORM_CU = "aten/src/ATen/native/cuda/layer_norm_kernel.cu, PyTorch 2.13"
_GROUP_NORM_CU = "aten/src/ATen/native/cuda/group_norm_kernel.cu, PyTorch 2.13"
_MOST_IMAGES_OF_CUDNN = 65535
_EXACT_MOMENTS = (2, 13)
"""From here on, group norm of 16 bits keeps means and deviations in float32 as well."""
_LONG_BATCH = 64 * 1024
_BLOCK_COLUMNS = 32
_BLOCK_ROWS = 32
_MOST_BLOCKS = 32 * 1024


def partial_gradient_rows(rows: int, columns: int, multiprocessors: int) -> int:
    """Count the rows of partial sums for weight and bias; 0 where blocks sum by themselves.

    Only a batch that is much longer than a row is wide is summed in parts.

    Source: LaunchGammaBetaBackwardCUDAKernel in layer_norm_kernel.cu, PyTorch 2.13.
    """
    if rows <= _LONG_BATCH or columns // _BLOCK_COLUMNS >= multiprocessors // 2:
        return 0
    blocks_across = math.ceil(columns / _BLOCK_COLUMNS)
    return min(_MOST_BLOCKS // blocks_across, math.ceil(rows / _BLOCK_ROWS))


@rule(
    "aten.native_batch_norm.default",
    takes="nothing; in evaluation, cuDNN saves no moments",
    source="_select_batch_norm_backend in aten/src/ATen/native/Normalization.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def batch_norm(
    call: Call,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    *_: object,
) -> Iterable[Step]:
    """Yield the result, and the moments of each channel that are saved with it.

    Known limitation: in training, cuDNN's workspace is not counted.
    """
    yield Output(0)
    if not training and _is_cudnns(input, weight, bias, running_mean, running_var):
        yield Output(1, 0)
        yield Output(2, 0)
    yield OUTPUTS


def _is_cudnns(input: Tensor, weight: Tensor | None, *others: Tensor | None) -> bool:
    """Tell whether cuDNN does it, in evaluation."""
    return (
        torch.backends.cudnn.enabled
        and weight is not None
        and all(other is not None for other in others)
        and torch.bfloat16 not in (input.dtype, weight.dtype)
        and (input.dtype != torch.float16 or weight.dtype == torch.float32)
        and input.dim() >= 3
        and input.shape[0] <= _MOST_IMAGES_OF_CUDNN
        and input.numel() < 2**31 - 1
    )


@rule(
    "aten.native_layer_norm.default",
    takes="a contiguous copy of an input, weight or bias that is not",
    source=_LAYER_NORM_CU,
)
def layer_norm(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Iterable[Step]:
    yield from contiguous(input, "the input")
    yield from contiguous(weight, "the weight")
    yield from contiguous(bias, "the bias")
    yield OUTPUTS


def _gradients(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    outputs: Sequence[int],
) -> Iterator[Step]:
    """Yield the gradients of the input and then of the parameters, whose outputs are given."""
    yield Output(0)
    columns = math.prod(normalized_shape)
    rows = input.numel() // columns if columns else 0
    wanted = [index for index in outputs if call.outputs[index] is not None]
    partial_rows = partial_gradient_rows(rows, columns, call.context.model.multiprocessors)
    if not partial_rows:
        yield OUTPUTS
        yield from contiguous(grad_out, "the gradient")
        return
    # The gradients are first made as always, then replaced by the sums of the parts.
    element_bytes = input.element_size()
    for index in wanted:
        yield Take(columns * element_bytes, f"first gradient {index}")
    yield from contiguous(grad_out, "the gradient")
    for index in wanted:
        yield Take(partial_rows * columns * element_bytes, f"partial gradient {index}")
    for index in wanted:
        yield Output(index)
        yield from whole_column_sum(call.context, partial_rows, columns, input.dtype)
        yield Give(f"first gradient {index}")


@rule(
    "aten.native_layer_norm_backward.default",
    takes="a contiguous copy of an operand that is not; with more than 65536 rows that are short, "
    "partial gradients of weight and bias",
    source=_LAYER_NORM_CU,
)
def layer_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> Iterable[Step]:
    yield from contiguous(input, "the input")
    yield from contiguous(weight, "the weight")
    yield from contiguous(bias, "the bias")
    yield from _gradients(call, grad_out, input, normalized_shape, (1, 2))


@rule(
    "aten._fused_rms_norm.default",
    takes="a contiguous copy of an input or weight that is not",
    source=_LAYER_NORM_CU,
)
def rms_norm(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    eps: float | None,
) -> Iterable[Step]:
    yield from contiguous(input, "the input")
    yield from contiguous(weight, "the weight")
    yield OUTPUTS


@rule(
    "aten._fused_rms_norm_backward.default",
    takes="as native_layer_norm_backward, of the weight alone",
    source=_LAYER_NORM_CU,
)
def rms_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: Sequence[bool],
) -> Iterable[Step]:
    yield from contiguous(input, "the input")
    yield from contiguous(weight, "the weight")
    yield from _gradients(call, grad_out, input, normalized_shape, (1,))


@rule(
    "aten.native_group_norm.default",
    takes="a contiguous copy of an operand that is not; a scale and a shift for each sample and "
    "channel, in float32; from PyTorch 2.13 on, in 16 bits, moments of each group in float32",
    source=_GROUP_NORM_CU,
)
def group_norm(
    call: Call,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,  # noqa: N803 - the op's own names
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    eps: float,
) -> Iterable[Step]:
    yield from contiguous(input, "the input")
    yield OUTPUTS
    if input.element_size() == 2 and input.numel() and call.context.torch_version >= _EXACT_MOMENTS:
        yield Take(4 * N * group, "means in float32")
        yield Take(4 * N * group, "deviations in float32")
    if HxW != 1 and input.numel() and (weight is not None or bias is not None):
        yield Take(N * C * opmath_bytes(input.dtype), "scales")
        yield Take(N * C * opmath_bytes(input.dtype), "shifts")


@rule(
    "aten.native_group_norm_backward.default",
    takes="sums of each sample and channel, and coefficients of each sample and group, in float32",
    source=_GROUP_NORM_CU,
)
def group_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,  # noqa: N803
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    output_mask: Sequence[bool],
) -> Iterable[Step]:
    """Sum up each sample and channel before the gradients of input, weight and bias.

    Known limitation: with one position per channel another kernel runs, not modelled here.
    """
    yield OUTPUTS
    if HxW == 1 or not input.numel():
        return
    per_channel = N * C * opmath_bytes(input.dtype)
    per_group = N * group * opmath_bytes(input.dtype)
    yield Take(per_channel, "sums of gradient times input")
    yield Take(per_channel, "sums of the gradient")
    if output_mask[0]:
        yield Take(per_group, "coefficients of the input")
        yield Take(per_group, "constants")
        if weight is not None:
            yield Take(per_channel, "coefficients of the gradient")


# Calls that ask a real GPU.

_ROWS = ((4096, 768), (65536, 64), (65537, 64), (131072, 128), (100, 30000), (33, 7))


def _operands(rows: int, width: int, dtype: torch.dtype) -> tuple[Zeros, Zeros, Zeros]:
    """Give an input, a gain, and one statistic of each row."""
    return zeros(rows, width, dtype=dtype), zeros(width, dtype=dtype), zeros(rows, 1)


@asks("aten.native_layer_norm.default")
def _layer_norm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            gain = zeros(width, dtype=dtype)
            op = aten.native_layer_norm.default
            yield op_call(op, zeros(rows, width, dtype=dtype), [width], gain, gain, 1e-5)
        turned = zeros(4096, 768, dtype=dtype, layout="transposed")
        gain = zeros(768, dtype=dtype)
        yield op_call(aten.native_layer_norm.default, turned, [768], gain, gain, 1e-5)


@asks("aten.native_layer_norm_backward.default")
def _layer_norm_backward_calls() -> Iterator[OpCall]:
    op = aten.native_layer_norm_backward.default
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            x, gain, number = _operands(rows, width, dtype)
            yield op_call(op, x, x, [width], number, number, gain, gain, [True, True, True])
        x, gain, number = _operands(4096, 768, dtype)
        for layout in ("transposed", "expanded"):
            gradient = zeros(4096, 768, dtype=dtype, layout=layout)
            yield op_call(op, gradient, x, [768], number, number, gain, gain, [True, True, True])


@asks("aten._fused_rms_norm.default")
def _rms_norm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            gain = zeros(width, dtype=dtype)
            op = aten._fused_rms_norm.default
            yield op_call(op, zeros(rows, width, dtype=dtype), [width], gain, 1e-5)


@asks("aten._fused_rms_norm_backward.default")
def _rms_norm_backward_calls() -> Iterator[OpCall]:
    op = aten._fused_rms_norm_backward.default
    for dtype in (F32, BF16):
        for rows, width in _ROWS:
            x, gain, number = _operands(rows, width, dtype)
            yield op_call(op, x, x, [width], number, gain, [True, True])


_IMAGES = ((16, 64, 56, 56), (2, 32, 7, 7), (1, 8, 512, 512))


@asks("aten.native_group_norm.default")
def _group_norm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for n, c, h, w in _IMAGES:
            gain = zeros(c, dtype=dtype)
            x = zeros(n, c, h, w, dtype=dtype)
            yield op_call(aten.native_group_norm.default, x, gain, gain, n, c, h * w, 8, 1e-5)


@asks("aten.native_group_norm_backward.default")
def _group_norm_backward_calls() -> Iterator[OpCall]:
    op = aten.native_group_norm_backward.default
    for dtype in (F32, BF16):
        for n, c, h, w in _IMAGES:
            x, gain = zeros(n, c, h, w, dtype=dtype), zeros(c, dtype=dtype)
            number = zeros(n, 8, dtype=dtype)
            mask = [True, True, True]
            yield op_call(op, x, x, number, number, gain, n, c, h * w, 8, mask)
