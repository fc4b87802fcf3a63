"""Which blocks hold parameters, gradients, optimizer states, activations: seen while they live.

The program need not change. PyTorch's own hooks report every module that gets a parameter, a
buffer or a submodule, and of every optimizer that steps; where their tensors are is looked up when
modules move, after each backward pass, around each optimizer step and when memory runs out.
Activations are what autograd has saved: `vramlab.measure.graph` tells when a backward pass begins.
Modules and optimizers are remembered weakly, so that a run is the same as without anybody looking.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.modules import module as module_hooks
from torch.optim import Optimizer
from torch.optim import optimizer as optimizer_hooks
from torch.utils.weak import WeakTensorKeyDictionary

from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    Replaced,
    own_buffers,
    own_parameters,
)
from vramlab.measure import Category, graph
from vramlab.measure.tensors import plain_tensors

Seen = tuple[int, int, Category]
"""A device, an address, and what the tensor whose storage begins there is."""

Claim = Callable[[Sequence[Seen]], None]
"""Called with all tensors that were seen at a moment."""


def place_on_virtual_gpu(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Tell the device and the address of a tensor's block; None: it is on no virtual GPU."""
    record = record_of(tensor)
    if record is None or record.block is None:
        return None
    return record.device_index, record.block.address


class Owners:
    """Looks for the owners of blocks.

    Args:
        claim: receives the tensors that were seen.
        place: tells the device and the address where a tensor's storage begins; None: nowhere.
        looks: returns whether it is worth a look in this pass.
    """

    def __init__(
        self,
        claim: Claim,
        place: Callable[[torch.Tensor], tuple[int, int] | None] = place_on_virtual_gpu,
        looks: Callable[[], bool] = lambda: True,
    ) -> None:
        self._claim = claim
        self.wants_saved = looks
        self._place = place
        self._modules: WeakSet[torch.nn.Module] = WeakSet()
        self._optimizers: WeakSet[Optimizer] = WeakSet()
        self._is_copy: MutableMapping[torch.Tensor, bool] = WeakTensorKeyDictionary()
        self._patches = Patches()
        self._hooks: list[Any] = []

    def install(self) -> None:
        """Begin to look."""
        self._hooks = [
            module_hooks.register_module_parameter_registration_hook(self._on_parameter),
            module_hooks.register_module_buffer_registration_hook(self._on_buffer),
            module_hooks.register_module_module_registration_hook(self._on_module),
            optimizer_hooks.register_optimizer_step_pre_hook(self._before_step),
            optimizer_hooks.register_optimizer_step_post_hook(self._after_step),
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
        self.saved(graph.saved_in(graph.roots_of_callers()))
        with self._looking() as seen:
            self._look_at_parameters(seen)
            for optimizer in list(self._optimizers):
                self._look_at_states(optimizer, seen)

    def saved(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Claim what autograd keeps for a backward pass: part of `graph.GraphObserver`."""
        with self._looking() as seen:
            for _, tensor in tensors:
                if type(tensor) is torch.Tensor and tensor.layout is torch.strided:
                    self._see(tensor, Category.ACTIVATIONS, seen)
                else:
                    for plain in plain_tensors(tensor):
                        self._see(plain, Category.ACTIVATIONS, seen)

    def backward_begins(self, *_: Any, **__: Any) -> None:
        """Do nothing for `graph.GraphObserver`."""

    def backward_ended(self) -> None:
        """Look at the gradients: part of `graph.GraphObserver`."""
        if self.wants_saved():
            with self._looking() as seen:
                self._look_at_parameters(seen)

    @contextmanager
    def _looking(self) -> Iterator[list[Seen]]:
        """Claim what is seen in the body, all at once."""
        seen: list[Seen] = []
        with DisableTorchFunction():
            yield seen
        if seen:
            self._claim(seen)

    def _on_parameter(self, module: torch.nn.Module, name: str, parameter: Any) -> None:
        self._modules.add(module)
        with self._looking() as seen:
            self._see(parameter, Category.PARAMETERS, seen)

    def _on_buffer(self, module: torch.nn.Module, name: str, buffer: Any) -> None:
        self._modules.add(module)
        with self._looking() as seen:
            self._see(buffer, Category.BUFFERS, seen)

    def _on_module(self, module: torch.nn.Module, name: str, submodule: Any) -> None:
        self._modules.add(module)

    def _applying(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """Look at a module after `model.to()`, `.cuda()`, `.half()` have replaced its tensors."""

        @functools.wraps(apply)
        def look_after(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = apply(module, *args, **kwargs)
            self._modules.add(module)
            with self._looking() as seen:
                self._look_at_module(module, set(), seen)
            return result

        return look_after

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Look at gradients again: some programs replace them between backward pass and step."""
        self._optimizers.add(optimizer)
        if self.wants_saved():
            with self._looking() as seen:
                self._look_at_parameters_of(optimizer, set(), seen)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizers.add(optimizer)
        if self.wants_saved():
            with self._looking() as seen:
                self._look_at_states(optimizer, seen)

    def _look_at_parameters(self, seen: list[Seen]) -> None:
        """Look at the parameters of all modules and optimizers, each once, and at buffers."""
        met: set[int] = set()
        for module in _with_submodules(list(self._modules)):
            self._look_at_module(module, met, seen)
        for optimizer in list(self._optimizers):
            self._look_at_parameters_of(optimizer, met, seen)

    def _look_at_module(self, module: torch.nn.Module, met: set[int], seen: list[Seen]) -> None:
        for parameter in own_parameters(module):
            self._look_at_parameter(parameter, met, seen)
        for buffer in own_buffers(module):
            self._see(buffer, Category.BUFFERS, seen)

    def _look_at_parameters_of(self, optimizer: Optimizer, met: set[int], seen: list[Seen]) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in met and self._is_copy_of_optimizer(parameter):
                    met.add(id(parameter))
                    self._see(parameter, Category.OPTIMIZER_STATES, seen)
                    self._see(parameter.grad, Category.GRADIENTS, seen)
                else:
                    self._look_at_parameter(parameter, met, seen)

    def _look_at_states(self, optimizer: Optimizer, seen: list[Seen]) -> None:
        own = {name: value for name, value in vars(optimizer).items() if name != "param_groups"}
        for tensor in tensors_in((own,)):
            self._see(tensor, Category.OPTIMIZER_STATES, seen)

    def _is_copy_of_optimizer(self, parameter: torch.Tensor) -> bool:
        """Check whether an optimizer updates a copy of a module's parameter: master weights.

        It belongs to no module, and has the size of a module's parameter, or of all of them.
        """
        found = self._is_copy.get(parameter)
        if found is None:
            of_modules = [
                each
                for module in _with_submodules(list(self._modules))
                for each in module.parameters(recurse=False)
            ]
            sizes = [each.numel() for each in of_modules if self._place(each) is not None]
            found = all(each is not parameter for each in of_modules) and (
                parameter.numel() in sizes or parameter.numel() == sum(sizes)
            )
            self._is_copy[parameter] = found
        return found

    def _look_at_parameter(
        self, parameter: torch.Tensor | None, met: set[int], seen: list[Seen]
    ) -> None:
        if parameter is None or id(parameter) in met:
            return
        met.add(id(parameter))
        self._see(parameter, Category.PARAMETERS, seen)
        if parameter.is_leaf and (gradient := parameter.grad) is not None:
            self._see(gradient, Category.GRADIENTS, seen)

    def _see(self, tensor: Any, category: Category, seen: list[Seen]) -> None:
        if isinstance(tensor, torch.Tensor) and (place := self._place(tensor)) is not None:
            seen.append((*place, category))


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
