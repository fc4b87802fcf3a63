"""What attaching a GPU changes in PyTorch and around it, to compare before and after."""

from __future__ import annotations

import math
import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pynvml
import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import _functions
from torch.utils import _python_dispatch

from vramlab.gpu import VirtualGPU, attached
from vramlab.gpu.core.patching.patches import Patches

NAMESPACES: dict[str, Any] = {
    "math": math,
    "multiprocessing": multiprocessing,
    "pynvml": pynvml,
    "safetensors.torch": safetensors.torch,
    "sys": sys,
    "concurrent.futures.ThreadPoolExecutor": ThreadPoolExecutor,
    "threading.Thread": threading.Thread,
    "torch": torch,
    "torch._C": torch._C,
    "torch.accelerator": torch.accelerator,
    "torch.autograd": torch.autograd,
    "torch.autograd.graph": torch.autograd.graph,
    "torch.backends.cudnn": torch.backends.cudnn,
    "torch.cuda": torch.cuda,
    "torch.cuda.graphs": torch.cuda.graphs,
    "torch.cuda.memory": torch.cuda.memory,
    "torch.cuda.nccl": torch.cuda.nccl,
    "torch.cuda.streams": torch.cuda.streams,
    "torch.distributed": dist,
    "torch.distributed.distributed_c10d": dist.distributed_c10d,
    "torch.multiprocessing": torch.multiprocessing,
    "torch.nn.Parameter": nn.Parameter,
    "torch.nn.parallel._functions": _functions,
    "torch.serialization": torch.serialization,
    "torch.Tensor": torch.Tensor,
    "torch.UntypedStorage": torch.UntypedStorage,
    "torch.utils": torch.utils,
    "torch.version": torch.version,
}

_CACHES = ("__annotations__", "_lazy_call", "__warningregistry__", "last_value", "last_type")
"""What is filled when it is first asked for."""


def state_of_torch() -> dict[str, Any]:
    """Everything that a name stands for, and the settings that C++ keeps."""
    state: dict[str, Any] = {
        f"{name}.{key}": _Same(value)
        for name, owner in NAMESPACES.items()
        for key, value in vars(owner).items()
        if key not in _CACHES
    }
    state |= state_of_thread()
    state["swap"] = torch.__future__.get_swap_module_params_on_conversion()
    for op in ("dropout", "scaled_dot_product_attention", "mm", "add.Tensor", "layer_norm"):
        state[f"kernels of {op}"] = torch._C._dispatch_dump(f"aten::{op}")
    state["attached"] = attached()
    return state


def state_of_thread() -> dict[str, Any]:
    """What the calling thread has, and torch notes of it."""
    return {
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "included": str(torch._C._dispatch_tls_local_include_set()),
        "excluded": str(torch._C._dispatch_tls_local_exclude_set()),
        "in a dispatch mode": (
            _python_dispatch.is_in_torch_dispatch_mode(),
            _python_dispatch.is_in_torch_dispatch_mode(include_infra_modes=False),
            _python_dispatch.is_in_any_mode_without_ignore_compile_internals(),
        ),
    }


class _Same:
    """Equal to what holds the very same object."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    __hash__ = None  # type: ignore[assignment]


def changed_names() -> list[tuple[Any, str]]:
    """The owner and the name of everything that attaching a GPU sets, in order."""
    names: list[tuple[Any, str]] = []

    def noting(change: Any) -> Any:
        def note(patches: Patches, owner: Any, name: str, *value: Any) -> None:
            names.append((owner, name))
            change(patches, owner, name, *value)

        return note

    with pytest.MonkeyPatch.context() as monkeypatch:
        for change in ("set", "remove"):
            monkeypatch.setattr(Patches, change, noting(getattr(Patches, change)))
        with VirtualGPU("T4"):
            pass
    return names


def train_a_little() -> None:
    """A step of a small model on the GPU that is attached, with much of what PyTorch has."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.LayerNorm(8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    with torch.autocast("cuda"):
        model(torch.zeros(2, 8, device="cuda")).sum().backward()
    optimizer.step()
    torch.cuda.memory_summary()
