"""Which blocks hold parameters, buffers, gradients and optimizer states: seen while they live.

Nothing is asked of the program. PyTorch's own hooks tell of every module that gets a parameter, a
buffer or a submodule, and of every optimizer that steps; where their tensors are is looked up when
modules move, after each backward pass, around each optimizer step and when memory runs out. Modules
and optimizers are remembered weakly, so that a run is the same as without anybody looking.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.modules import module as module_hooks
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_hooks

from vramlab.gpu.core.patches import Patches
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import DisableTorchFunction, Replaced
from vramlab.measure import Category

Claim = Callable[[int, int, Category], None]
"""Called with a device, an address and what the tensor whose storage begins there is."""


def place_on_virtual_gpu(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Tell the device and the address of a tensor's block; None: it is on no virtual GPU."""
    record = record_of(tensor)
    if record is None or record.block is None:
        return None
    return record.device_index, record.block.address


class Owners:
    """Looks for the owners of blocks.

    Args:
        claim: is told of every tensor that was seen.
        backward_begins: is called when an outermost backward pass begins.
        backward_ends: is called when it is over, before gradients are looked at.
        place: tells the device and the address where a tensor's storage begins; None: nowhere.
    """

    def __init__(
        self,
        claim: Claim,
        backward_begins: Callable[[], None],
        backward_ends: Callable[[], None] = lambda: None,
        place: Callable[[torch.Tensor], tuple[int, int] | None] = place_on_virtual_gpu,
    ) -> None:
        self._claim = claim
        self._backward_begins = backward_begins
        self._backward_ends = backward_ends
        self._place = place
        self._modules: WeakSet[torch.nn.Module] = WeakSet()
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        self._patches = Patches()
        self._hooks: list[Any] = []
        self._thread = threading.local()

    def install(self) -> None:
        """Begin to look."""
        self._hooks = [
            module_hooks.register_module_parameter_registration_hook(self._on_parameter),
            module_hooks.register_module_buffer_registration_hook(self._on_buffer),
            module_hooks.register_module_module_registration_hook(self._on_module),
            optimizer_hooks.register_optimizer_step_pre_hook(self._around_step),
            optimizer_hooks.register_optimizer_step_post_hook(self._around_step),
        ]
        apply = self._applying(Replaced.MODULE_APPLY.value())
        self._patches.set(*Replaced.MODULE_APPLY.at, apply)
        run = self._running_backward(Replaced.ENGINE_OF_GRAPH.value())
        for engine in (Replaced.ENGINE_OF_AUTOGRAD, Replaced.ENGINE_OF_GRAPH):
            self._patches.set(*engine.at, run)

    def remove(self) -> None:
        """Look no more."""
        self._patches.undo()
        for hook in self._hooks:
            hook.remove()

    def look_everywhere(self) -> None:
        """Claim all that is known to be a parameter, a buffer, a gradient or an optimizer state."""
        with DisableTorchFunction():
            for module in _with_submodules(list(self._modules)):
                self._look_at_module(module)
            for optimizer in list(self._optimizers):
                self._look_at_optimizer(optimizer)

    def _on_parameter(self, module: torch.nn.Module, name: str, parameter: Any) -> None:
        self._modules.add(module)
        with DisableTorchFunction():
            self._see(parameter, Category.PARAMETERS)

    def _on_buffer(self, module: torch.nn.Module, name: str, buffer: Any) -> None:
        self._modules.add(module)
        with DisableTorchFunction():
            self._see(buffer, Category.BUFFERS)

    def _on_module(self, module: torch.nn.Module, name: str, submodule: Any) -> None:
        self._modules.add(module)

    def _applying(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """Look at a module after `model.to()`, `.cuda()`, `.half()` have replaced its tensors."""

        @functools.wraps(apply)
        def look_after(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = apply(module, *args, **kwargs)
            self._modules.add(module)
            with DisableTorchFunction():
                self._look_at_module(module)
            return result

        return look_after

    def _running_backward(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Mark when a backward pass begins, and look at the gradients when it is over."""

        @functools.wraps(run)
        def mark_and_look(*args: Any, **kwargs: Any) -> Any:
            depth = getattr(self._thread, "backward_depth", 0)
            if depth == 0:
                self._backward_begins()
            self._thread.backward_depth = depth + 1
            try:
                return run(*args, **kwargs)
            finally:
                self._thread.backward_depth = depth
                if depth == 0:
                    self._backward_ends()
                    self.look_everywhere()

        return mark_and_look

    def _around_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizers.add(optimizer)
        with DisableTorchFunction():
            self._look_at_optimizer(optimizer)

    def _look_at_module(self, module: torch.nn.Module) -> None:
        for parameter in module.parameters(recurse=False):
            self._look_at_parameter(parameter)
        for buffer in module.buffers(recurse=False):
            self._see(buffer, Category.BUFFERS)

    def _look_at_optimizer(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._look_at_parameter(parameter)
        for state in optimizer.state.values():
            for tensor in tensors_in((state,)):
                self._see(tensor, Category.OPTIMIZER_STATES)

    def _look_at_parameter(self, parameter: torch.Tensor | None) -> None:
        if parameter is not None:
            self._see(parameter, Category.PARAMETERS)
            if parameter.is_leaf:
                self._see(parameter.grad, Category.GRADIENTS)

    def _see(self, tensor: Any, category: Category) -> None:
        if not isinstance(tensor, torch.Tensor):
            return
        if (place := self._place(tensor)) is not None:
            self._claim(*place, category)


def _with_submodules(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    """Every module once, also those below the given ones (copies of modules register nothing)."""
    seen: set[torch.nn.Module] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            yield module
            waiting += [child for child in module._modules.values() if child is not None]
