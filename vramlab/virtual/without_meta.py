"""Ops for which PyTorch has no meta kernel, and whose result is like one of their operands.

Known limitation: what their CUDA kernels take besides is not counted; the report names them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from vramlab.virtual.dispatch import Dispatcher, handles

aten = torch.ops.aten

_LIKE: dict[OpOverload, int] = {
    aten._dirichlet_grad.default: 0,
    aten._masked_softmax.default: 0,
    aten._sample_dirichlet.default: 0,
    aten._standard_gamma_grad.default: 0,
    aten.binomial.default: 0,
    aten.fractional_max_pool3d_backward.default: 1,
    aten.multi_margin_loss_backward.default: 1,
    aten.multilabel_margin_loss_backward.default: 1,
}
"""The op, and which of its operands has the shape and dtype of the result."""


@handles(*_LIKE)
def like_operand(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Tensor:
    """Run one of these ops: without values its result is an empty tensor."""
    place = dispatcher.place_of(func, args, kwargs)
    operand = args[_LIKE[func]]
    if not operand.is_meta or place is None or place < 0:
        plain: Tensor = dispatcher.run_plain(func, args, kwargs)
        return plain
    result = torch.empty(operand.size(), dtype=operand.dtype, device="meta")
    dispatcher.note(func, place)
    dispatcher.account(func, args, kwargs, result, place)
    return result
