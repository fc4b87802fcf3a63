"""torch, for modules that are read without it: imported when one of its names is first used.

The cases, points and messages of an exercise are read wherever a class is listed or collected. Only
a pool measures, so an exercise says `from vramlab_classroom.judge.lazy import torch`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
else:

    class _Lazy:
        """Has the names that torch has at the moment: attached GPUs replace some of them."""

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("torch"), name)

    torch = _Lazy()

__all__ = ["torch"]
