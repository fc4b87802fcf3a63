"""`torch.compile` on a virtual GPU: the program runs eagerly, and is told so.

The kernels that Inductor writes, and so the memory they take, exist only where they can be compiled
and run.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from vramlab.virtual.patches import Patches


def install(patches: Patches) -> None:
    """Replace `torch.compile`; `patches.undo()` restores it."""
    patches.set(torch, "compile", run_eagerly)


def run_eagerly(model: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stand in for `torch.compile`: as a function and as a decorator. Returns `model` itself."""
    if model is None:
        return functools.partial(run_eagerly, **options)
    warnings.warn(
        "torch.compile is not modelled on a virtual GPU: the program runs eagerly, and its memory "
        "is that of the eager program",
        stacklevel=2,
    )
    return model
