"""Whether attention and encoder layers of `torch.nn` take their fast path, as they do on CUDA.

They ask first whether a function mode or a tensor's class sees torch functions. The function mode
of a virtual GPU does, so they would always take the slow path.

Source: torch/nn/modules/activation.py and transformer.py, PyTorch 2.13.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.modules import activation, transformer

from vramlab.gpu.core.function_mode import DeviceMode
from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import (
    get_function_mode_stack,
    pop_function_mode,
    push_function_mode,
)

_has_torch_function = torch.overrides.has_torch_function  # PyTorch's own, also while replaced

_ASKING = (vars(activation), vars(transformer))


def install(session: Session) -> None:
    """Replace `torch.overrides.has_torch_function`, unless values are computed, on the CPU.

    The CPU would run the fast path in kernels of its own.
    """
    if not session.has_values:
        session.patches.set(torch.overrides, "has_torch_function", has_torch_function)


def has_torch_function(relevant_args: Any) -> bool:
    """Tell those layers what they would be told without the function mode of the virtual GPU."""
    modes = get_function_mode_stack()
    namespace = sys._getframe(1).f_globals
    is_layer = any(namespace is each for each in _ASKING)
    if not is_layer or len(modes) != 1 or not isinstance(modes[0], DeviceMode):
        return bool(_has_torch_function(relevant_args))
    mode = pop_function_mode()
    try:
        return bool(_has_torch_function(relevant_args))
    finally:
        push_function_mode(mode)
