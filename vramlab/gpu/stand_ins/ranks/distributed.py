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
from torch.distributed import distributed_c10d, rpc

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.machine import ThreadState
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session
from vramlab.gpu.stand_ins.ranks import object_collectives
from vramlab.gpu.stand_ins.ranks.rank_alone import GroupStandIn, RankAlone
from vramlab.gpu.torch_internals import (
    Replaced,
    devices_of,
    make_fake_group,
    timeout_of,
)

NCCL_VERSION = 2 << 32 | 28 << 16 | 9
"""Which errors of torch.distributed tell. That of PyTorch 2.11's wheels for CUDA 13.0: 2.28.9."""

_WRAPPERS = ("torch.distributed.", "torch.nested.")
"""Where PyTorch's wrappers of tensors are defined: DTensor, and sequences of different lengths."""

NCCL_TIMEOUT = timedelta(minutes=10)
"""As in a PyTorch with NCCL. Source: `kBackendDefaultTimeout` of ProcessGroupNCCL.hpp, 2.13."""


def install(session: Session) -> None:
    """Let torch.distributed find NCCL."""
    patches, thread = session.patches, session.machine.thread
    backing_device, has_values = session.backing_device, session.has_values
    # Each init_process_group wraps it, to begin every line with the rank, and does not unwrap it.
    patches.set(sys, "excepthook", sys.excepthook)
    patches.set(dist, "is_nccl_available", lambda: True)
    patches.set(distributed_c10d, "default_pg_nccl_timeout", NCCL_TIMEOUT)
    patches.set(*Replaced.NCCL_VERSION.at, lambda: NCCL_VERSION)
    patches.set(*Replaced.NCCL_VERSION_SUFFIX.at, lambda: b"")
    if rpc.is_available():
        patches.set(rpc, "init_rpc", _no_rpc)
    make_group = Replaced.NEW_PROCESS_GROUP.value()
    nccl = _Gloo if has_values else _Fake
    alone = RankAlone()
    patches.set(*Replaced.NEW_PROCESS_GROUP.at, _with_nccl(make_group, nccl, alone))
    if not has_values:
        alone.wait_for_nobody(patches)
    patches.set(*Replaced.REGISTER_BACKEND.at, _registered_for(backing_device))
    patches.set(dist, "Reducer", _reducer_on_gpu(thread))
    patches.set(*Replaced.MAKE_WRAPPER.at, staticmethod(_wrapping_on(backing_device)))
    # DTensor asks fake tensors for shapes. In a PyTorch with CUDA they would start the real one.
    patches.set(*Replaced.INIT_GPU_CONTEXT.at, lambda device: None)
    if has_values:
        verify = _on_gpu_of_params(Replaced.VERIFY_PARAMS.value(), thread)
        patches.set(*Replaced.VERIFY_PARAMS.at, verify)
    else:
        object_collectives.install(patches)
        patches.set(dist, "Logger", _SilentLogger)
        patches.set(*Replaced.SET_SEQUENCE_NUMBER.at, lambda group: None)
        patches.set(*Replaced.VERIFY_PARAMS.at, trust_params_across_processes)


def _wrapping_on(backing_device: torch.device) -> Callable[..., torch.Tensor]:
    """Make PyTorch's own wrappers of tensors where C++ has those tensors: on the backing device.

    In the backward pass, where Python code of a wrapper asks a tensor for its device, it gets
    the GPU, since functions are intercepted there. In the forward pass it gets the backing
    device.
    """
    make: Callable[..., torch.Tensor] = Replaced.MAKE_WRAPPER.value()

    def make_wrapper(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
        def carried(arg: Any) -> Any:
            return backing_device if isinstance(arg, torch.device) and arg.type == "cuda" else arg

        if cls.__module__.startswith(_WRAPPERS):
            args = tuple(carried(arg) for arg in args)
            kwargs = {name: carried(arg) for name, arg in kwargs.items()}
        return make(cls, *args, **kwargs)

    return make_wrapper


def _no_rpc(*args: object, **kwargs: object) -> None:
    raise UnsupportedOnVirtualGPU(
        "torch.distributed.rpc is not modelled by the virtual GPU: it runs functions in threads of "
        "C++, which do not see a virtual GPU. Use torch.distributed's collectives or pipelines "
        "(torch.distributed.pipelining), or run on a real GPU."
    )


# NCCL


_NCCL_CLASSES = ("ProcessGroupNCCL", "ProcessGroupNCCL2", "ProcessGroupNCCLLazy")
"""What `init_process_group("nccl")` makes: the first up to PyTorch 2.14, then the second. The last
two are there since 2.14, under the names "nccl2" and "nccl-lazy"."""


class _Options:
    """What programs may set of `ProcessGroupNCCL.Options`. Decides nothing about memory."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream


class _Gloo(metaclass=GroupStandIn):
    """NCCL where values are computed."""

    Options = _Options

    def __new__(cls, store: Any, rank: int, size: int, options: Any, device: Any = None) -> Any:
        return dist.ProcessGroupGloo(store, rank, size, timeout=timeout_of(options))


class _Fake(metaclass=GroupStandIn):
    """NCCL where there are no values to move."""

    Options = _Options

    def __new__(cls, store: Any, rank: int, size: int, options: Any, device: Any = None) -> Any:
        return make_fake_group(rank, size)


def _with_nccl(make_group: Callable[..., Any], nccl: type, alone: RankAlone) -> Callable[..., Any]:
    """Make process groups as PyTorch does, in a PyTorch that has NCCL built in.

    Where other ranks do not run, gloo moves nothing either.
    """

    @functools.wraps(make_group)
    def make(*args: Any, **kwargs: Any) -> Any:
        patches = Patches()
        patches.set(distributed_c10d, "is_nccl_available", lambda: True)
        for name in _NCCL_CLASSES:
            patches.set(distributed_c10d, name, nccl)
        alone.replace_gloo(patches)
        try:
            return make_group(*args, **kwargs)
        finally:
            patches.undo()

    return make


def _registered_for(backing_device: torch.device) -> Callable[..., None]:
    """Make a backend of GPUs also that of the device that carries their tensors."""
    register = Replaced.REGISTER_BACKEND.value()

    def register_backend(
        group: dist.ProcessGroup, device: torch.device, kind: Any, backend: Any = None
    ) -> None:
        register(group, device, kind, backend)
        if device.type == "cuda" and backing_device not in devices_of(group):
            register(group, backing_device, kind, backend)

    return register_backend


# DistributedDataParallel


def _reducer_on_gpu(thread: ThreadState) -> type:
    """Return DDP's reducer, whose C++ allocates buckets without an op that names the GPU."""
    plain: Any = dist.Reducer  # type: ignore[attr-defined]

    class Reducer(plain):  # type: ignore[misc]
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


class _SilentLogger(dist.Logger):  # type: ignore[misc,name-defined]
    """DDP's logger without times to log; PyTorch's would warn that it cannot."""

    def set_construction_data_and_log(self, *data: Any) -> None:
        """Log nothing. C++ would ask gloo for its threads, where a fake group is in its place."""

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
