"""Move a module between the host and a GPU: its parameters stay the same objects.

On CUDA `module.cuda()` sets `parameter.data`. C++ lets a host tensor have no meta tensor for its
data, so PyTorch is set to exchange what the two Python objects point to
(`torch.__future__.set_swap_module_params_on_conversion`). Its own function for that refuses
parameters that C++ still refers to, as weight_norm's are, and takes away what programs have noted
on them: attributes and hooks. Setting `data` does neither, and nor does the exchange here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules import module

from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import DisableTorchFunction, keep_hooks, swap_tensor_impl

_TYPES = (torch.Tensor, torch.nn.Parameter)

_swap_tensors = torch.utils.swap_tensors  # PyTorch's own, also while it is replaced


@contextmanager
def install(session: Session) -> Iterator[None]:
    """Let modules exchange their tensors when they move, and exchange them without a fuss."""
    session.patches.set(torch.utils, "swap_tensors", swap_tensors)
    before = torch.__future__.get_swap_module_params_on_conversion()
    set_whether = torch.__future__.set_swap_module_params_on_conversion
    set_whether(True)
    try:
        yield
    finally:
        set_whether(before)


def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
    """Stand in for `torch.utils.swap_tensors`: of modules' tensors only the impls are swapped.

    Where C++ lets it, `data` is set as on CUDA: what it was before goes at once, and not only when
    the module's next tensor is there.
    """
    of_module = sys._getframe(1).f_globals is vars(module)
    if not of_module or type(t1) is not type(t2) or type(t1) not in _TYPES:
        _swap_tensors(t1, t2)
        return
    with DisableTorchFunction():
        if t1.device.type == t2.device.type:
            t1.data = t2
        else:
            swap_impls(t1, t2)


def swap_impls(left: torch.Tensor, right: torch.Tensor) -> None:
    """Exchange what two Python objects point to; attributes and hooks stay with each."""
    swap_tensor_impl(left, right)
    for tensor in (left, right):
        keep_hooks(tensor)
