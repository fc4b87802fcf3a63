"""The virtual GPU: PyTorch's CUDA programs on a GPU that need not be there."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramlab.gpu.attached_gpus import attached
    from vramlab.gpu.virtual_gpu import VirtualGPU

__all__ = ["VirtualGPU", "attached"]

_HOME = {"VirtualGPU": "vramlab.gpu.virtual_gpu", "attached": "vramlab.gpu.attached_gpus"}


def __getattr__(name: str) -> Any:
    # Late: `vramlab.kernels`, which the virtual GPU uses, imports `torch_internals` from here.
    if name not in _HOME:
        raise AttributeError(f"module 'vramlab.gpu' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value
