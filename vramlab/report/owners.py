"""Which blocks hold parameters, gradients, optimizer states, activations: seen while they live.

Nothing is asked of the program. PyTorch's own hooks tell of every module that gets a parameter, a
buffer or a submodule, and of every optimizer that steps; where their tensors are is looked up when
modules move, after each backward pass, around each optimizer step and when memory runs out.
Activations are what autograd has saved: `vramlab.measure.graph` tells when a backward pass begins.
Modules and optimizers are remembered weakly, so that a run is the same as without anybody looking.
"""

from __future__ import annotations

import functools
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
from vramlab.measure import Category, graph
from vramlab.measure.tensors import plain_tensors

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
        place: tells the device and the address where a tensor's storage begins; None: nowhere.
    """

    def __init__(
        self,
        claim: Claim,
        place: Callable[[torch.Tensor], tuple[int, int] | None] = place_on_virtual_gpu,
    ) -> None:
        self._claim = claim
        self._place = place
        self._modules: WeakSet[torch.nn.Module] = WeakSet()
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        self._patches = Patches()
        self._hooks: list[Any] = []

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
        graph.add_observer(self)

    def remove(self) -> None:
        """Look no more."""
        graph.remove_observer(self)
        self._patches.undo()
        for hook in self._hooks:
            hook.remove()

    def look_everywhere(self) -> None:
        """Claim all that is known to be something, also what the graphs of callers have saved."""
        self.saved(graph.saved_in(graph.tensors_of_callers()))
        self._look_at_objects()

    def saved(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Claim what autograd keeps for a backward pass: part of `graph.GraphObserver`."""
        with DisableTorchFunction():
            for _, tensor in tensors:
                for plain in plain_tensors(tensor):
                    self._see(plain, Category.ACTIVATIONS)

    def backward_begins(self, *_: Any, **__: Any) -> None:
        """Do nothing for `graph.GraphObserver`."""

    def backward_ended(self) -> None:
        """Look at the gradients: part of `graph.GraphObserver`."""
        self._look_at_objects()

    def _look_at_objects(self) -> None:
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
