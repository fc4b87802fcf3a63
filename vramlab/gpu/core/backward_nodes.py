"""Autograd's nodes whose C++ takes another path on CUDA than below a dispatch mode.

A backward formula asks `isTensorSubclassLike` (ATen/TensorSubclassLikeUtils.h), which is true for
every meta tensor and wherever a dispatch mode is on. Where it is, the formula works out of place,
and reads no values. On CUDA it works in place, or reads a value and takes a shorter way. `ops/
backward_paths.py` says for each such node what happens there.

A path is called with an op that its node asks for, if the op is one that the path begins with, and
if it goes on, with all that follow. It runs the op, runs another one in its place, or leaves it to
the dispatcher (`NotImplemented`):

    @path("Gather", begins=[aten.scatter_add.default])
    def gather(call: NodeCall) -> Any:
        return call.in_place()

The engine is not asked for its node at other ops: the node would get a Python object, which holds
it, so that a graph that goes would let its tensors go in another order. Source: `gatherFunctions`
in torch/csrc/autograd/function.cpp, PyTorch 2.13.

Python code that runs inside of a backward pass (hooks, custom functions, the forward pass that a
checkpoint repeats) may ask for the same ops while a node is running. They are left as they are.

Known limitation: where a program calls the C++ engine without `torch.autograd`, PyTorch's own path
is taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vramlab.gpu.torch_internals import (
    OpOverload,
    current_autograd_node,
    current_graph_task_id,
    engine_run_backward,
    in_place_form,
    saved_by_node,
    sequence_number_of,
)

aten = torch.ops.aten

if TYPE_CHECKING:
    from vramlab.gpu.core.dispatcher import Dispatcher

ENGINE: CodeType = engine_run_backward.__code__
"""The Python function that calls the C++ engine: what is called from it, a node's C++ calls."""


def running_node() -> str:
    """Return the name of the autograd node that is running; '' outside the backward pass."""
    node = current_autograd_node()
    return "" if node is None else type(node).__name__


_OF_ACCUMULATION = {
    aten.detach.default,
    aten.new_empty_strided.default,
    aten.copy_.default,
    aten.add_.Tensor,
}
"""What gradients are stored with at the end of a pass: no path goes on with them."""


@dataclass
class NodeCall:
    """An op that a node's C++ asks for.

    Attributes:
        dispatcher: runs ops.
        node: autograd's node.
        name: what it is called, without "Backward" and its number.
        before: the ops that the path was called with before, in this pass.
        kept: what the path keeps between two ops of one node, by name.
        func, args, kwargs: the op.
    """

    dispatcher: Dispatcher
    node: Any
    name: str
    before: list[OpOverload]
    kept: dict[str, Tensor]
    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self, func: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Run an op on the GPU."""
        return self.dispatcher.run(func, args, kwargs)

    def in_place(self) -> Any:
        """Run the op in its first operand."""
        return self.run(in_place_form(self.func), *self.args, **self.kwargs)

    def without_memory(self) -> Any:
        """Compute what this path on CUDA does not: nothing is allocated for it."""
        return self.func(*self.args, **self.kwargs)

    def number(self, *funcs: OpOverload) -> int:
        """Count how often the path was called with these ops before."""
        return sum(func in funcs for func in self.before)

    def saved(self, name: str) -> Any:
        """Return what the node has saved under this name; None for no tensor."""
        return saved_by_node(self.node, name)


Path = Callable[[NodeCall], Any]


@dataclass(frozen=True)
class _Entry:
    path: Path
    begins: frozenset[OpOverload]
    goes_on: bool


_ENTRIES: dict[str, _Entry] = {}
_BEGINNINGS: set[OpOverload] = set()


def path(
    *nodes: str, begins: Iterable[OpOverload], goes_on: bool = False
) -> Callable[[Path], Path]:
    """Enter a function as what nodes do on CUDA.

    Args:
        nodes: their names without "Backward" and its number, which differs between versions, such
            as "Gather", for GatherBackward0.
        begins: the ops that the function is called with.
        goes_on: whether it is called with whatever the node asks for after the first of them.
    """

    def enter(function: Path) -> Path:
        entry = _Entry(function, frozenset(begins), goes_on)
        _ENTRIES.update(dict.fromkeys(nodes, entry))
        _BEGINNINGS.update(entry.begins)
        return function

    return enter


@dataclass
class _Running(threading.local):
    """The node of a thread whose path goes on: its place in the pass, and what it did.

    Attributes:
        in_path: whether a path is called.
    """

    key: tuple[int, int, str] | None = None
    before: list[OpOverload] = field(default_factory=list)
    kept: dict[str, Tensor] = field(default_factory=dict)
    in_path: bool = False


_running = _Running()


def run_in_node(
    dispatcher: Dispatcher, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an op of the engine by its node's path; return NotImplemented if the node has none."""
    if func not in _BEGINNINGS and (_running.key is None or func in _OF_ACCUMULATION):
        return NotImplemented
    if (node := current_autograd_node()) is None:
        return NotImplemented
    name, _, _ = type(node).__name__.rpartition("Backward")
    key = current_graph_task_id(), sequence_number_of(node), name
    entry = _ENTRIES.get(name)
    if entry is None or (_running.key != key and func not in entry.begins):
        _running.key = None
        return NotImplemented
    if _running.key != key:
        _running.key, _running.before, _running.kept = key if entry.goes_on else None, [], {}
    call = NodeCall(dispatcher, node, name, _running.before, _running.kept, func, args, kwargs)
    _running.in_path = True
    try:
        result = entry.path(call)
    finally:
        _running.in_path = False
    _running.before.append(func)
    return result


def is_in_path() -> bool:
    """Return whether a path runs ops now: it has decided how."""
    return _running.in_path
