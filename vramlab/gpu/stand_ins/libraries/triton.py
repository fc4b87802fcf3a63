"""Triton on a virtual GPU: launches do nothing, and are counted.

A Triton kernel writes into tensors that the program has allocated, and has no way to allocate more.
So nothing of its memory is missing. What Triton itself allocates to measure configurations is
allocated here as well.

Source: `JITFunction.run` in triton/runtime/jit.py, `Autotuner` in triton/runtime/autotuner.py and
`CudaDriver` in triton/backends/nvidia/driver.py, Triton 3.0 to 3.9.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.patching.late_imports import changed_when_imported
from vramlab.gpu.core.session import Session

L2_BUFFER_BYTES = 256 * 2**20
"""What is written before each measured launch, so that the L2 cache holds nothing of the last.
Source: `get_empty_cache_for_benchmark` in triton/backends/nvidia/driver.py, Triton 3.9."""

_NATIVE = "run it on PyTorch's CUDA build: see `vramlab native`"


def install(session: Session) -> AbstractContextManager[None]:
    """Replace what launches kernels and describes the GPU, now or when Triton is imported."""
    patches = session.patches

    def in_jit(module: ModuleType) -> None:
        patches.set(module.JITFunction, "run", _launch(session))

    def in_driver(module: ModuleType) -> None:
        config = module.driver
        name = "_active" if "_active" in vars(config) else "active"  # until Triton 3.3
        patches.set(config, name, driver(session))

    def in_testing(module: ModuleType) -> None:
        for name in ("do_bench", "do_bench_cudagraph"):
            patches.set(module, name, measure_nothing)

    return changed_when_imported(
        {
            "triton.runtime.jit": in_jit,
            "triton.runtime.driver": in_driver,
            "triton.testing": in_testing,
        }
    )


def _launch(session: Session) -> Callable[..., None]:
    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        """Stand in for `JITFunction.run`.

        Raises:
            UnsupportedOnVirtualGPU: tensors have values, which the kernel would have to compute; or
                the compiled kernel is asked for.
        """
        name = getattr(kernel, "__name__", str(kernel))
        if warmup:
            raise UnsupportedOnVirtualGPU(
                f"Triton's kernel {name} would be compiled to ask about it; {_NATIVE}"
            )
        if session.has_values:
            raise UnsupportedOnVirtualGPU(
                f"Triton's kernel {name} computes values, which a virtual GPU with values=True "
                f"cannot; {_NATIVE}"
            )
        if callable(grid):
            grid({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
        session.machine.skipped_kernels[name] += 1

    return run


def driver(session: Session) -> SimpleNamespace:
    """Describe the current GPU as Triton's driver does."""

    def target() -> Any:
        compiler = importlib.import_module("triton.backends.compiler")
        major, minor = torch.cuda.get_device_capability()
        return compiler.GPUTarget("cuda", 10 * major + minor, 32)

    return SimpleNamespace(
        utils=SimpleNamespace(get_device_properties=functools.partial(_properties, session)),
        get_current_device=torch.cuda.current_device,
        set_current_device=torch.cuda.set_device,
        get_current_stream=lambda index: torch.cuda.current_stream(index).cuda_stream,
        get_device_capability=torch.cuda.get_device_capability,
        get_current_target=target,
        get_active_torch_device=lambda: torch.device("cuda", torch.cuda.current_device()),
        get_device_interface=lambda: torch.cuda,
        get_benchmarker=lambda: measure_nothing,
        get_empty_cache_for_benchmark=_l2_buffer,
        clear_cache=lambda buffer: buffer.zero_(),
    )


def measure_nothing(
    fn: Callable[[], Any],
    *_: Any,
    quantiles: Any = None,
    return_mode: str = "mean",
    **__: Any,
) -> Any:
    """Stand in for `triton.testing.do_bench`: call once, with its buffer, and answer nan."""
    buffer = _l2_buffer()
    fn()
    del buffer
    if quantiles is not None:
        return [math.nan] * len(quantiles)
    return [math.nan] if return_mode == "all" else math.nan


def _l2_buffer() -> torch.Tensor:
    return torch.empty(L2_BUFFER_BYTES // 4, dtype=torch.int, device="cuda")


def _properties(session: Session, index: int) -> dict[str, int]:
    """Describe a GPU as `CudaUtils.get_device_properties` does.

    Source: getDeviceProperties in third_party/nvidia/backend/driver.c, Triton 3.3.
    """
    model = session.machine.device(index).model
    return {
        "max_shared_mem": model.shared_memory_per_block_optin_bytes,
        "max_num_regs": model.registers_per_multiprocessor,
        "multiprocessor_count": model.multiprocessors,
        "warpSize": model.warp_size,
        "sm_clock_rate": model.clock_rate_khz,
        "mem_clock_rate": model.memory_clock_rate_khz,
        "mem_bus_width": model.memory_bus_width_bits,
    }
