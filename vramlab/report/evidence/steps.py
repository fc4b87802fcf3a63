"""Count the passes and steps of a training, however it updates its weights, and stop it in time.

- A step of `torch.optim` or of an optimizer that inherits from it is a step.
- Programs without one update their weights by hand (`p.data -= rate * p.grad`), or replace them.
  There, a step is what begins with a backward pass whose gradients are not added to earlier ones.
- A forward pass is a call of a module with parameters from outside of modules. Without gradients,
  it is evaluation or inference.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_hooks

from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.storage_record import known
from vramlab.gpu.core.values.shadows import one_element
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    Replaced,
    call_uncompiled,
    is_compiled,
)
from vramlab.measure import graph
from vramlab.report.running.stopped import Stopped
from vramlab.report.summary import StepCounts


class Steps:
    """Counts while the body of the with statement runs.

    Args:
        most: raise `Stopped` when so many steps are made; None: never.

    Attributes:
        counts: until now.
    """

    def __init__(self, most: int | None = None) -> None:
        self.counts = StepCounts()
        self._most = most
        self._thread = _Thread()
        self._hooks: list[Any] = []
        self._patches = Patches()

    def __enter__(self) -> Steps:
        self._hooks = [optimizer_hooks.register_optimizer_step_post_hook(self._on_step)]
        self._patches.set(*Replaced.MODULE_CALL.at, self._counting(Replaced.MODULE_CALL.value()))
        make = Optimizer.__init__

        def make_and_note(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            self.counts.has_optimizer = True
            make(optimizer, *args, **kwargs)

        self._patches.set(Optimizer, "__init__", make_and_note)
        graph.add_observer(self)
        return self

    def __exit__(self, *exception: object) -> None:
        graph.remove_observer(self)
        self._patches.undo()
        for hook in self._hooks:
            hook.remove()

    def wants_saved(self) -> bool:
        """Say no: part of `graph.GraphObserver`."""
        return False

    def saved(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Do nothing for `graph.GraphObserver`: it is not needed here."""

    def backward_begins(
        self,
        roots: Sequence[Any],
        gradients: Any,
        retain_graph: bool,
        create_graph: bool,
        inputs: Sequence[Any],
        *_: Any,
        **how: Any,
    ) -> None:
        """Count a backward pass: part of `graph.GraphObserver`.

        Args:
            roots, gradients, retain_graph, create_graph, inputs, how: what PyTorch calls its
                engine with.

        Raises:
            Stopped: as many steps as were asked for have been made.
        """
        self.counts.backward_passes += 1
        if self.counts.has_optimizer or create_graph:
            return
        with DisableTorchFunction():
            if how.get("accumulate_grad") and _adds_to_gradients(inputs or roots):
                return
        self._stop_after(self.counts.updates_by_hand)  # what an earlier pass began is done
        self.counts.updates_by_hand += 1

    def backward_ended(self) -> None:
        """Do nothing for `graph.GraphObserver`: a pass is counted when it begins."""

    def _on_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.counts.optimizer_steps += 1
        self.counts.has_states |= any(optimizer.state.values())
        self.counts.decides_by_values |= isinstance(optimizer, torch.optim.LBFGS)
        self._stop_after(self.counts.optimizer_steps)

    def _stop_after(self, made: int) -> None:
        if self._most is not None and made >= self._most:
            raise Stopped("--steps")

    def _counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return what calls a module, and counts calls from outside of modules.

        Hooks of PyTorch would do the same, but with one anywhere, every module is called the slow
        way. What is inside of another module is called as PyTorch's own function does.

        Source: `_wrapped_call_impl` in torch/nn/modules/module.py, PyTorch 2.13.
        """
        thread = self._thread

        @functools.wraps(call)
        def count_and_call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or thread.is_inside:
                if is_compiled(module):
                    return call(module, *args, **kwargs)
                return call_uncompiled(module, *args, **kwargs)
            thread.is_inside = True
            try:
                if next(module.parameters(), None) is not None:
                    self.counts.forward_passes += 1
                    self.counts.evaluations += not torch.is_grad_enabled()
                return call(module, *args, **kwargs)
            finally:
                thread.is_inside = False

        return count_and_call


class _Thread(threading.local):
    """What one thread is doing."""

    is_inside = False  # a module


def _adds_to_gradients(tensors: Sequence[Any]) -> bool:
    """Return whether a backward pass adds to gradients that are neither None nor zero.

    One leaf of the graph answers for all.
    """
    leaf = next((tensor for tensor in tensors if _is_leaf(tensor)), None)
    waiting = [node for each in tensors if (node := graph.node_of(each)) is not None]
    seen = set(waiting)
    while waiting and leaf is None:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        following = {next_node for next_node, _ in node.next_functions if next_node} - seen
        seen |= following
        waiting += following
    gradient = None if leaf is None else leaf.grad
    return gradient is not None and not _is_zero(gradient)


def _is_zero(gradient: torch.Tensor) -> bool:
    """Return whether a gradient on a virtual GPU is known to be zero."""
    values = known(gradient)
    if values is None or values is gradient:
        return False
    element = one_element(values)
    return not (values if element is None else element).any()


def _is_leaf(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_leaf and tensor.requires_grad
