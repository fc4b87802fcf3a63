"""`torch.compile` on a virtual GPU: the program runs eagerly, with a warning. Nothing is exported.

The kernels that Inductor writes, and so the memory they take, exist only where they can be compiled
and run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.export
import torch.onnx
from torch import nn

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.machine import Machine
from vramlab.gpu.core.patching.warning_lines import warn
from vramlab.gpu.core.session import Session

_CAVEAT = (
    "torch.compile is not modelled on a virtual GPU: the program runs eagerly, and its memory is "
    "that of the eager program"
)


def install(session: Session) -> None:
    """Replace `torch.compile` and exports."""
    patches = session.patches
    stand_in = functools.partial(run_eagerly, session.machine)
    patches.set(torch, "compile", functools.update_wrapper(stand_in, torch.compile))
    patches.set(torch.export, "export", _from_host(torch.export.export, "torch.export.export"))
    patches.set(torch.onnx, "export", _from_host(torch.onnx.export, "torch.onnx.export"))


def run_eagerly(
    machine: Machine, model: Callable[..., Any] | None = None, **options: Any
) -> Callable[..., Any]:
    """Stand in for `torch.compile`: as a function and as a decorator.

    Returns:
        `model` itself if it is a function; a module in PyTorch's wrapper, with its `_orig_mod`.
    """
    if model is None:
        return functools.partial(run_eagerly, machine, **options)
    warn(_CAVEAT)
    machine.caveats[_CAVEAT] = None
    return _eager_module()(model, None) if isinstance(model, nn.Module) else model


@functools.cache
def _eager_module() -> type[nn.Module]:
    """Make a class of compiled modules that runs what it wraps."""
    from vramlab.gpu.torch_internals import OptimizedModule

    class EagerModule(OptimizedModule):
        """A module that `torch.compile` was called with, not compiled."""

        def _initialize(self) -> None:
            self.forward = self._orig_mod.__call__

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self._orig_mod(*args, **kwargs)

    return EagerModule


def _from_host(export: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Export modules of the host only: tracing pretended tensors ends the process, in C++."""

    @functools.wraps(export)
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, nn.Module) and any(p.is_cuda for p in model.parameters()):
            raise UnsupportedOnVirtualGPU(
                f"{name} is not modelled by the virtual GPU: it would trace tensors that are not "
                "there. Export the module on the host (model.cpu() first), or on a real GPU."
            )
        return export(model, *args, **kwargs)

    return call
