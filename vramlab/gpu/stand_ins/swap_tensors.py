"""Move a module between the host and a GPU: its parameters stay the same objects.

On CUDA `module.cuda()` sets `parameter.data`. C++ lets a host tensor have no meta tensor for its
data, so PyTorch is told to exchange what the two Python objects point to
(`torch.__future__.set_swap_module_params_on_conversion`). Its own function for that refuses
parameters that C++ still refers to, as weight_norm's are, and takes away what programs have noted
on them: attributes and hooks. Setting `data` does neither, and nor does the exchange here.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.modules import module

from vramlab.gpu.core.patches import Patches

_TYPES = (torch.Tensor, torch.nn.Parameter)

_swap_tensors = torch.utils.swap_tensors  # PyTorch's own, also while it is replaced


def install(patches: Patches) -> None:
    """Replace `torch.utils.swap_tensors` for modules; `patches.undo()` restores it."""
    patches.set(torch.utils, "swap_tensors", swap_tensors)


def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
    """Stand in for `torch.utils.swap_tensors`: modules' tensors exchange bodies, and no more."""
    of_module = sys._getframe(1).f_globals is vars(module)
    if of_module and type(t1) is type(t2) and type(t1) in _TYPES:
        exchange_bodies(t1, t2)
    else:
        _swap_tensors(t1, t2)


def exchange_bodies(left: torch.Tensor, right: torch.Tensor) -> None:
    """Let two Python objects exchange what they point to; attributes and hooks stay with each."""
    torch._C._swap_tensor_impl(left, right)
    for tensor in (left, right):
        # C++ has noted the hooks on the body: setting them tells the new one.
        object_with_hooks: Any = tensor
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if (hooks := getattr(tensor, name)) is not None:
                setattr(object_with_hooks, name, hooks)
