"""Facts of a machine that is recorded: GPU, driver, libraries, CUDA's context."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch.nn import functional

from vramlab.allocator.settings import ENVIRONMENT_VARIABLES
from vramlab.attachment import attached
from vramlab.gpu import VirtualGPU
from vramlab.gpu.torch_internals import clear_cublas_workspaces, get_nvml_device_index
from vramlab.native.choice import is_inside

SETTINGS = (
    *ENVIRONMENT_VARIABLES,
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUDA_MODULE_LOADING",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Environment variables that change what is allocated."""

_PROPERTIES = (
    "name",
    "major",
    "minor",
    "total_memory",
    "multi_processor_count",
    "max_threads_per_multi_processor",
    "max_threads_per_block",
    "warp_size",
    "regs_per_multiprocessor",
    "shared_memory_per_block",
    "shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor",
    "L2_cache_size",
    "clock_rate",
    "memory_clock_rate",
    "memory_bus_width",
)


def describe_machine() -> dict[str, Any]:
    """Describe GPU 0 and the software that uses it, as data. Makes a CUDA context."""
    properties = torch.cuda.get_device_properties(0)
    gpu = attached()
    is_virtual = isinstance(gpu, VirtualGPU)
    rules = ".".join(map(str, gpu.machine.torch_version)) if isinstance(gpu, VirtualGPU) else None
    return {
        "gpu": properties.name,
        "virtual": is_virtual,
        "engine": "native" if is_inside() else None,  # None: the GPU itself, or `virtual`
        "torch": rules or str(torch.__version__),
        "properties": {
            name: getattr(properties, name) for name in _PROPERTIES if hasattr(properties, name)
        },
        "driver": _driver(),
        "nvml_total_bytes": (_nvml_memory() or {}).get("total_bytes"),
        "cuda": torch.version.cuda,
        "cublas": distribution_version("nvidia-cublas", "nvidia-cublas-cu12"),
        "cudnn": None if is_virtual else torch.backends.cudnn.version(),
        "installed_torch": str(torch.__version__),
        "transformers": distribution_version("transformers"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


def context_moments(until: str | None = None) -> list[dict[str, Any]]:
    """Measure the process's memory beside PyTorch's reserved memory, from before CUDA on.

    Call it before the process does anything else with CUDA, on a GPU that no other process uses.

    Args:
        until: the last moment to measure; None: all of them.

    Returns:
        For each moment its name and, in bytes: `nvml_used` on the whole device (None without
        nvidia-ml-py), `used` as cudaMemGetInfo says (None before CUDA), `reserved`, `allocated`.
    """
    readings = []
    for moment in _moments():
        readings.append(_reading(moment))
        if moment == until:
            break
    return readings


def _moments() -> Iterator[str]:
    """Do one thing after the other that makes CUDA load something; yield what was done."""
    yield "before CUDA"
    torch.cuda.init()
    yield "torch.cuda.init"
    torch.cuda.synchronize()
    yield "synchronize"
    x = torch.empty(1024, 1024, device="cuda")
    yield "first tensor"
    x.fill_(1)
    yield "first kernel"
    x = x * 2 + 1
    yield "element-wise kernels"
    x.sum()
    yield "reduction"
    x @ x
    yield "cuBLAS float32"
    half = x.bfloat16()
    half @ half
    yield "cuBLAS bfloat16"
    functional.linear(half, half, half[0])
    yield "cuBLASLt"
    functional.dropout(x)
    yield "dropout"
    image = torch.ones(1, 3, 64, 64, device="cuda", requires_grad=True)
    weight = torch.ones(8, 3, 3, 3, device="cuda", requires_grad=True)
    out = functional.conv2d(image, weight)
    yield "cuDNN convolution"
    out.sum().backward()
    yield "cuDNN convolution backward"
    heads = half.view(1, 16, 1024, 64)
    functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    yield "attention"
    del x, half, image, weight, out, heads
    clear_cublas_workspaces()
    torch.cuda.empty_cache()
    yield "everything given back"


def _reading(moment: str) -> dict[str, Any]:
    used = reserved = allocated = None
    if torch.cuda.is_initialized() and moment != "torch.cuda.init":  # asking makes the context
        torch.cuda.synchronize()
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        used = total_bytes - free_bytes
        reserved, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    return {
        "moment": moment,
        "nvml_used_bytes": (_nvml_memory() or {}).get("used_bytes"),
        "used_bytes": used,
        "reserved_bytes": reserved,
        "allocated_bytes": allocated,
    }


def _nvml_memory() -> dict[str, int] | None:
    """Return the device's memory as NVML sees it; None without nvidia-ml-py or its library."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(get_nvml_device_index(0))
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    finally:
        pynvml.nvmlShutdown()
    return {"total_bytes": memory.total, "used_bytes": memory.used}


def _driver() -> str | None:
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    return None


def distribution_version(*names: str) -> str | None:
    """Return the version of the first of these that is installed."""
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    return None
