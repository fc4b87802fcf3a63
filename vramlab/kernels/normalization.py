"""Rules of normalization layers: contiguous copies, and sums over the batch in parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import torch
from torch import Tensor

from vramlab.cuda_rules.rounding import ceil_div, power_of_two_below
from vramlab.kernels.copies import copies
from vramlab.kernels.reductions import variance_steps, whole_column_sum
from vramlab.kernels.rule_table.calls import BF16, F32, OpCall, Zeros, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.operands import (
    contiguous,
    flat_stride,
    in_format,
    nbytes,
    opmath_bytes,
    suggested_format,
)
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

_LAYER_NORM_CU = "aten/src/ATen/native/cuda/layer_norm_kernel.cu, PyTorch 2.13"
_GROUP_NORM_CU = "aten/src/ATen/native/cuda/group_norm_kernel.cu, PyTorch 2.13"
_MOST_IMAGES, _MOST_IMAGES_IN_TRAINING = 65535, 880801
"""The largest batches that cuDNN normalizes."""
_MOST_NUMBERS = 2**31 - 1
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


_BATCH_NORM_CU = "aten/src/ATen/native/cuda/Normalization.cu and .cuh, PyTorch 2.13"
_MOMENTS_OF_CHANNELS = 4
"""Numbers of each channel that a block hands over: mean, sum of squares, and how many; backward 2.
"""


class Form(Enum):
    """Which kernels of batch normalization read a tensor (`batch_norm_choose_impl`)."""

    CONTIGUOUS = "channel by channel"
    CHANNELS_LAST = "position by position"
    GENERAL = "in any layout, by kernels for elements and a reduction"


def _form(tensor: Tensor) -> Form:
    if tensor.numel() > _MOST_NUMBERS:
        return Form.GENERAL
    if tensor.is_contiguous():
        return Form.CHANNELS_LAST if tensor.stride(1) == 1 else Form.CONTIGUOUS
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return Form.CHANNELS_LAST
    return Form.GENERAL


def _is_last(tensor: Tensor) -> bool:
    """Return whether channels lie innermost (`batch_norm_use_channels_last_kernels`)."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(tensor.dim())
    if wanted is not None and tensor.is_contiguous(memory_format=wanted):
        return True
    return tensor.is_contiguous() and tensor.stride(1) == 1


def _are_contiguous(*tensors: Tensor | None) -> bool:
    return all(tensor is None or tensor.is_contiguous() for tensor in tensors)


def _shared_sums(input: Tensor, number_bytes: int, numbers: int) -> Iterator[Step]:
    """Yield what blocks hand over to each other that sum up channels that lie innermost.

    Source: flexible_launch_configs in Normalization.cuh, PyTorch 2.13.
    """
    channels = input.size(1)
    rows = input.numel() // channels
    of_thread, widest, threads, most, least = 16, 32, 512, 128, 8
    across = min(power_of_two_below(channels), widest)
    down = min(power_of_two_below(ceil_div(rows, of_thread)), threads // across)
    if across * down != threads:
        across = min(power_of_two_below(channels), threads // down)
    blocks = min(ceil_div(rows, down * of_thread), most)
    if blocks >= least:
        yield Take(numbers * channels * blocks * number_bytes, "sums of blocks")
        yield Take(4 * ceil_div(channels, across), "semaphores")
        yield Give("semaphores")
        yield Give("sums of blocks")


@rule(
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    takes="in channels last, sums of blocks; of an input in neither format, a copy in float32 if "
    "it has 16 bits, what the variance takes, and a number for a weight or bias that is missing",
    source=_BATCH_NORM_CU,
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
    """Yield the result, and the moments of each channel that are saved with it."""
    yield from _normalized(call, input, weight, bias, training)


@rule(
    "aten._native_batch_norm_legit.no_stats",
    takes="as native_batch_norm",
    source=_BATCH_NORM_CU,
    status=Status.FROM_SOURCE,
)
def batch_norm_without_statistics(
    call: Call,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    *_: object,
) -> Iterable[Step]:
    yield from _normalized(call, input, weight, bias, training)


@rule(
    "aten._batch_norm_with_update.default",
    takes="nothing where cuDNN does it; else as native_batch_norm",
    source=_BATCH_NORM_CU,
    status=Status.FROM_SOURCE,
)
def batch_norm_with_update(
    call: Call,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    *_: object,
) -> Iterable[Step]:
    if is_cudnns(input, weight, bias, running_mean, running_var, training=True):
        yield OUTPUTS
    else:
        yield from _normalized(call, input, weight, bias, training=True)


def is_cudnns(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    *,
    training: bool,
) -> bool:
    """Return whether cuDNN computes a batch normalization.

    Source: `_select_batch_norm_backend` in aten/src/ATen/native/Normalization.cpp, PyTorch 2.13.
    """
    statistics = [each is not None for each in (running_mean, running_var)]
    return (
        torch.backends.cudnn.enabled
        and weight is not None
        and bias is not None
        and (all(statistics) or (training and not any(statistics)))
        and torch.bfloat16 not in (input.dtype, weight.dtype)
        and (input.dtype != torch.float16 or weight.dtype == torch.float32)
        and input.dim() >= 3
        and input.size(0) <= (_MOST_IMAGES_IN_TRAINING if training else _MOST_IMAGES)
        and input.numel() < _MOST_NUMBERS
    )


def _normalized(
    call: Call, input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool
) -> Iterator[Step]:
    """Yield what PyTorch's own kernels take (`batch_norm_cuda_out`)."""
    yield OUTPUTS
    form = _form(input)
    number_bytes = opmath_bytes(input.dtype)
    if training and input.numel():
        if form is Form.CHANNELS_LAST:
            yield from _shared_sums(input, number_bytes, _MOMENTS_OF_CHANNELS)
        elif form is Form.GENERAL:
            yield from _moments(call, input, number_bytes)
    if form is Form.GENERAL or (form is Form.CHANNELS_LAST and not _are_contiguous(weight, bias)):
        for each, what in ((weight, "weight"), (bias, "bias")):
            if each is None:
                yield Take(number_bytes, f"number for a {what}")


def _moments(call: Call, input: Tensor, number_bytes: int) -> Iterator[Step]:
    """Yield what `var_mean` takes: it reads float16 as it is, and casts bfloat16 to float32.

    Source: make_reduction for two results in aten/src/ATen/native/ReduceOpsUtils.h, PyTorch 2.13.
    """
    outputs = [each for each in call.outputs[1:3] if each is not None]
    whole = "input in float32"
    if input.dtype == torch.bfloat16:
        yield Take(input.numel() * number_bytes, whole)
        input = torch.empty_like(input, dtype=outputs[0].dtype)
    dims = [dim for dim in range(input.dim()) if dim != 1]
    yield from variance_steps(call.context, input, outputs, dims)
    yield Give(whole)


@rule(
    "aten.native_batch_norm_backward.default",
    takes="where channels lie innermost, sums of each channel and of blocks; a copy of an input or "
    "gradient that is no row of positions; a number for a weight that is missing",
    source=_BATCH_NORM_CU,
    status=Status.FROM_SOURCE,
)
def batch_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Iterable[Step]:
    """Reduce and write the gradient in one kernel, unless channels lie innermost."""
    reduces = train or output_mask[1] or output_mask[2]
    if reduces and output_mask[0] and has_one_kernel_backward(input):
        yield from _as_rows(input, "the input")
        yield from _as_rows(grad_out, "the gradient")
        yield OUTPUTS
        return
    number_bytes = opmath_bytes(input.dtype)
    if save_mean is not None and save_mean.numel():
        number_bytes = save_mean.element_size()
    if save_invstd is None or not save_invstd.numel():
        yield Take(input.size(1) * number_bytes, "deviations of channels")
    read = (weight, save_mean, save_invstd)
    if reduces:
        yield from _reduced(
            call, grad_out, input, weight, number_bytes, _are_contiguous(*read), output_mask[0]
        )
    form = _form(input)
    if form is not _form(grad_out):
        form = Form.GENERAL
    in_general = form is Form.GENERAL or (form is Form.CHANNELS_LAST and not _are_contiguous(*read))
    if output_mask[0] and train and weight is None and in_general:
        yield Take(number_bytes, "number for a weight")
    yield OUTPUTS


def has_one_kernel_backward(input: Tensor) -> bool:
    """Return whether the gradients come of one kernel, which knows no channels last."""
    return not _is_last(input) and input.numel() <= _MOST_NUMBERS


def _reduced(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    number_bytes: int,
    are_contiguous: bool,
    with_sums: bool,
) -> Iterator[Step]:
    """Yield sums of each channel, and the gradients of weight and bias.

    Where channels lie innermost, the kernel makes both gradients, wanted or not.
    """
    channels = input.size(1)
    at_once = _is_last(grad_out) and _is_last(input) and are_contiguous
    if not at_once:
        yield from _as_rows(input, "the input")
        yield from _as_rows(grad_out, "the gradient")
    if at_once or with_sums:
        yield Take(channels * number_bytes, "sums of the gradient")
        yield Take(channels * number_bytes, "sums of gradient times input")
    for index in (1, 2):
        if call.outputs[index] is not None:
            yield Output(index)
        elif at_once and weight is not None:
            yield Take(channels * weight.element_size(), "gradient that is not wanted")
    if at_once:
        yield from _shared_sums(input, number_bytes, 2)
    yield Give("rows of the gradient")
    yield Give("rows of the input")


def _as_rows(tensor: Tensor, what: str) -> Iterator[Step]:
    """Yield the copy that `reshape({N, C, -1})` makes, if it makes one."""
    if tensor.dim() > 2 and tensor.numel() and flat_stride(tensor[0, 0]) is None:
        yield Take(nbytes(tensor), f"rows of {what}")


@rule(
    "aten.cudnn_batch_norm_backward.default",
    takes="a copy of a gradient that is not in the input's memory format",
    source="aten/src/ATen/native/cudnn/BatchNorm.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def cudnn_batch_norm_backward(
    call: Call, input: Tensor, grad_output: Tensor, *arguments: object
) -> Iterable[Step]:
    return copies(call, "grad_output as input, outputs", (input, grad_output))


@rule(
    "aten.batch_norm_backward.default",
    takes="as cudnn_batch_norm_backward where cuDNN does it; else as native_batch_norm_backward",
    source=_BATCH_NORM_CU,
    status=Status.FROM_SOURCE,
)
def new_batch_norm_backward(
    call: Call,
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Tensor,
) -> Iterable[Step]:
    # The bias is as the weight is: it is not among the arguments.
    if update and is_cudnns(input, weight, weight, running_mean, running_var, training=True):
        yield from in_format(grad_out, suggested_format(input), "the gradient")
        yield OUTPUTS
        return
    yield from batch_norm_backward(
        call,
        grad_out,
        input,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_var,
        update,
        eps,
        output_mask,
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

    With one position per channel, the gradient has no coefficients of its own.
    """
    yield OUTPUTS
    if not input.numel():
        return
    per_channel = N * C * opmath_bytes(input.dtype)
    per_group = N * group * opmath_bytes(input.dtype)
    yield Take(per_channel, "sums of gradient times input")
    yield Take(per_channel, "sums of the gradient")
    if output_mask[0]:
        yield Take(per_group, "coefficients of the input")
        yield Take(per_group, "constants")
        if weight is not None and HxW != 1:
            yield Take(per_channel, "coefficients of the gradient")


# Calls that ask a real GPU.

_ROWS = ((4096, 768), (65536, 64), (65537, 64), (131072, 128), (100, 30000), (33, 7))


def _operands(rows: int, width: int, dtype: torch.dtype) -> tuple[Zeros, Zeros, Zeros]:
    """Return an input, a gain, and one statistic of each row."""
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
