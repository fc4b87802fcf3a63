"""Every private name of PyTorch that vramlab uses: what for, and which versions have it.

Nothing else in vramlab names one (`tests/vramlab/gpu/test_torch_internals.py` looks). Names that
are read are imported from here, under a name without underscores; names that are replaced while a
virtual GPU is attached are attributes of `Replaced`, or C functions of `CUDA_FUNCTIONS`.

    from vramlab.gpu.torch_internals import OpOverload, Replaced, current_graph_task_id
    patches.set(*Replaced.NVTX.at, value)

They are looked up when they are first imported from here. `self_check.check()` looks for all of
them at once, and compares their arguments with those that `Internal.arguments` has.

The oldest version that is looked at is the oldest that vramlab supports: most names are older.
"""

# What is imported for its type is for others:
# ruff: noqa: F401

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.torch_versions import KNOWN_RELEASES, NEWEST, OLDEST, Version, parse
from vramlab.torch_versions import text as version_text

if TYPE_CHECKING:
    from torch._C import DisableTorchFunction, DispatchKey, DispatchKeySet, Generator, StorageBase
    from torch._C import _current_autograd_node as current_autograd_node
    from torch._C import _current_graph_task_id as current_graph_task_id
    from torch._C import _dispatch_dump as dispatch_dump
    from torch._C import _dispatch_get_all_op_names as dispatch_get_all_op_names
    from torch._C import (
        _dispatch_has_kernel_for_dispatch_key as dispatch_has_kernel_for_dispatch_key,
    )
    from torch._C import (
        _dispatch_tls_is_dispatch_key_included as dispatch_tls_is_dispatch_key_included,
    )
    from torch._C import (
        _dispatch_tls_set_dispatch_key_included as dispatch_tls_set_dispatch_key_included,
    )
    from torch._C import _ExcludeDispatchKeyGuard as ExcludeDispatchKeyGuard
    from torch._C import _get_dispatch_mode as get_dispatch_mode
    from torch._C import _get_sdp_priority_order as get_sdp_priority_order
    from torch._C import _len_torch_dispatch_stack as len_torch_dispatch_stack
    from torch._C import _swap_tensor_impl as swap_tensor_impl
    from torch._C import _TorchDispatchModeKey as TorchDispatchModeKey
    from torch._C._autograd import _get_sequence_nr as get_sequence_nr
    from torch._C._autograd import (
        _push_saved_tensors_default_hooks as push_saved_tensors_hooks,
    )
    from torch._C._distributed_c10d import Backend as ProcessGroupBackend
    from torch._C._distributed_c10d import FakeProcessGroup
    from torch._C._nn import _parse_to as parse_to
    from torch._dynamo.eval_frame import OptimizedModule
    from torch._library.custom_ops import OPDEFS as PYTHON_OPS
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
    from torch._prims_common import (
        compute_elementwise_output_strides,
        is_non_overlapping_and_dense_or_false,
    )
    from torch._utils import _flatten_dense_tensors as flatten_dense_tensors
    from torch._utils import _unflatten_dense_tensors as unflatten_dense_tensors
    from torch.autograd.graph import _engine_run_backward as engine_run_backward
    from torch.cuda import _get_nvml_device_index as get_nvml_device_index
    from torch.cuda import _lazy_call as when_cuda_starts
    from torch.cuda._utils import _get_device_index as get_device_index
    from torch.cuda.memory import _dump_snapshot as dump_snapshot
    from torch.cuda.memory import _record_memory_history as record_memory_history
    from torch.cuda.memory import _set_memory_metadata as set_memory_metadata
    from torch.cuda.memory import _snapshot as memory_snapshot
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.nn.parallel._functions import Broadcast
    from torch.overrides import _get_current_function_mode_stack as get_function_mode_stack
    from torch.overrides import _pop_mode as pop_function_mode
    from torch.overrides import _push_mode as push_function_mode
    from torch.utils._device import _device_constructors as device_constructors
    from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
    from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
    from torch.utils._python_dispatch import (
        _get_current_dispatch_mode_stack as get_dispatch_mode_stack,
    )
    from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode
    from torch.utils._python_dispatch import _push_mode as push_dispatch_mode
    from torch.utils._pytree import tree_leaves, tree_map

    make_subclass: Callable[..., torch.Tensor]
    storage_address: Callable[[torch.Tensor], int]
    storage_use_count: Callable[[int], int]


class Found(Enum):
    """Where a name is found."""

    ALWAYS = "in every PyTorch"
    WHEN_IMPORTED = "in a module that PyTorch imports when it is needed"
    IN_CUDA_BUILDS = "in builds of PyTorch with CUDA"
    ONCE_INITIALIZED = "in such builds, once CUDA is initialized"
    NEVER = "in none: PyTorch looks for it, and vramlab provides it"


@dataclass(frozen=True)
class Internal:
    """A private name of PyTorch.

    Attributes:
        path: the name, from `torch` on.
        purpose: what vramlab needs it for.
        since: the first version that has it; not before the oldest that vramlab supports.
        until: the last version that has it; None: the newest has it.
        found: where it is there.
        owner: makes the object whose attribute the last part of the path is, where the path does
            not lead to it: attributes of instances.
        arguments: of a function that vramlab calls, those that it passes; of one that it replaces,
            those that the replacement accepts. Written as parameters, such as `device, *, optional`
            for one by position and one by keyword. None: not compared, because it is no function or
            everything is passed on.
    """

    path: str
    purpose: str
    since: Version = OLDEST
    until: Version | None = None
    found: Found = Found.ALWAYS
    owner: Callable[[], Any] | None = None
    arguments: str | None = None

    @property
    def at(self) -> tuple[Any, str]:
        """The object that has the name, and the name there: the first arguments of `setattr`.

        Raises:
            UnsupportedOnVirtualGPU: there is no such object.
        """
        before, _, name = self.path.rpartition(".")
        try:
            return (_resolve(before) if self.owner is None else self.owner()), name
        except (AttributeError, ImportError) as error:
            raise UnsupportedOnVirtualGPU(complaint([self])) from error

    def value(self) -> Any:
        """Look up what the name stands for now.

        Raises:
            UnsupportedOnVirtualGPU: this PyTorch does not have it.
        """
        try:
            return getattr(*self.at) if self.owner is not None else _resolve(self.path)
        except (AttributeError, ImportError) as error:
            raise UnsupportedOnVirtualGPU(complaint([self])) from error

    def is_there(self) -> bool:
        """Return whether this PyTorch has the name."""
        before, _, name = self.path.rpartition(".")
        if before == "torch._C":  # quickly: no import is tried of the many that CPU builds lack
            return hasattr(torch._C, name)
        try:
            self.value()
        except UnsupportedOnVirtualGPU:
            return False
        return True

    def is_in(self, version: Version) -> bool:
        """Return whether a PyTorch version has the name, or is newer than the known versions."""
        return self.since <= version and (self.until is None or version <= self.until)


DYNAMO = "torch._dynamo"
KEPT_BY_DYNAMO = "__dynamo_disable"
"""Where `torch._compile` keeps what Dynamo has made of a function that it shall leave alone."""

_DISTRIBUTED = ("torch.distributed.", "torch._C._distributed_c10d.")
"""What a PyTorch that is built without torch.distributed does not have."""

READ: Mapping[str, Internal] = {
    # torch._C: modes, dispatch keys, the autograd engine
    "DisableTorchFunction": Internal(
        "torch._C.DisableTorchFunction", "queries tensors without passing function modes"
    ),
    "DispatchKey": Internal("torch._C.DispatchKey", "names the kernels of a device"),
    "DispatchKeySet": Internal("torch._C.DispatchKeySet", "excludes autocast inside its kernels"),
    "ExcludeDispatchKeyGuard": Internal(
        "torch._C._ExcludeDispatchKeyGuard", "excludes autocast inside its kernels"
    ),
    "Generator": Internal("torch._C.Generator", "the class that `torch.Generator` extends"),
    "OptimizedModule": Internal(
        "torch._dynamo.eval_frame.OptimizedModule",
        "the class of compiled modules, with their `_orig_mod`",
        found=Found.WHEN_IMPORTED,
    ),
    "StorageBase": Internal("torch._C.StorageBase", "queries storages as C++ does"),
    "TorchDispatchModeKey": Internal(
        "torch._C._TorchDispatchModeKey", "distinguishes FakeTensorMode from other modes"
    ),
    "current_autograd_node": Internal(
        "torch._C._current_autograd_node",
        "names the node for which the engine allocates",
        arguments="",
    ),
    "current_graph_task_id": Internal(
        "torch._C._current_graph_task_id",
        "is not -1 during a backward pass",
        arguments="",
    ),
    "device_constructors": Internal(
        "torch.utils._device._device_constructors",
        "lists the functions that make a tensor on the default device",
        arguments="",
    ),
    "dispatch_dump": Internal(
        "torch._C._dispatch_dump",
        "marks structured kernels, whose errors use another name",
        arguments="name",
    ),
    "dispatch_get_all_op_names": Internal(
        "torch._C._dispatch_get_all_op_names",
        "marks the ops that only TorchScript has",
        arguments="",
    ),
    "dispatch_has_kernel_for_dispatch_key": Internal(
        "torch._C._dispatch_has_kernel_for_dispatch_key",
        "shows which ops have a kernel for a dispatch key",
        arguments="name, key",
    ),
    "dispatch_tls_is_dispatch_key_included": Internal(
        "torch._C._dispatch_tls_is_dispatch_key_included",
        "switches autocast's kernels on",
        arguments="key",
    ),
    "dispatch_tls_set_dispatch_key_included": Internal(
        "torch._C._dispatch_tls_set_dispatch_key_included",
        "switches autocast's kernels on",
        arguments="key, included",
    ),
    "get_dispatch_mode": Internal(
        "torch._C._get_dispatch_mode",
        "shows whether tensors are fake",
        arguments="key",
    ),
    "get_sdp_priority_order": Internal(
        "torch._C._get_sdp_priority_order",
        "chooses a kernel of attention as PyTorch does",
        arguments="",
    ),
    "get_sequence_nr": Internal(
        "torch._C._autograd._get_sequence_nr",
        "shows which autograd nodes an op created",
        arguments="",
    ),
    "push_saved_tensors_hooks": Internal(
        "torch._C._autograd._push_saved_tensors_default_hooks",
        "listens to the hooks of saved tensors",
        arguments="pack, unpack",
    ),
    "len_torch_dispatch_stack": Internal(
        "torch._C._len_torch_dispatch_stack",
        "shows whether another mode has to see an op",
        arguments="",
    ),
    "parse_to": Internal("torch._C._nn._parse_to", "reads the arguments of `Tensor.to`"),
    "storage_address": Internal(
        "torch._C._storage_address",
        "is the `storage_id` of a tensor that has no object for it",
        arguments="tensor",
    ),
    "storage_use_count": Internal(
        "torch._C._storage_Use_Count",
        "counts what refers to a gradient besides the autograd engine",
        arguments="address",
    ),
    "swap_tensor_impl": Internal(
        "torch._C._swap_tensor_impl", "moves parameters that stay the same Python objects"
    ),
    "engine_run_backward": Internal(
        "torch.autograd.graph._engine_run_backward",
        "identifies the autograd engine's frames by its code",
    ),
    # torch: ops, trees, memory formats, modes
    "HigherOrderOperator": Internal("torch._ops.HigherOrderOperator", "the type of such ops"),
    "OpOverload": Internal("torch._ops.OpOverload", "the type of ops"),
    "OpOverloadPacket": Internal("torch._ops.OpOverloadPacket", "the type of ops by one name"),
    "compute_elementwise_output_strides": Internal(
        "torch._prims_common.compute_elementwise_output_strides",
        "lays out what element-wise ops make of expanded operands",
        arguments="*tensors",
    ),
    "is_non_overlapping_and_dense_or_false": Internal(
        "torch._prims_common.is_non_overlapping_and_dense_or_false",
        "decides whether a gradient may be accumulated in place",
        arguments="tensor",
    ),
    "flatten_dense_tensors": Internal(
        "torch._utils._flatten_dense_tensors",
        "makes the buffers that DataParallel sends",
        arguments="tensors",
    ),
    "unflatten_dense_tensors": Internal(
        "torch._utils._unflatten_dense_tensors",
        "makes views of the buffers that came",
        arguments="flat, tensors",
    ),
    "get_function_mode_stack": Internal(
        "torch.overrides._get_current_function_mode_stack",
        "puts the function mode below others",
        arguments="",
    ),
    "pop_function_mode": Internal(
        "torch.overrides._pop_mode",
        "puts the function mode below others",
        arguments="",
    ),
    "push_function_mode": Internal(
        "torch.overrides._push_mode",
        "puts the function mode below others",
        arguments="mode",
    ),
    "TorchDispatchMode": Internal(
        "torch.utils._python_dispatch.TorchDispatchMode", "sees every op below autograd"
    ),
    "disable_current_modes": Internal(
        "torch.utils._python_dispatch._disable_current_modes",
        "runs ops that no mode should see",
        arguments="",
    ),
    "get_dispatch_mode_stack": Internal(
        "torch.utils._python_dispatch._get_current_dispatch_mode_stack",
        "puts the dispatch mode below others",
        arguments="",
    ),
    "pop_dispatch_mode": Internal(
        "torch.utils._python_dispatch._pop_mode",
        "puts the dispatch mode below others",
        arguments="key",
    ),
    "push_dispatch_mode": Internal(
        "torch.utils._python_dispatch._push_mode",
        "puts the dispatch mode below others",
        arguments="mode",
    ),
    "is_traceable_wrapper_subclass": Internal(
        "torch.utils._python_dispatch.is_traceable_wrapper_subclass",
        "finds the tensors inside of DTensor and its like",
        arguments="tensor",
    ),
    "tree_leaves": Internal(
        "torch.utils._pytree.tree_leaves",
        "finds tensors in arguments",
        arguments="tree",
    ),
    "tree_map": Internal(
        "torch.utils._pytree.tree_map",
        "replaces tensors in arguments",
        arguments="function, tree",
    ),
    "make_subclass": Internal("torch.Tensor._make_subclass", "copies a tensor of any class"),
    "Broadcast": Internal(
        "torch.nn.parallel._functions.Broadcast", "copies parameters as DataParallel does"
    ),
    # torch.cuda
    "get_device_index": Internal(
        "torch.cuda._utils._get_device_index",
        "reads a device as torch.cuda does",
        arguments="device, *, optional",
    ),
    "get_nvml_device_index": Internal(
        "torch.cuda._get_nvml_device_index",
        "finds the GPU in NVML that torch.cuda uses",
        arguments="device",
    ),
    "when_cuda_starts": Internal(
        "torch.cuda._lazy_call",
        "begins a history when the program first uses CUDA",
        arguments="function",
    ),
    "PYTHON_OPS": Internal(
        "torch._library.custom_ops.OPDEFS", "finds ops that a program has defined in Python"
    ),
    "dump_snapshot": Internal(
        "torch.cuda.memory._dump_snapshot",
        "writes a snapshot to a file",
        arguments="path",
    ),
    "record_memory_history": Internal(
        "torch.cuda.memory._record_memory_history",
        "records allocations",
        arguments="enabled, *, context, stacks, clear_history",
    ),
    "set_memory_metadata": Internal(
        "torch.cuda.memory._set_memory_metadata",
        "marks stages in recorded allocations",
        arguments="metadata",
    ),
    "memory_snapshot": Internal(
        "torch.cuda.memory._snapshot",
        "reads recorded allocations",
        arguments="",
    ),
    # torch.distributed
    "AsyncCollectiveTensor": Internal(
        "torch.distributed._functional_collectives.AsyncCollectiveTensor",
        "wraps results of collectives that may still run",
        found=Found.WHEN_IMPORTED,
    ),
    "FakeProcessGroup": Internal(
        "torch._C._distributed_c10d.FakeProcessGroup", "stands in for NCCL without values"
    ),
    "ProcessGroupBackend": Internal(
        "torch._C._distributed_c10d.Backend", "the class of which NCCL's is one"
    ),
}
"""The names that are read, and what they are called here."""


class Replaced:
    """The attributes that stand-ins replace while a virtual GPU is attached."""

    ENGINE_OF_AUTOGRAD = Internal(
        "torch.autograd._engine_run_backward", "keeps reporting virtual devices in backward passes"
    )
    ENGINE_OF_GRAPH = Internal(
        "torch.autograd.graph._engine_run_backward",
        "keeps reporting virtual devices in backward passes",
    )
    MODULE_CALL = Internal("torch.nn.Module.__call__", "counts forward passes")
    MODULE_APPLY = Internal("torch.nn.Module._apply", "sees parameters that moved")
    REDUCE_TENSOR = Internal(
        "torch.Tensor._reduce_ex_internal",
        "saves tensors without values",
        arguments="tensor, protocol",
    )
    MAKE_WRAPPER = Internal(
        "torch.Tensor._make_wrapper_subclass", "makes DTensor and its like where C++ has tensors"
    )
    SHARE_STORAGE = Internal("torch.UntypedStorage._share_cuda_", "refuses to share with processes")
    GROUP_TENSORS = Internal(
        "torch._C._group_tensors_by_device_and_dtype",
        "distinguishes GPUs in foreach optimizers",
        arguments="lists, with_indices=False",
    )
    C_GETATTR = Internal(
        "torch._C.__getattr__", "says which C functions are not modelled", found=Found.NEVER
    )
    HAS_CUDA = Internal("torch._C._has_cuda", "reports that PyTorch is built with CUDA")
    FROM_DLPACK = Internal(
        "torch._C._from_dlpack",
        "takes tensors of a GPU from capsules",
        arguments="capsule",
    )
    HAS_CUDNN = Internal("torch._C._has_cudnn", "reports that PyTorch is built with cuDNN")
    USE_FLATTENED_WEIGHTS = Internal(
        "torch._use_cudnn_rnn_flatten_weight", "lets recurrent layers keep weights in one buffer"
    )
    DYNAMO = Internal(
        DYNAMO, "is imported only where something compiles", found=Found.WHEN_IMPORTED
    )
    # torch.nn.parallel
    BROADCAST_FUNCTION = Internal(
        "torch.nn.parallel._functions.Broadcast", "makes zeros for parameters without gradient"
    )
    BROADCAST = Internal(
        "torch._C._broadcast",
        "copies between GPUs",
        found=Found.IN_CUDA_BUILDS,
        arguments="tensor, devices",
    )
    BROADCAST_COALESCED = Internal(
        "torch._C._broadcast_coalesced",
        "copies between GPUs",
        found=Found.IN_CUDA_BUILDS,
        arguments="tensors, devices, buffer_bytes",
    )
    SCATTER = Internal("torch._C._scatter", "copies between GPUs", found=Found.IN_CUDA_BUILDS)
    GATHER = Internal("torch._C._gather", "copies between GPUs", found=Found.IN_CUDA_BUILDS)
    # torch.cuda
    EXCHANGE_DEVICE = Internal(
        "torch.cuda._exchange_device",
        "changes the current device",
        arguments="device",
    )
    MAYBE_EXCHANGE_DEVICE = Internal(
        "torch.cuda._maybe_exchange_device",
        "changes the current device",
        arguments="device",
    )
    CUDART = Internal("torch.cuda._cudart", "replaces CUDA's runtime")
    INITIALIZED = Internal("torch.cuda._initialized", "is True once a GPU has been used")
    QUEUED_CALLS = Internal("torch.cuda._queued_calls", "keeps calls until a GPU is used")
    CACHED_DEVICE_COUNT = Internal("torch.cuda._cached_device_count", "counts the GPUs")
    IS_IN_BAD_FORK = Internal(
        "torch.cuda._is_in_bad_fork",
        "lets processes that are forked go on",
        arguments="",
    )
    GET_DEVICE_PROPERTIES = Internal(
        "torch.cuda._get_device_properties", "describes a GPU", found=Found.ONCE_INITIALIZED
    )
    IS_CAPTURING = Internal(
        "torch.cuda.graphs._cuda_isCurrentStreamCapturing",
        "reports whether a CUDA graph is captured",
    )
    CUDA_GRAPH = Internal("torch._C._CUDAGraph", "the class that `torch.cuda.CUDAGraph` extends")
    GRAPH_POOL_HANDLE = Internal("torch._C._graph_pool_handle", "names private pools")
    GRAPH_POOL_HANDLE_OF_GRAPHS = Internal(
        "torch.cuda.graphs._graph_pool_handle", "names private pools"
    )
    ALLOCATOR_STATE = Internal(
        "torch._C._cuda_CUDAAllocator_AllocatorState",
        "is imported where torch.compiler marks steps",
        found=Found.IN_CUDA_BUILDS,
    )
    CACHE_TENSORS = Internal(
        "torch._C._set_cached_tensors_enabled",
        "is imported where torch.compiler marks steps",
        found=Found.IN_CUDA_BUILDS,
    )
    MEM_POOL = Internal("torch._C._MemPool", "the class that `torch.cuda.MemPool` extends")
    BEGIN_ALLOCATE_OF_THREAD = Internal(
        "torch.cuda.memory._cuda_beginAllocateCurrentThreadToPool",
        "allocates from a private pool in one thread",
    )
    BEGIN_ALLOCATE = Internal(
        "torch.cuda.memory._cuda_beginAllocateToPool", "allocates from a private pool"
    )
    END_ALLOCATE = Internal(
        "torch.cuda.memory._cuda_endAllocateToPool", "allocates no longer from a private pool"
    )
    RELEASE_POOL = Internal(
        "torch.cuda.memory._cuda_releasePool", "counts one user less of a private pool"
    )
    NVTX = Internal("torch.cuda.nvtx._nvtx", "lets programs set NVTX's marks")
    # torch.distributed
    NCCL_VERSION = Internal(
        "torch._C._nccl_version", "says which NCCL there is", found=Found.IN_CUDA_BUILDS
    )
    NCCL_VERSION_SUFFIX = Internal(
        "torch._C._nccl_version_suffix", "says which NCCL there is", found=Found.IN_CUDA_BUILDS
    )
    NEW_PROCESS_GROUP = Internal(
        "torch.distributed.distributed_c10d._new_process_group_helper", "makes groups of NCCL"
    )
    REGISTER_BACKEND = Internal(
        "torch.distributed.ProcessGroup._register_backend",
        "registers a group for the device behind GPUs",
        arguments="group, device, kind, backend=None",
    )
    VERIFY_PARAMS = Internal(
        "torch.distributed._verify_params_across_processes",
        "compares DistributedDataParallel's parameters",
        arguments="group, params, logger=None",
    )
    SET_SEQUENCE_NUMBER = Internal(
        "torch._C._distributed_c10d.FakeProcessGroup._set_sequence_number_for_group",
        "numbers collectives, which the fake process group refuses",
        arguments="group",
    )
    INIT_GPU_CONTEXT = Internal(
        "torch._subclasses.fake_tensor.init_gpu_context",
        "starts no real CUDA for fake tensors",
        arguments="device",
    )


CUDA_PREFIX = "_cuda_"
_IN_CUDA_BUILDS = (CUDA_PREFIX, "_cudnn_", "_host_")
"""How the names of the C functions begin that only a PyTorch with CUDA has."""

_SINCE: Mapping[str, Version] = {
    "_accelerator_emptyHostCache": (2, 12),
    "_cuda_cudaCachingAllocator_is_enabled": (2, 12),
    "_accelerator_getAllocatorSettings": (2, 12),
    "_cuda_annotateMemory": (2, 14),
    "_cuda_memoryMetadataSupported": (2, 14),
}

CUDA_FUNCTIONS: Mapping[str, Internal] = {
    name: Internal(
        f"torch._C.{name}",
        purpose,
        since=_SINCE.get(name, OLDEST),
        found=Found.IN_CUDA_BUILDS if name.startswith(_IN_CUDA_BUILDS) else Found.ALWAYS,
    )
    for name, purpose in {
        "_cuda_init": "initializes CUDA",
        "_cuda_getDeviceCount": "counts the GPUs",
        "_cuda_getDevice": "returns the current device",
        "_cuda_setDevice": "changes the current device",
        "_cuda_exchangeDevice": "changes the current device, and returns the previous one",
        "_cuda_maybeExchangeDevice": "the same, but ignores a negative index",
        "_cuda_hasPrimaryContext": "reports whether a GPU has a CUDA context",
        "_cuda_canDeviceAccessPeer": "reports whether GPUs can read each other's memory: all can",
        "_cuda_getArchFlags": "returns the GPUs that PyTorch was built for: those attached",
        "_cuda_isCurrentStreamCapturing": "reports whether a CUDA graph is captured",
        "_cuda_beginAllocateToPool": "allocates from a private pool",
        "_cuda_beginAllocateCurrentStreamToPool": "allocates from a private pool on one stream",
        "_cuda_beginAllocateCurrentThreadToPool": "allocates from a private pool in one thread",
        "_cuda_endAllocateToPool": "stops allocating from a private pool",
        "_cuda_releasePool": "removes a user of a private pool",
        "_host_emptyCache": "frees cached pinned memory: none is cached",
        "_cuda_isInBadFork": "reports whether CUDA was initialized before a fork",
        "_cuda_ipc_collect": "frees memory that other processes shared: there is none",
        "_cuda_sleep": "makes a GPU wait: no time passes",
        "_cuda_get_sync_debug_mode": "reports whether synchronizing prints a warning: never",
        "_cuda_set_sync_debug_mode": "turns these warnings on: ignored",
        "_cuda_synchronize": "waits for a GPU: everything is done",
        "_cuda_getCurrentStream": "returns the current stream",
        "_cuda_getDefaultStream": "returns the default stream",
        "_cuda_setStream": "changes the current stream",
        "_cuda_getCurrentRawStream": "returns the current stream's handle",
        "_cuda_memoryStats": "returns the allocator's counters",
        "_cuda_resetPeakMemoryStats": "resets peaks",
        "_cuda_resetAccumulatedMemoryStats": "resets sums",
        "_cuda_emptyCache": "releases the cache to the driver",
        "_cuda_setMemoryFraction": "limits the allocator",
        "_cuda_getMemoryFraction": "returns the limit",
        "_cuda_getAllocatorBackend": "names the allocator: native",
        "_cuda_cudaCachingAllocator_raw_alloc": "allocates without a tensor",
        "_cuda_cudaCachingAllocator_raw_delete": "frees what was allocated without a tensor",
        "_cuda_cudaCachingAllocator_is_enabled": "reports whether memory is cached: always",
        "_cuda_cudaCachingAllocator_enable": "turns caching off: refused",
        "_cuda_memorySnapshot": "returns segments, blocks and recorded events",
        "_cuda_record_memory_history": "records allocations",
        "_cuda_setMemoryMetadata": "attaches a text to the next allocations",
        "_cuda_getMemoryMetadata": "returns that text",
        "_cuda_memoryMetadataSupported": "reports whether these texts are recorded: always",
        "_cuda_annotateMemory": "records a text about an allocation",
        "_cuda_clearCublasWorkspaces": "frees cuBLAS's workspaces",
        "_cuda_get_cudnn_benchmark_limit": "reports how many cuDNN plans are timed",
        "_cuda_set_cudnn_benchmark_limit": "changes that",
        "_cuda_get_conv_benchmark_empty_cache": "reports whether the cache is emptied after that",
        "_cudnn_set_conv_benchmark_empty_cache": "changes that",
        "_cuda_attach_out_of_memory_observer": "calls a function before an error is raised",
        "_get_accelerator": "names the accelerator: cuda",
        "_accelerator_getAccelerator": "names the accelerator: cuda",
        "_accelerator_getAllocatorSettings": "returns the settings of the caching allocator",
        "_accelerator_setAllocatorSettings": "changes the settings of the caching allocator",
        "_accelerator_getDeviceIndex": "returns the current device",
        "_accelerator_setDeviceIndex": "changes the current device",
        "_accelerator_exchangeDevice": "changes the current device, and returns the previous one",
        "_accelerator_maybeExchangeDevice": "the same, but ignores a negative index",
        "_accelerator_getStream": "returns the current stream",
        "_accelerator_setStream": "changes the current stream",
        "_accelerator_synchronizeDevice": "waits for a GPU: everything is done",
        "_accelerator_isAllocatorInitialized": "reports whether there is an allocator: always",
        "_accelerator_emptyCache": "releases the cache to the driver",
        "_accelerator_emptyHostCache": "releases cached pinned memory: none is cached",
        "_accelerator_getDeviceStats": "returns the allocator's counters",
        "_accelerator_resetPeakStats": "resets peaks",
        "_accelerator_resetAccumulatedStats": "resets sums",
        "_accelerator_getMemoryInfo": "returns free and total memory, as cudaMemGetInfo",
    }.items()
}
"""The C functions under torch.cuda and torch.accelerator that `stand_ins.torch_c` answers."""


class _Reached:
    """The names that the functions below reach, so that no other code has to."""

    SCHEMA = Internal(
        "torch._ops.OpOverload._schema",
        "names an op's arguments, and what it changes",
        owner=lambda: torch.ops.aten.add.Tensor,
    )
    OP_NAME = Internal(
        "torch._ops.OpOverload._opname",
        "names an op without its overload",
        owner=lambda: torch.ops.aten.add.Tensor,
    )
    KERNEL = Internal(
        "torch._ops.OpOverload._op_dk",
        "calls the kernel of a dispatch key",
        owner=lambda: torch.ops.aten.add.Tensor,
    )
    STORAGE_ID = Internal("torch.UntypedStorage._cdata", "identifies a storage, whatever views it")
    GENERATOR_ID = Internal(
        "torch.Generator._cdata", "identifies a random number generator, whatever refers to it"
    )
    USE_COUNT = Internal("torch.Tensor._use_count", "counts what refers to a gradient")
    VERSION = Internal("torch.Tensor._version", "shows that a saved tensor was changed in place")
    INDICES = Internal("torch.Tensor._indices", "finds the storages of a sparse tensor")
    VALUES = Internal("torch.Tensor._values", "finds the storages of a sparse tensor")
    COALESCED = Internal("torch.Tensor._coalesced_", "makes sparse tensors like those of CUDA")
    BACKWARD_HOOKS = Internal("torch.Tensor._backward_hooks", "keeps hooks when modules move")
    ACCUMULATE_HOOKS = Internal(
        "torch.Tensor._post_accumulate_grad_hooks", "keeps hooks when modules move"
    )
    PARAMETERS = Internal(
        "torch.nn.Module._parameters", "sees the parameters of modules", owner=torch.nn.Module
    )
    BUFFERS = Internal(
        "torch.nn.Module._buffers", "sees the buffers of modules", owner=torch.nn.Module
    )
    MODULE_FORWARD = Internal("torch.nn.Module._call_impl", "counts forward passes")
    MODULE_COMPILED = Internal("torch.nn.Module._compiled_call_impl", "counts forward passes")
    SEQUENCE_NUMBER = Internal(
        "torch.autograd.graph.Node._sequence_nr",
        "finds the line that made an autograd node",
        arguments="node",
    )
    ENGINE = Internal(
        "torch.autograd.Variable._execution_engine", "runs backward what clears its queue"
    )
    DISABLE = Internal("torch._dynamo.disable", "is done without Dynamo", found=Found.WHEN_IMPORTED)
    GRAPH_BREAK = Internal(
        "torch._dynamo.graph_break", "is done without Dynamo", found=Found.WHEN_IMPORTED
    )
    SETTINGS = Internal(
        "torch._dynamo.config.codegen_config",
        "shows whether Dynamo's settings were changed",
        found=Found.WHEN_IMPORTED,
    )
    DEFAULT_DEVICE = Internal(
        "torch.utils._device.CURRENT_DEVICE", "is the device of torch.set_default_device"
    )
    DEVICE_CONTEXT = Internal(
        "torch._GLOBAL_DEVICE_CONTEXT", "leaves the mode of torch.set_default_device lowest"
    )
    DESTROY_LIBRARY = Internal(
        "torch.library.Library._destroy",
        "takes kernels away again",
        arguments="library",
    )
    SCRIPT_TYPE = Internal("torch.ScriptObject._type", "finds the process group of a collective")
    # torch.distributed
    DEFAULT_GROUP = Internal(
        "torch.distributed.distributed_c10d._get_default_group",
        "finds the group that is meant",
        arguments="",
    )
    DEFAULT_STORE = Internal(
        "torch.distributed.distributed_c10d._get_default_store",
        "finds the store through which ranks tell each other objects",
        arguments="",
    )
    OBJECT_DEVICE = Internal(
        "torch.distributed.distributed_c10d._get_object_coll_device",
        "decides where a collective of objects allocates memory",
        arguments="group",
    )
    NOT_IN_GROUP = Internal(
        "torch.distributed.distributed_c10d._rank_not_in_group",
        "leaves groups alone that this rank is not in",
        arguments="group",
    )
    RESOLVE_GROUP = Internal(
        "torch.distributed.distributed_c10d._resolve_process_group",
        "finds a group by its name",
        arguments="name",
    )
    GROUP_BACKEND = Internal(
        "torch.distributed.ProcessGroup._get_backend",
        "shows whether other ranks run",
        arguments="group, device",
    )
    GROUP_DEVICES = Internal(
        "torch.distributed.ProcessGroup._device_types", "registers each device once"
    )
    REBUILD_BUCKETS = Internal(
        "torch.distributed.Reducer._rebuild_buckets", "shows the GPU of DDP's buckets"
    )
    MAKE_FAKE_GROUP = Internal(
        "torch._C._distributed_c10d.FakeProcessGroup._create_internal",
        "makes a rank of any world",
        arguments="rank, size",
    )
    WORK_OF_FUTURE = Internal(
        "torch._C._distributed_c10d._create_work_from_future",
        "returns finished collectives",
        arguments="future",
    )
    GROUP_TIMEOUT = Internal(
        "torch._C._distributed_c10d.Backend.Options._timeout", "passes NCCL's timeout on to gloo"
    )
    TRANSFORM_CACHE = Internal(
        "torch.distributed.tensor._redistribute._gen_transform_infos",
        "forgets meshes that are gone",
        found=Found.WHEN_IMPORTED,
    )
    DTENSOR_RANDOM = Internal(
        "torch.distributed.tensor._random.OffsetBasedRNGTracker._distribute_region",
        "a random op of shards in host memory reads the state of a CUDA generator",
        found=Found.WHEN_IMPORTED,
    )
    SHARDING_CACHE = Internal(
        "torch.distributed.tensor.debug._clear_sharding_prop_cache",
        "forgets meshes that are gone",
        found=Found.WHEN_IMPORTED,
        arguments="",
    )


def schema_of(op: Any) -> Any:
    """Get the schema of an op: its name, arguments and returns (`torch.FunctionSchema`)."""
    return op._schema


def plain_name_of(op: OpOverload) -> str:
    """Name an op without namespace and overload, such as "allreduce_"."""
    return op._opname


@functools.cache
def in_place_form(op: OpOverload) -> OpOverload:
    """Find the op that does the same in its first operand, such as aten.mul_.Tensor."""
    packet = getattr(getattr(torch.ops, op.namespace), f"{op._opname}_")
    form: OpOverload = getattr(packet, op._overloadname)
    return form


def kernel_of(op: OpOverload, key: DispatchKey) -> Callable[..., Any]:
    """Find the kernel of an op that is registered for a dispatch key."""
    return functools.partial(op._op_dk, key)


def kernel_in_python(definition: Any) -> Callable[..., Any] | None:
    """Return the function that `torch.library.custom_op` runs on CUDA, of such an op."""
    kernels: Mapping[str | None, Callable[..., Any]] = getattr(definition, "_backend_fns", {})
    return kernels.get("cuda") or kernels.get(None)


def storage_id(storage: torch.UntypedStorage) -> int:
    """Get a number that a storage has for itself: the address of C++'s object."""
    return storage._cdata


def generator_id(generator: torch.Generator) -> int:
    """Get a number that a generator has for itself: the address of C++'s object."""
    number: int = generator._cdata  # type: ignore[attr-defined]
    return number


def use_count(tensor: torch.Tensor) -> int:
    """Count how often C++ refers to a tensor."""
    count: int = tensor._use_count()  # type: ignore[attr-defined]
    return count


def version_of(tensor: torch.Tensor) -> int:
    """Count how often a tensor was changed in place."""
    return tensor._version


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split a sparse tensor into indices and values, also one that is not coalesced."""
    return tensor._indices(), tensor._values()


def mark_coalesced(tensor: torch.Tensor, coalesced: bool) -> torch.Tensor:
    """Say of a sparse tensor whether no entry of it is there twice; return it."""
    return tensor._coalesced_(coalesced)


def backward_hooks_of(tensor: torch.Tensor) -> Any:
    """Return the hooks that wait for a tensor's gradient, by number; None if it has none."""
    return tensor._backward_hooks


def keep_hooks(tensor: Any) -> None:
    """Tell C++ of the hooks that a Python tensor has, after its impl was swapped.

    C++ has noted them on the other impl: setting them tells the new one.
    """
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if (hooks := getattr(tensor, name)) is not None:
            setattr(tensor, name, hooks)


def own_parameters(module: torch.nn.Module) -> Iterable[torch.nn.Parameter | None]:
    """Return the parameters of a module without those of its submodules."""
    return module._parameters.values()


def own_buffers(module: torch.nn.Module) -> Iterable[torch.Tensor | None]:
    """Return the buffers of a module without those of its submodules."""
    return module._buffers.values()


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether `module.compile()` was called."""
    return module._compiled_call_impl is not None


def call_uncompiled(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call a module as `module(...)` does where it is not compiled."""
    return module._call_impl(*args, **kwargs)


def apply_to_tensors(
    module: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Replace the parameters and buffers of a module and its submodules, as `.cuda()` does."""
    module._apply(function)


def sequence_number_of(node: Any) -> int:
    """Get the number of an autograd node: the engine runs the highest first."""
    number: int = node._sequence_nr()
    return number


def saved_by_node(node: Any, name: str) -> Any:
    """Return what an autograd node has saved under a name; None where it has saved nothing.

    Numbers below 0, such as dim=-1, come as unsigned ones of 64 bits.
    """
    value = getattr(node, f"_saved_{name}", None)
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value


def execution_engine() -> Any:
    """Find the autograd engine, as Python sees it."""
    return torch.autograd.Variable._execution_engine


def default_device() -> torch.device | None:
    """Return the device of `torch.set_default_device`; None if none is set."""
    device: torch.device | None = _loaded("torch.utils._device").CURRENT_DEVICE
    return device


def default_device_mode() -> Any:
    """Find the function mode of `torch.set_default_device` in the calling thread, or None."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def mode_key_of(mode: TorchDispatchMode) -> Any:
    """Return which place a dispatch mode has below the stack; None if it is on the stack."""
    return getattr(mode, "_mode_key", None)


def kernel_on_cuda(op: OpOverload, key: str = "CUDA") -> Any:
    """Find the kernel that an op has for GPUs, to be called by `call_boxed`; None if it has none.

    Also None before PyTorch 2.10, which does not tell.

    Args:
        op: the op.
        key: the dispatch key: "SparseCUDA" finds the kernel for sparse tensors.
    """
    find = getattr(torch.library, "get_kernel", None)
    return None if find is None else find(op, key)


def destroy(library: torch.library.Library) -> None:
    """Take the kernels away that were registered in a library."""
    library._destroy()


def is_in_bad_fork() -> bool:
    """Return whether CUDA was initialized before this process was forked."""
    return bool(torch.cuda._is_in_bad_fork())


def attach_out_of_memory_observer(observer: Callable[[int, int, int, int], None]) -> None:
    """Have a function called before an error is raised, until the process ends."""
    CUDA_FUNCTIONS["_cuda_attach_out_of_memory_observer"].value()(observer)


def clear_cublas_workspaces() -> None:
    """Free cuBLAS's workspaces of every GPU."""
    torch._C._cuda_clearCublasWorkspaces()


def set_allocator_settings(text: str) -> None:
    """Change the caching allocator's settings, as PYTORCH_CUDA_ALLOC_CONF has them."""
    torch._C._accelerator_setAllocatorSettings(text)


def names_in_cuda_build() -> list[str]:
    """List the names of `torch._C` that this PyTorch has because it is built with CUDA."""
    return [name for name in vars(torch._C) if name.startswith(CUDA_PREFIX)]


def undeclared(name: str) -> Internal:
    """Describe a C function of torch.cuda that nothing stands in for."""
    return Internal(f"torch._C.{name}", "is not modelled", found=Found.IN_CUDA_BUILDS)


def script_type_of(arg: Any) -> str | None:
    """Name the C++ class of an op's argument; None if it is a Python object."""
    return str(arg._type()) if hasattr(arg, "_type") else None


def default_group() -> Any:
    """Find the process group of `init_process_group`."""
    return _c10d()._get_default_group()


def default_store() -> Any:
    """Find the store in which the processes of `init_process_group` have met."""
    return _c10d()._get_default_store()


def device_of_objects(group: Any) -> torch.device:
    """Return on which device a group exchanges pickled objects."""
    return torch.device(_c10d()._get_object_coll_device(group))


def is_outside(group: Any) -> bool:
    """Return whether this rank does not belong to a process group."""
    return bool(_c10d()._rank_not_in_group(group))


def group_named(name: str) -> Any:
    """Find the process group of a name, as functional collectives get it."""
    return _c10d()._resolve_process_group(name)


def backend_of(group: Any, device: torch.device) -> Any:
    """Find what moves the bytes of a process group on a device."""
    return group._get_backend(device)


def devices_of(group: Any) -> list[torch.device]:
    """List the devices for which a process group has something that moves bytes."""
    return list(group._device_types)


def timeout_of(options: Any) -> Any:
    """Return how long a process group waits, by the options that it is made with."""
    return options._timeout


def make_fake_group(rank: int, size: int) -> Any:
    """Make a process group whose collectives move nothing."""
    return _loaded("torch._C._distributed_c10d").FakeProcessGroup._create_internal(rank, size)


def work_of(future: torch.futures.Future[Any]) -> Any:
    """Make the work of a collective whose result is a future's."""
    return _loaded("torch._C._distributed_c10d")._create_work_from_future(future)


def plain_random_shards(patches: Any, module: Any) -> None:
    """Let a DTensor in host memory draw from the CPU's generator, as any tensor there.

    Args:
        patches: of the session.
        module: torch.distributed.tensor._random, once it is imported.
    """
    patches.set(module.OffsetBasedRNGTracker, "_distribute_region", lambda *_, **__: nullcontext())


def clear_dtensor_caches() -> None:
    """Empty the caches of DTensor, if it is in use.

    Source: torch/distributed/tensor/debug/__init__.py, _sharding_prop.py and _redistribute.py,
    PyTorch 2.10 and 2.13.
    """
    if "torch.distributed.tensor" in sys.modules:
        debug = _loaded("torch.distributed.tensor.debug")
        if hasattr(debug, "_clear_sharding_prop_cache"):
            debug._clear_sharding_prop_cache()
        else:  # PyTorch 2.10, which the native engine runs for GPUs before Turing
            debug._clear_python_sharding_prop_cache()
            debug._clear_fast_path_sharding_prop_cache()
        _loaded("torch.distributed.tensor._redistribute")._gen_transform_infos.cache_clear()


def internals() -> Iterator[Internal]:
    """Yield every name that is declared here."""
    yield from READ.values()
    for namespace in (Replaced, _Reached):
        yield from (each for each in vars(namespace).values() if isinstance(each, Internal))
    yield from CUDA_FUNCTIONS.values()


def missing(everywhere: bool = False) -> list[Internal]:
    """List the names that this PyTorch should have and does not.

    Args:
        everywhere: also in modules that PyTorch imports when they are needed.
    """
    found = (Found.ALWAYS, Found.WHEN_IMPORTED) if everywhere else (Found.ALWAYS,)
    return [
        each
        for each in internals()
        if each.found in found and is_expected(each) and not each.is_there()
    ]


def is_expected(internal: Internal) -> bool:
    """Return whether the installed PyTorch is of a version, and built so, that has the name."""
    distributed = torch.distributed.is_available() or not internal.path.startswith(_DISTRIBUTED)
    return distributed and internal.is_in(installed_version())


def complaint(not_there: Sequence[Internal], changed: Iterable[object] = ()) -> str:
    """Return which private names a PyTorch lacks, which take other arguments, and what to do."""
    lines = []
    if not_there:
        lines.append(f"vramlab uses private names that PyTorch {torch.__version__} does not have:")
    for each in not_there:
        last = version_text(each.until or NEWEST)
        lines.append(f"  {each.path}, which {each.purpose}; last seen in PyTorch {last}")
    if changes := [f"  {each}" for each in changed]:
        lines.append(f"These take other arguments in PyTorch {torch.__version__}:")
    return "\n".join(
        [
            *lines,
            *changes,
            f"Install a PyTorch that vramlab knows (pip install 'torch{KNOWN_RELEASES}'), or a "
            "newer vramlab (pip install --upgrade vramlab). If you have both, please report this.",
        ]
    )


def installed_version() -> Version:
    """Return the (major, minor) of the installed PyTorch."""
    version = parse(torch.__version__)
    assert version is not None
    return version


def _resolve(path: str) -> Any:
    """Find what a path stands for. Modules on the way are imported."""
    first, *rest = path.split(".")
    so_far, found = first, _loaded(first)
    for name in rest:
        so_far = f"{so_far}.{name}"
        found = getattr(found, name) if hasattr(found, name) else _loaded(so_far)
    return found


def _loaded(module: str) -> Any:
    return importlib.import_module(module)


def _c10d() -> Any:
    return _loaded("torch.distributed.distributed_c10d")


def __getattr__(name: str) -> Any:
    if name not in READ:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = READ[name].value()
    return value
