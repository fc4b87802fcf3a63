"""`torch.compile` on a virtual GPU: the program runs eagerly, and is told so. Nothing is exported.

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
from vramlab.gpu.core.session import Session
from vramlab.gpu.core.warning_lines import warn


def install(session: Session) -> None:
    """Replace `torch.compile` and exports."""
    patches = session.patches
    patches.set(torch, "compile", run_eagerly)
    patches.set(torch.export, "export", _from_host(torch.export.export, "torch.export.export"))
    patches.set(torch.onnx, "export", _from_host(torch.onnx.export, "torch.onnx.export"))


def run_eagerly(model: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stand in for `torch.compile`: as a function and as a decorator. Returns `model` itself."""
    if model is None:
        return functools.partial(run_eagerly, **options)
    warn(
        "torch.compile is not modelled on a virtual GPU: the program runs eagerly, and its memory "
        "is that of the eager program"
    )
    return model


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
