"""`torch.cuda.FloatTensor` and its like: the names by which older programs choose a GPU.

A CPU build of PyTorch has these names, but refuses to use them.
"""

from __future__ import annotations

from typing import Any

import torch

from vramlab.gpu.core.session import Session
from vramlab.gpu.core.tensor_types import CUDA_TYPES, cuda_type


def install(session: Session) -> None:
    """Set the types on torch.cuda."""
    patches = session.patches
    for tensor_type in CUDA_TYPES.values():
        patches.set(torch.cuda, tensor_type.__name__, tensor_type)
    set_default_tensor_type = torch.set_default_tensor_type

    def set_default(named: Any) -> None:
        tensor_type = cuda_type(named)
        if tensor_type is None:
            set_default_tensor_type(named)
        else:
            torch.set_default_dtype(tensor_type.dtype)
            torch.set_default_device("cuda")

    patches.set(torch, "set_default_tensor_type", set_default)
