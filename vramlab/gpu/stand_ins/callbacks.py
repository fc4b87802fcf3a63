"""Keep answering for devices in code of the program that PyTorch calls back.

A function mode is off while it handles a call. `loss.backward()` is such a call, and so is every op
that saves a tensor: hooks, custom autograd functions and checkpointed forward passes would run with
the mode off. Here it is switched on again around them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.autograd.graph

from vramlab.gpu.core.patches import Patches
from vramlab.gpu.stand_ins import autograd_queue


def install(mode: Callable[[], AbstractContextManager[Any]], patches: Patches) -> None:
    """Run the backward pass, and hooks of saved tensors, inside `mode()`.

    What a backward pass leaves behind that fails is dropped.
    """

    def inside(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with mode():
                return function(*args, **kwargs)

        return call

    def backward(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                with mode():
                    return function(*args, **kwargs)
            except BaseException:
                autograd_queue.drop()
                raise

        return call

    for module in (torch.autograd, torch.autograd.graph):
        patches.set(module, "_engine_run_backward", backward(module._engine_run_backward))
    hooks = torch.autograd.graph.saved_tensors_hooks
    initialise = hooks.__init__

    def initialise_inside(
        self: Any, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]
    ) -> None:
        initialise(self, inside(pack_hook), inside(unpack_hook))

    patches.set(hooks, "__init__", initialise_inside)
