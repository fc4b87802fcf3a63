"""Exchange the C++ tensors (`TensorImpl`) that two Python tensors stand for."""

from __future__ import annotations

import torch

from vramlab.gpu.torch_internals import keep_hooks, swap_tensor_impl


def swap_impls(left: torch.Tensor, right: torch.Tensor) -> None:
    """Exchange what two Python objects point to; attributes and hooks stay with each."""
    swap_tensor_impl(left, right)
    for tensor in (left, right):
        keep_hooks(tensor)
