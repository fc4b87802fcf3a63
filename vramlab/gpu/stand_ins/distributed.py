"""Let torch.distributed find NCCL on a virtual GPU, so that programs for many GPUs run unmodified.

`init_process_group("nccl")`, DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2, DTensor and
pipelining are PyTorch's own. What stands in is the library that moves the bytes:

- Where values are computed, it is gloo: processes that torchrun has started exchange real numbers.
- Without values it is PyTorch's fake process group: a collective has the sizes that it would have
  and moves nothing, so that a process can be one rank of any world, started alone or with others.

Known limitation: the buffers of NCCL's communicators, outside the caching allocator, are not
counted.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch._C._distributed_c10d import FakeProcessGroup
from torch._subclasses import fake_tensor
from torch.distributed import distributed_c10d

from vramlab.gpu.core.machine import ThreadState
from vramlab.gpu.core.patches import Patches
from vramlab.gpu.stand_ins import object_collectives

NCCL_VERSION = 2 << 32 | 28 << 16 | 9
"""Which errors of torch.distributed tell. That of PyTorch 2.11's wheels for CUDA 13.0: 2.28.9."""

_WRAPPERS = ("torch.distributed.", "torch.nested.")
"""Where PyTorch's wrappers of tensors are defined: DTensor, and sequences of different lengths."""

NCCL_TIMEOUT = timedelta(minutes=10)
"""As in a PyTorch with NCCL. Source: `kBackendDefaultTimeout` of ProcessGroupNCCL.hpp, 2.13."""


def install(patches: Patches, thread: ThreadState, backing_device: torch.device) -> None:
    """Set the stand-ins on torch.distributed; `patches.undo()` removes them."""
    has_values = backing_device.type == "cpu"
    # Each init_process_group wraps it, to begin every line with the rank, and nobody unwraps it.
    patches.set(sys, "excepthook", sys.excepthook)
    patches.set(dist, "is_nccl_available", lambda: True)
    patches.set(distributed_c10d, "default_pg_nccl_timeout", NCCL_TIMEOUT)
    patches.set(torch._C, "_nccl_version", lambda: NCCL_VERSION)
    patches.set(torch._C, "_nccl_version_suffix", lambda: b"")
    patches.set(
        distributed_c10d,
        "_new_process_group_helper",
        _with_nccl(distributed_c10d._new_process_group_helper, _Gloo if has_values else _Fake),
    )
    patches.set(dist.ProcessGroup, "_register_backend", _registered_for(backing_device))
    patches.set(dist, "Reducer", _reducer_on_gpu(thread))
    patches.set(torch.Tensor, "_make_wrapper_subclass", staticmethod(_wrapping_on(backing_device)))
    # DTensor asks fake tensors for shapes. In a PyTorch with CUDA they would start the real one.
    patches.set(fake_tensor, "init_gpu_context", lambda device: None)
    if has_values:
        verify = _distributed_c10d._verify_params_across_processes
        patches.set(dist, "_verify_params_across_processes", _on_gpu_of_params(verify, thread))
    else:
        object_collectives.install(patches)
        patches.set(dist, "Logger", _SilentLogger)
        patches.set(FakeProcessGroup, "_set_sequence_number_for_group", lambda group: None)
        patches.set(dist, "_verify_params_across_processes", trust_params_across_processes)


def _wrapping_on(backing_device: torch.device) -> Callable[..., torch.Tensor]:
    """Make PyTorch's own wrappers of tensors where C++ has those tensors: on the backing device.

    In the backward pass, where Python code of a wrapper asks a tensor for its device, it is told
    the GPU, since functions are intercepted there. In the forward pass it is told the backing
    device.
    """
    make: Callable[..., torch.Tensor] = torch.Tensor._make_wrapper_subclass

    def make_wrapper(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
        def carried(arg: Any) -> Any:
            return backing_device if isinstance(arg, torch.device) and arg.type == "cuda" else arg

        if cls.__module__.startswith(_WRAPPERS):
            args = tuple(carried(arg) for arg in args)
            kwargs = {name: carried(arg) for name, arg in kwargs.items()}
        return make(cls, *args, **kwargs)

    return make_wrapper


# NCCL


class _Options:
    """What programs may set of `ProcessGroupNCCL.Options`. Decides nothing about memory."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream


class _StandIn(type):
    """A class whose call makes a process group of another kind, which then counts as its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _distributed_c10d.Backend)


class _Gloo(metaclass=_StandIn):
    """NCCL where values are computed."""

    Options = _Options

    def __new__(cls, store: Any, rank: int, size: int, options: Any) -> Any:
        return dist.ProcessGroupGloo(store, rank, size, timeout=options._timeout)


class _Fake(metaclass=_StandIn):
    """NCCL where there are no values to move."""

    Options = _Options

    def __new__(cls, store: Any, rank: int, size: int, options: Any) -> Any:
        return FakeProcessGroup._create_internal(rank, size)


def _with_nccl(make_group: Callable[..., Any], nccl: type) -> Callable[..., Any]:
    """Make process groups as PyTorch does, in a PyTorch that has NCCL built in."""

    @functools.wraps(make_group)
    def make(*args: Any, **kwargs: Any) -> Any:
        patches = Patches()
        patches.set(distributed_c10d, "is_nccl_available", lambda: True)
        patches.set(distributed_c10d, "ProcessGroupNCCL", nccl)
        try:
            return make_group(*args, **kwargs)
        finally:
            patches.undo()

    return make


def _registered_for(backing_device: torch.device) -> Callable[..., None]:
    """A backend of GPUs is also that of the device that carries their tensors."""
    register = dist.ProcessGroup._register_backend

    def register_backend(
        group: dist.ProcessGroup, device: torch.device, kind: Any, backend: Any = None
    ) -> None:
        register(group, device, kind, backend)
        if device.type == "cuda" and backing_device not in group._device_types:
            register(group, backing_device, kind, backend)

    return register_backend


# DistributedDataParallel


def _reducer_on_gpu(thread: ThreadState) -> type:
    """DDP's reducer, which makes its buckets in C++ where no op before tells which GPU is meant."""

    class Reducer(_distributed_c10d.Reducer):
        def __init__(self, params: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> None:
            self._gpu = params[0].get_device()
            with self._on_gpu():
                super().__init__(list(params), *args, **kwargs)

        def _rebuild_buckets(self) -> bool:
            with self._on_gpu():
                return super()._rebuild_buckets()

        def _on_gpu(self) -> AbstractContextManager[None]:
            return thread.working_on(self._gpu) if self._gpu >= 0 else nullcontext()

    return Reducer


class _SilentLogger(_distributed_c10d.Logger):
    """DDP's logger where there is no time to log; PyTorch's would warn that it cannot."""

    def set_runtime_stats_and_log(self) -> None:
        pass


def _on_gpu_of_params(function: Callable[..., Any], thread: ThreadState) -> Callable[..., Any]:
    """Call C++ code that takes memory on the GPU of its second argument's tensors."""

    @functools.wraps(function)
    def call(group: Any, params: Sequence[torch.Tensor], *args: Any) -> Any:
        gpu = params[0].get_device()
        with thread.working_on(gpu) if gpu >= 0 else nullcontext():
            return function(group, params, *args)

    return call


def trust_params_across_processes(
    group: Any, params: Sequence[torch.Tensor], logger: Any = None
) -> None:
    """Stand in for comparing the shapes of parameters with other ranks': no values can differ.

    Takes what the comparison takes on the GPU. Source: `verify_params_across_processes` in
    torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.13.
    """
    device = params[0].device
    count = torch.tensor([len(params)], device=device)
    counts = [torch.empty_like(count) for _ in range(group.size())]
    group.allgather([counts], [count]).wait()
    dimensions = sum(2 * parameter.dim() for parameter in params)
    sizes_and_strides = torch.empty(dimensions, dtype=torch.int64, device=device)
    group.broadcast([sizes_and_strides]).wait()
