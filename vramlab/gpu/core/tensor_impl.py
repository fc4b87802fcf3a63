"""Exchange the C++ tensors (`TensorImpl`) that two Python tensors stand for."""

from __future__ import annotations

from typing import Any

import torch


def swap_impls(left: torch.Tensor, right: torch.Tensor) -> None:
    """Exchange what two Python objects point to; attributes and hooks stay with each."""
    torch._C._swap_tensor_impl(left, right)
    for tensor in (left, right):
        # C++ has noted the hooks on its tensor: setting them tells the new one.
        object_with_hooks: Any = tensor
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if (hooks := getattr(tensor, name)) is not None:
                setattr(object_with_hooks, name, hooks)
