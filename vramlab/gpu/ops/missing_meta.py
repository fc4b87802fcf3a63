"""Ops for which PyTorch has no meta kernel, or none of every dtype: results in CUDA's shapes.

Known limitation: what the CUDA kernels of those without a rule take besides is not counted; the
report names them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramlab.cuda_rules.rounding import round_up
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import OPS, MakeOutputs, op
from vramlab.gpu.core.tensors import empty_meta
from vramlab.gpu.ops import grouped_mm
from vramlab.gpu.torch_internals import OpOverload, schema_of

Outputs = tuple[Tensor, ...]


def _like(tensor: Tensor, *_: object, **__: object) -> Outputs:
    return (empty_meta(tensor.shape, tensor.dtype),)


def _like_second(_: Tensor, tensor: Tensor, *__: object, **___: object) -> Outputs:
    return _like(tensor)


def _with_mask(tensor: Tensor, *_: object, **__: object) -> Outputs:
    """Make the result, and the mask of elements that get a gradient.

    Source: FakeQuantPerTensorAffine.cpp and FakeQuantPerChannelAffine.cpp in
    aten/src/ATen/native/quantized, PyTorch 2.13.
    """
    mask = torch.empty_like(tensor, dtype=torch.bool, device="meta")
    return torch.empty_like(tensor, device="meta"), mask


def _least_squares(self: Tensor, b: Tensor, *_: object, **__: object) -> Outputs:
    """Make solution and residuals; rank and singular values are the CPU's alone.

    Source: `linalg_lstsq_out` in aten/src/ATen/native/BatchLinearAlgebra.cpp, PyTorch 2.13.
    """
    rows, columns = self.shape[-2:]
    is_vector = b.dim() == 1 or b.shape == self.shape[:-1]
    right = 1 if is_vector else b.size(-1)
    batch = torch.broadcast_shapes(self.shape[:-2], b.shape[: -1 if is_vector else -2])
    residuals = (*batch, right) if rows > columns else (0,)
    real = self.dtype.to_real()
    return (
        empty_meta((*batch, columns, *(() if is_vector else (right,))), self.dtype),
        empty_meta(residuals, real),
        empty_meta((0,), torch.int64),
        empty_meta((0,), real),
    )


def _sampled(self: Tensor, grid: Tensor) -> Outputs:
    return (empty_meta((*self.shape[:2], *grid.shape[1:3]), self.dtype),)


def _gradients_of_sampler(self: Tensor, grid: Tensor, grad_output: Tensor) -> Outputs:
    return empty_meta(self.shape, self.dtype), empty_meta(grid.shape, grid.dtype)


def _gradients_of_attention(*args: Any, **_: object) -> tuple[Any, ...]:
    """Make gradients of query, key and value, and of a bias that needs one, in rows of 16 numbers.

    PyTorch's own lacks an argument. Source: `_efficient_attention_backward` in
    aten/src/ATen/native/transformers/cuda/attention_backward.cu, PyTorch 2.13.
    """
    _, query, key, value, bias = args[:5]
    of_bias: Tensor | None = None
    if bias is not None and args[15]:
        columns = bias.size(-1)
        of_bias = empty_meta((*bias.shape[:-1], round_up(columns, 16)), bias.dtype)[..., :columns]
    return (*(empty_meta(each.shape, each.dtype) for each in (query, key, value)), of_bias)


def in_shapes_of_cuda(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run one of these ops: without values its results are empty tensors."""
    device_index = dispatcher.find_device_index(func, args, kwargs)
    make_outputs = OPS[func].make_outputs
    if make_outputs is None or not args[0].is_meta or device_index is None or device_index < 0:
        return dispatcher.run_plain(func, args, kwargs)
    outputs = make_outputs(*args, **kwargs)
    result = outputs if len(schema_of(func).returns) > 1 else outputs[0]
    dispatcher.count_call(func, device_index)
    dispatcher.allocate_outputs(func, args, kwargs, result, device_index)
    return result


def _without_meta(make_outputs: MakeOutputs, *names: str) -> None:
    op(*names, handler=in_shapes_of_cuda, make_outputs=make_outputs)


_without_meta(
    _like,
    "aten._dirichlet_grad.default",
    "aten._sample_dirichlet.default",
    "aten._standard_gamma_grad.default",
    "aten.binomial.default",
)
_without_meta(
    _like_second,
    "aten.fractional_max_pool3d_backward.default",
    "aten.multi_margin_loss_backward.default",
    "aten.multilabel_margin_loss_backward.default",
)
_without_meta(
    _with_mask,
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    "aten.fake_quantize_per_channel_affine_cachemask.default",
    "aten.fake_quantize_per_tensor_affine_cachemask.default",
)
_without_meta(_sampled, "aten.cudnn_grid_sampler.default")
_without_meta(_gradients_of_sampler, "aten.cudnn_grid_sampler_backward.default")
_without_meta(grouped_mm.product, "aten._grouped_mm.default")
_without_meta(_gradients_of_attention, "aten._efficient_attention_backward.default")
_without_meta(_least_squares, "aten.linalg_lstsq.default")
