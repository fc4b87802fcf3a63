"""Whether attention and encoder layers of `torch.nn` take their fast path, as they do on CUDA.

They ask first whether a function mode or a tensor's class sees torch functions. The function mode
of either engine does, so they would always take the slow path.

Source: torch/nn/modules/activation.py and transformer.py, PyTorch 2.13.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.modules import activation, transformer
from torch.overrides import TorchFunctionMode

from vramlab.gpu.core.function_mode import DeviceMode
from vramlab.gpu.core.patching.patches import Patches
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
        hide_from_layers(session.patches, DeviceMode)


def hide_from_layers(patches: Patches, kind: type[TorchFunctionMode]) -> None:
    """Tell those layers what they would be told without a function mode of this kind."""

    def has_torch_function(relevant_args: Any) -> bool:
        modes = get_function_mode_stack()
        namespace = sys._getframe(1).f_globals
        is_layer = any(namespace is each for each in _ASKING)
        if not is_layer or len(modes) != 1 or not isinstance(modes[0], kind):
            return bool(_has_torch_function(relevant_args))
        mode = pop_function_mode()
        try:
            return bool(_has_torch_function(relevant_args))
        finally:
            push_function_mode(mode)

    patches.set(torch.overrides, "has_torch_function", has_torch_function)
