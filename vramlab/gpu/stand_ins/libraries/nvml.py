"""Lets nvidia-ml-py (the module `pynvml`) see the virtual GPUs.

nvidia-ml-py is Python over a shared library that only NVIDIA's driver brings. Its functions find
the library through one variable of the module, so the stand-in goes there and all of its own Python
code runs unmodified, names that a program imported before (`from pynvml import *`) included. What
torch builds on it works, too: `torch.cuda.device_memory_used`, `list_gpu_processes`, ...
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session
from vramlab.gpu.stand_ins.libraries.nvml_library import NvmlDevice, NvmlLibrary


def install(session: Session) -> None:
    """Answer for the driver's library with the session's GPUs."""
    answer_for(session.machine.devices, session.patches)


def answer_for(devices: Sequence[NvmlDevice], patches: Patches) -> None:
    """Put a stand-in for NVML's library into nvidia-ml-py; without it, nothing happens.

    A program that initialised NVML before does not need to do it again, but the handles it got were
    for other GPUs, and are refused as an invalid argument.

    Known limitations: code that loads `libnvidia-ml.so.1` by itself is not reached. torch does so
    to count GPUs, and to read their identities when CUDA_VISIBLE_DEVICES names them by identity.

    Args:
        devices: the GPUs, in the order of their indices.
        patches: what is set with them; undoing it puts back exactly what was there.
    """
    try:
        pynvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        return
    library = NvmlLibrary(tuple(devices), initializations=pynvml._nvmlLib_refcount)
    patches.set(pynvml, "nvmlLib", library)
    patches.set(pynvml, "_nvmlGetFunctionPointer_cache", {})
    patches.set(pynvml, "_nvmlLib_refcount", pynvml._nvmlLib_refcount)
