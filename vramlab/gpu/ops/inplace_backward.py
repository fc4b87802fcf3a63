"""Gradients of a tensor that was used twice, which CUDA adds up in place.

The engine adds a gradient into the first of them if nothing else holds that one, unless it
sees a tensor subclass or, as here, a dispatch mode: then it makes another tensor. It has done so
since PyTorch 2.0, before that never. Source: `accumulate` and `can_accumulate_inplace` in
torch/csrc/autograd/input_buffer.cpp (pull request 88339).

The engine calls from C++. Python code that runs inside of a backward pass (hooks, custom functions,
the forward pass that a checkpoint repeats) may add while the same node is running; that is left as
it is.

Known limitations: a sum that a node's own C++ code makes looks like one of the engine's, unless
`backward_paths.py` lists the node; and where a program calls the C++ engine without
`torch.autograd`, all is out of place.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from vramlab.gpu import torch_internals
from vramlab.gpu.core.backward_nodes import is_in_path, running_node
from vramlab.gpu.core.dispatch_mode import engine_asks
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.op_table import handler
from vramlab.gpu.ops import sparse
from vramlab.gpu.torch_internals import (
    OpOverload,
    storage_id,
    storage_use_count,
    use_count,
)

aten = torch.ops.aten


@handler("aten.add.Tensor")
def add(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Add out of place, unless it is the engine that adds up gradients of one tensor."""
    if isinstance(args[1], torch.Tensor) and args[1].layout is torch.sparse_coo:
        return sparse.add(dispatcher, func, args, kwargs)
    if dispatcher.machine.torch_version >= (2, 0) and _accumulates(args, kwargs):
        return dispatcher.run(aten.add_.Tensor, args, kwargs)
    return dispatcher.run_plain(func, args, kwargs)


def _accumulates(args: Any, kwargs: Any) -> bool:
    """Return whether the engine asks for a sum, and may have it in the first operand."""
    if kwargs or is_in_path() or torch.is_grad_enabled() or not running_node():
        return False
    first, second = args[:2]
    return (
        isinstance(second, torch.Tensor)
        and first.shape == second.shape
        and first.dtype == second.dtype
        and (first.is_contiguous() or torch_internals.is_non_overlapping_and_dense_or_false(first))
        and engine_asks()
        and _only_engine.holds(Holders.of(first))
    )


class Holders(NamedTuple):
    """How many hold a tensor, as the handler of an op sees it.

    Python counts what refers to the Python object, itself included; C++ who holds the tensor and
    its storage, the Python object included.
    """

    references: int
    uses: int
    uses_of_storage: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Holders:
        """Count who holds a tensor."""
        return cls(
            sys.getrefcount(tensor),
            use_count(tensor),
            storage_use_count(storage_id(tensor.untyped_storage())),
        )


class _OnlyEngine:
    """Reference counts of a gradient that only the autograd engine references.

    They depend on how CPython passes arguments, and on the frames between the engine and here. So
    they are taken from the engine's first sum in a process, where nothing else references the
    gradient (`assumptions.check`).
    """

    numbers: Holders | None = None

    def holds(self, found: Holders) -> bool:
        if self.numbers is None:
            self.numbers = found
        return found == self.numbers


_only_engine = _OnlyEngine()
