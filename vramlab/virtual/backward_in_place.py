"""Gradients that CUDA writes into zeros in place, and that autograd writes anew for us.

`x[i]` and `x.max(dim)` give their gradient back by scattering it into zeros. Autograd's C++ code
does so in place, except where it sees a tensor subclass or, as here, a dispatch mode: then it makes
a second tensor. Source: `index_backward` and `value_selecting_reduction_backward` in
torch/csrc/autograd/FunctionsManual.cpp, `isTensorSubclassLike` in ATen/TensorSubclassLikeUtils.h,
PyTorch 2.13.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from vramlab.virtual.dispatch import Dispatcher, handles
from vramlab.virtual.indexing import index

aten = torch.ops.aten

_SELECTING = {f"{name}Backward0" for name in ("Max", "Min", "Median", "Mode", "Sort", "Topk")}
"""Autograd's nodes that give gradients to the elements that an op has selected."""


@handles(aten.index_put.default)
def index_put(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Out of place, unless it is the gradient of `x[i]`."""
    if _node() == "IndexBackward0":
        return dispatcher.run(aten._index_put_impl_.default, (*args, True), kwargs)
    return index(dispatcher, func, args, kwargs)


@handles(aten.scatter.src)
def scatter(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Out of place, unless it is the gradient of a selection."""
    if _node() in _SELECTING:
        return dispatcher.run(aten.scatter_.src, args, kwargs)
    return dispatcher.run_plain(func, args, kwargs)


def _node() -> str:
    """Name of the autograd node that is running; empty outside the backward pass."""
    node = torch._C._current_autograd_node()
    return "" if node is None else type(node).__name__
