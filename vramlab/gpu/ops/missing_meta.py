"""Ops for which PyTorch has no meta kernel, or none of every dtype: results in CUDA's shapes.

Known limitation: what the CUDA kernels of those without a rule take besides is not counted; the
report names them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from vramlab.gpu.core.dispatcher import Dispatcher, handles
from vramlab.gpu.ops import grouped_mm

aten = torch.ops.aten

Outputs = tuple[Tensor, ...]


def _empty(*size: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def _like(tensor: Tensor, *_: object, **__: object) -> Outputs:
    return (_empty(*tensor.shape, dtype=tensor.dtype),)


def _like_second(_: Tensor, tensor: Tensor, *__: object, **___: object) -> Outputs:
    return _like(tensor)


def _with_mask(tensor: Tensor, *_: object, **__: object) -> Outputs:
    """The result, and which elements get a gradient.

    Source: FakeQuantPerTensorAffine.cpp and FakeQuantPerChannelAffine.cpp in
    aten/src/ATen/native/quantized, PyTorch 2.13.
    """
    mask = torch.empty_like(tensor, dtype=torch.bool, device="meta")
    return torch.empty_like(tensor, device="meta"), mask


def _least_squares(self: Tensor, b: Tensor, *_: object, **__: object) -> Outputs:
    """Solution and residuals; rank and singular values are the CPU's alone.

    Source: `linalg_lstsq_out` in aten/src/ATen/native/BatchLinearAlgebra.cpp, PyTorch 2.13.
    """
    rows, columns = self.shape[-2:]
    is_vector = b.dim() == 1 or b.shape == self.shape[:-1]
    right = 1 if is_vector else b.size(-1)
    batch = torch.broadcast_shapes(self.shape[:-2], b.shape[: -1 if is_vector else -2])
    residuals = (*batch, right) if rows > columns else (0,)
    real = self.dtype.to_real()
    return (
        _empty(*batch, columns, *(() if is_vector else (right,)), dtype=self.dtype),
        _empty(*residuals, dtype=real),
        _empty(0, dtype=torch.int64),
        _empty(0, dtype=real),
    )


_OUTPUTS: dict[OpOverload, Callable[..., Outputs]] = {
    aten._dirichlet_grad.default: _like,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _with_mask,
    aten._grouped_mm.default: grouped_mm.product,
    aten._masked_softmax.default: _like,
    aten._sample_dirichlet.default: _like,
    aten._standard_gamma_grad.default: _like,
    aten.binomial.default: _like,
    aten.fake_quantize_per_channel_affine_cachemask.default: _with_mask,
    aten.fake_quantize_per_tensor_affine_cachemask.default: _with_mask,
    aten.fractional_max_pool3d_backward.default: _like_second,
    aten.linalg_lstsq.default: _least_squares,
    aten.multi_margin_loss_backward.default: _like_second,
    aten.multilabel_margin_loss_backward.default: _like_second,
}
"""By op: from its arguments to what it returns."""


@handles(*_OUTPUTS)
def in_shapes_of_cuda(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run one of these ops: without values its results are empty tensors."""
    place = dispatcher.place_of(func, args, kwargs)
    if not args[0].is_meta or place is None or place < 0:
        return dispatcher.run_plain(func, args, kwargs)
    outputs = _OUTPUTS[func](*args, **kwargs)
    result = outputs if len(func._schema.returns) > 1 else outputs[0]
    dispatcher.note(func, place)
    dispatcher.account(func, args, kwargs, result, place)
    return result
