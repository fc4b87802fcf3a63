"""Keep answering for devices in code of the program that PyTorch calls back.

A function mode is off while it handles a call. `loss.backward()` is such a call, and so is every op
that saves a tensor: hooks, custom autograd functions and checkpointed forward passes would run with
the mode off. Here it is switched on again around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.graph

from vramlab.gpu.core.modes import device_mode
from vramlab.gpu.core.session import Session
from vramlab.gpu.stand_ins import autograd_queue
from vramlab.gpu.torch_internals import Replaced


def install(session: Session) -> None:
    """Run the backward pass, and hooks of saved tensors, inside the function mode.

    What a backward pass leaves behind that fails is dropped.
    """

    def inside(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with device_mode():
                return function(*args, **kwargs)

        return call

    def backward(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                with device_mode():
                    return function(*args, **kwargs)
            except BaseException:
                autograd_queue.drain()
                raise

        return call

    for engine in (Replaced.ENGINE_OF_AUTOGRAD, Replaced.ENGINE_OF_GRAPH):
        session.patches.set(*engine.at, backward(engine.value()))
    hooks = torch.autograd.graph.saved_tensors_hooks
    initialise = hooks.__init__

    def initialise_inside(
        self: Any, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]
    ) -> None:
        initialise(self, inside(pack_hook), inside(unpack_hook))

    session.patches.set(hooks, "__init__", initialise_inside)
