"""Gradients that CUDA writes into zeros in place, and that autograd writes anew for us.

`x[i]` and `x.max(dim)` give their gradient back by scattering it into zeros. Autograd's C++ code
does so in place, except where it sees a tensor subclass or, as here, a dispatch mode: then it makes
a second tensor. Source: `index_backward` and `value_selecting_reduction_backward` in
torch/csrc/autograd/FunctionsManual.cpp, `isTensorSubclassLike` in ATen/TensorSubclassLikeUtils.h,
PyTorch 2.13.

The same holds where a tensor was used twice: the engine adds up its gradients, into the first of
them if nobody else holds that one. It has done so since PyTorch 2.0, before that never. Source:
`accumulate` and `can_accumulate_inplace` in torch/csrc/autograd/input_buffer.cpp (pull request
88339).
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload
from torch._prims_common import is_non_overlapping_and_dense_or_false

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


@handles(aten.add.Tensor)
def add(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Out of place, unless it is the engine that adds up gradients of one tensor."""
    if dispatcher.machine.torch_version >= (2, 0) and _accumulates(args, kwargs):
        return dispatcher.run(aten.add_.Tensor, args, kwargs)
    return dispatcher.run_plain(func, args, kwargs)


def _accumulates(args: Any, kwargs: Any) -> bool:
    """Whether the engine asks for a sum, and may have it in the first operand.

    The engine calls from C++: no Python code of a backward pass stands between. What holds the
    operands is compared: the first must have no more holders than the second, which is fresh.
    """
    if kwargs or torch.is_grad_enabled() or not _node():
        return False
    first, second = args[:2]
    return (
        isinstance(second, torch.Tensor)
        and first.shape == second.shape
        and first.dtype == second.dtype
        and is_non_overlapping_and_dense_or_false(first)
        and _caller() == "_engine_run_backward"
        and torch._C._storage_Use_Count(first.untyped_storage()._cdata) == _HERE_AND_IN_THE_ENGINE
        and sys.getrefcount(first) <= sys.getrefcount(second)
    )


_HERE_AND_IN_THE_ENGINE = 2
"""Uses of a storage that only the engine holds, once it has been asked for here."""


def _caller() -> str:
    """Name of the innermost function outside of this package that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("vramlab.virtual."):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_name


def _node() -> str:
    """Name of the autograd node that is running; empty outside the backward pass."""
    node = torch._C._current_autograd_node()
    return "" if node is None else type(node).__name__
