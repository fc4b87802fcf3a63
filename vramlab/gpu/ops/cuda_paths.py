"""Ops for which PyTorch takes another path on CUDA than on meta or CPU tensors.

They are decided in C++ above the level that a dispatch mode sees, by asking whether a tensor is on
CUDA. The tensors of a virtual GPU say no, so these ops get kernels that take CUDA's path for them,
registered with torch.library and unregistered when the machine is detached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from vramlab.gpu.core.machine import Machine, VirtualDevice
from vramlab.gpu.core.op_table import OPS, CudaPath, cuda_kernel, cuda_path
from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import known, record_of, remember
from vramlab.gpu.ops.attention.sdpa import AttentionCall, additive, choose_backend, run_attention
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    DispatchKey,
    OpOverload,
    OpOverloadPacket,
    kernel_of,
)
from vramlab.kernels.normalization import is_cudnns
from vramlab.kernels.rule_table.operands import suggested_format

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class PathContext:
    """Where an op takes CUDA's path.

    Attributes:
        device: the GPU.
        torch_version: (major, minor) of the PyTorch whose path is meant.
        has_values: whether values are computed, on the CPU, where CUDA's kernels do not exist.
    """

    device: VirtualDevice
    torch_version: tuple[int, int]
    has_values: bool


def install(session: Session) -> None:
    """Register CUDA's paths for the tensors of the session's GPUs."""
    CudaPaths(session.machine, session.backing_device).install(session.library)


class CudaPaths:
    """CUDA's paths for the tensors of one machine.

    Known limitation: where values are computed, attention that is not memory-efficient attention
    without dropout is PyTorch's own math, since the other fused kernels exist on CUDA only.
    """

    def __init__(self, machine: Machine, backing_device: torch.device) -> None:
        self._machine = machine
        self._has_values = backing_device.type == "cpu"
        self._backend = "CPU" if self._has_values else "Meta"

    def install(self, library: torch.library.Library) -> None:
        """Register the kernels: above autograd, and below it for inference mode."""
        # Library.impl refuses meta kernels of ops that decompose; CUDA's path is one, though.
        registered: Any = library.m
        for func, spec in OPS.having("cuda_path"):
            if spec.cuda_path is not None:
                name = func.name().removeprefix("aten::")
                kernel = self._only_on_gpu(func, spec.cuda_path)
                library.impl(name, kernel, f"Autograd{self._backend}")
                registered.impl(name, self._backend, kernel)
        if self._has_values:
            return
        for func, spec in OPS.having("cuda_kernel"):
            # With a kernel for its tensors, autograd takes the op as a whole, as it does on CUDA.
            registered.impl(func.name().removeprefix("aten::"), "Meta", spec.cuda_kernel)

    def _only_on_gpu(self, func: OpOverload, path: CudaPath) -> CudaPath:
        """Take `path` where the first operand is on a virtual GPU, else PyTorch's own way."""

        def kernel(*args: Any, **kwargs: Any) -> Any:
            device_index = _gpu_of(args[0])
            if device_index is None:
                return kernel_of(func, DispatchKey.CompositeImplicitAutograd)(*args, **kwargs)
            machine = self._machine
            where = PathContext(
                machine.device(device_index), machine.torch_version, self._has_values
            )
            return path(where, *args, **kwargs)

        return kernel


@cuda_path("aten.dropout.default")
def dropout(where: PathContext, tensor: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Run a fused kernel with a mask of one byte an element.

    Source: `is_fused_kernel_acceptable` in aten/src/ATen/native/Dropout.cpp, PyTorch 2.13.
    """
    if not train or p == 0 or tensor.numel() == 0:
        return tensor  # the very tensor; `decompose` would answer a copy
    if p < 1:
        return aten.native_dropout(tensor, p, True)[0]
    return tensor * tensor.new_zeros(())


@cuda_path("aten.linear.default")
def linear(
    where: PathContext,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Add the bias in place where the input is not contiguous: then a product comes before it.

    PyTorch's own would add it out of place, because it sees that a dispatch mode is on.

    Source: `linear` in aten/src/ATen/native/Linear.cpp, PyTorch 2.13.
    """
    if bias is None or bias.dim() != 1 or input.dim() == 2 or input.is_contiguous():
        return aten.linear.default.decompose(input, weight, bias)
    return aten.matmul(input, weight.t()).add_(bias)


@cuda_path("aten.scaled_dot_product_attention.default")
def attention(
    where: PathContext,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return the backend that CUDA chooses (`sdpa.py`)."""
    call = AttentionCall(
        query=query,
        key=key,
        value=value,
        mask=attn_mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
        enable_gqa=enable_gqa,
        capability=where.device.model.compute_capability,
        torch_version=where.torch_version,
    )
    if where.has_values and not _is_efficient(call):
        if is_causal:  # PyTorch would make the mask where it takes the query to be: on the host
            lengths = (query.size(-2), key.size(-2))
            attn_mask = query.new_ones(lengths, dtype=torch.bool).tril()
            is_causal = False
        if attn_mask is not None:  # this op adds a mask as it is, a boolean one too
            attn_mask = additive(attn_mask, query.dtype)
        return aten._scaled_dot_product_attention_math(
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )[0]
    return run_attention(call, scale)


def _is_efficient(call: AttentionCall) -> bool:
    """Whether CUDA would take the kernel whose values are known: `attention_values.py`."""
    return call.dropout_p == 0 and choose_backend(call) == SDPBackend.EFFICIENT_ATTENTION


@cuda_path("aten.one_hot.default")
def one_hot(where: PathContext, self: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """Scatter ones into zeros; PyTorch compares with every class where a dispatch mode is on.

    Source: `one_hot` in aten/src/ATen/native/Onehot.cpp, PyTorch 2.13.
    """
    if where.has_values or self.dtype != torch.int64 or not self.numel():
        return aten.one_hot.default.decompose(self, num_classes)
    if num_classes == -1:
        num_classes = int(self.max().item()) + 1
    zeros = self.new_zeros([*self.shape, num_classes])
    return zeros.scatter_(-1, self.unsqueeze(-1), 1)


@cuda_path("aten.cross_entropy_loss.default")
def cross_entropy(
    where: PathContext,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Divide by the weights of the labels that are not ignored, which are selected.

    PyTorch gathers the weights of all where a dispatch mode is on.

    Source: `cross_entropy_loss_label_smoothing` in aten/src/ATen/native/LossNLL.cpp, PyTorch 2.13.
    """
    has_probabilities = self.shape == target.shape
    is_smoothed_mean = label_smoothing and reduction == _MEAN and not has_probabilities
    if weight is None or not is_smoothed_mean or where.has_values:
        func = aten.cross_entropy_loss.default
        return func.decompose(self, target, weight, reduction, ignore_index, label_smoothing)
    classes = 0 if self.dim() == 1 else 1
    logs = aten.log_softmax.int(self, classes, self.dtype)
    loss = aten.nll_loss_nd(logs, target, weight, reduction, ignore_index)
    shape = [1] * logs.dim()
    shape[classes] = weight.size(0)
    smooth = -(logs * weight.view(shape)).sum(classes)
    is_ignored = target == ignore_index
    smooth.masked_fill_(is_ignored, 0.0)
    is_counted = ~is_ignored
    if known(is_counted) is None:
        remember(is_counted, True)
    weights = weight.gather(0, target.masked_select(is_counted).flatten())
    total = weights.sum()
    del is_counted, weights
    smooth = smooth.sum() / total
    return (1 - label_smoothing) * loss + smooth * (label_smoothing / self.size(classes))


_MEAN = 1
"""`Reduction::Mean` in C++."""


@cuda_path("aten.isclose.default")
def isclose(
    where: PathContext,
    self: torch.Tensor,
    other: torch.Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> torch.Tensor:
    """Note in place which numbers are nan in both.

    Source: `isclose` in aten/src/ATen/native/TensorCompare.cpp, PyTorch 2.13.
    """
    if where.has_values or not equal_nan or not self.is_floating_point():
        return aten.isclose.default.decompose(self, other, rtol, atol, equal_nan)
    close = aten.eq.Tensor(self, other)
    close.bitwise_or_(self.isnan().bitwise_and_(other.isnan()))
    if rtol == 0 and atol == 0:
        return close
    allowed = atol + (rtol * other).abs()
    actual = (self - other).abs()
    return close.bitwise_or_(actual.isfinite().bitwise_and_(actual <= allowed))


@cuda_path("aten.rms_norm.default")
def rms_norm(
    where: PathContext,
    tensor: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Run one fused kernel.

    Source: `rms_norm_symint` in aten/src/ATen/native/layer_norm.cpp, PyTorch 2.13.
    """
    if where.has_values:
        return aten.rms_norm.default.decompose(tensor, normalized_shape, weight, eps)
    return aten._fused_rms_norm(tensor, normalized_shape, weight, eps)[0]


@cuda_path("aten._batch_norm_impl_index.default")
def batch_norm(
    where: PathContext,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Call cuDNN where it normalizes the batch, with operands that are contiguous.

    Source: `_batch_norm_impl_index` in aten/src/ATen/native/Normalization.cpp, PyTorch 2.13.
    """
    if input.numel() == 0:
        return _batch_norm_of_nothing(input, weight, bias)
    tensors = (input, weight, bias, running_mean, running_var)
    settings = (training, momentum, eps)
    if where.has_values or not is_cudnns(*tensors, training=training):
        func = aten._batch_norm_impl_index.default
        return func.decompose(*tensors, *settings, cudnn_enabled)
    image = input.contiguous(memory_format=suggested_format(input))
    others = (None if each is None else each.contiguous() for each in tensors[1:])
    return *aten.cudnn_batch_norm(image, *others, *settings), 1


def _batch_norm_of_nothing(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Make moments in the dtype that CUDA accumulates in, which is not the host's."""
    channels = input.size(1) if input.dim() > 1 else 0
    dtype = torch.promote_types(input.dtype, torch.float32)
    moments = [input.new_empty(channels, dtype=dtype) for _ in range(2)]
    output = input.clone()
    if weight is not None:
        output = output * weight[0]
    if bias is not None:
        output = output + bias[0]
    return output, moments[0], moments[1], input.new_empty(0, dtype=torch.uint8), 0


_MOST_CHANNELS_OF_SAMPLER = 1024
_BILINEAR, _ZEROS = 0, 0


@cuda_path("aten.grid_sampler.default")
def grid_sampler(
    where: PathContext,
    input: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> torch.Tensor:
    """Call cuDNN where it interpolates, whose backward pass makes both gradients.

    Source: cond_cudnn_grid_sampler in aten/src/ATen/native/GridSamplerUtils.h, PyTorch 2.13.
    """
    accepted = (torch.float32, torch.float64, torch.float16)
    is_cudnns = (
        torch.backends.cudnn.enabled
        and input.dtype in accepted
        and input.numel() > 0
        and grid.numel() > 0
        and (interpolation_mode, padding_mode) == (_BILINEAR, _ZEROS)
        and align_corners
        and input.dim() == 4
        and input.size(1) <= _MOST_CHANNELS_OF_SAMPLER
    )
    if where.has_values or not is_cudnns:
        func = aten.grid_sampler.default
        return func.decompose(input, grid, interpolation_mode, padding_mode, align_corners)
    return aten.cudnn_grid_sampler(input, grid)


@cuda_path("aten.softmax.int")
def softmax(
    where: PathContext, tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Run a kernel that reads float16 and writes float32, instead of copying to float32 first."""
    return _softmax(where, aten.softmax.int, aten._softmax, tensor, dim, dtype)


@cuda_path("aten.log_softmax.int")
def log_softmax(
    where: PathContext, tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Run a kernel that reads float16 and writes float32, as softmax does."""
    return _softmax(where, aten.log_softmax.int, aten._log_softmax, tensor, dim, dtype)


def _softmax(
    where: PathContext,
    func: OpOverload,
    kernel: OpOverloadPacket,
    tensor: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    """Source: `softmax` and `log_softmax` in aten/src/ATen/native/SoftMax.cpp, PyTorch 2.13."""
    halves = tensor.dtype == torch.float16 and dtype == torch.float32 and not where.has_values
    keeps_input = where.torch_version < _SOFTMAX_KEEPS_NO_INPUT
    if not (halves or keeps_input):
        return func.decompose(tensor, dim, dtype)
    if dtype is not None and not halves:
        tensor = tensor.to(dtype)
    if keeps_input and tensor.requires_grad and torch.is_grad_enabled():
        return _SoftmaxThatKeepsItsInput.apply(tensor, kernel, dim, halves)
    return kernel(tensor, dim, halves)


_SOFTMAX_KEEPS_NO_INPUT = (1, 11)
"""Source: "Avoid saving self for softmax and log_softmax", pull request 65242 of PyTorch."""


class _SoftmaxThatKeepsItsInput(torch.autograd.Function):
    """Autograd's node of softmax before 1.11, which kept the input beside the result.

    The formula of its second derivative named the input, for its dtype only.
    """

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, kernel: OpOverloadPacket, dim: int, half_to_float: bool
    ) -> torch.Tensor:
        result: torch.Tensor = kernel(tensor, dim, half_to_float)
        ctx.save_for_backward(tensor, result)
        ctx.kernel, ctx.dim = kernel, dim
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tensor, result = ctx.saved_tensors
        backward = (
            aten._softmax_backward_data
            if ctx.kernel is aten._softmax
            else aten._log_softmax_backward_data
        )
        return backward(gradient, result, ctx.dim, tensor.dtype), None, None, None


@cuda_kernel("aten._fused_rms_norm.default")
def fused_rms_norm(
    tensor: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None,
    eps: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the result, and the scale of each row, which is float32 for inputs of 16 bit.

    Source: `_fused_rms_norm_cuda` in aten/src/ATen/native/cuda/layer_norm_kernel.cu, PyTorch 2.13.
    """
    across = len(normalized_shape)
    rows = (*tensor.shape[: tensor.dim() - across], *(1,) * across)
    halves = tensor.dtype in (torch.float16, torch.bfloat16)
    scale = tensor.new_empty(rows, dtype=torch.float32 if halves else tensor.dtype)
    return torch.empty_like(tensor, memory_format=torch.contiguous_format), scale


@cuda_kernel("aten.mish_backward.default")
def mish_backward(gradient: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Make the gradient in one kernel, as that of SiLU is made.

    Source: dispatch of mish_backward in aten/src/ATen/native/native_functions.yaml, PyTorch 2.13.
    """
    made: torch.Tensor = aten.silu_backward(gradient, tensor)
    return made


def _gpu_of(arg: Any) -> int | None:
    if not isinstance(arg, torch.Tensor):
        return None
    with DisableTorchFunction():
        record = record_of(arg)
    return None if record is None or record.device_index < 0 else record.device_index
