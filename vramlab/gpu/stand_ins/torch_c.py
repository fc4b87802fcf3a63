"""Stand-ins for the C layer under torch.cuda.

`torch.cuda.memory_summary()`, `memory_stats()`, `_snapshot()`, `device_count()` and the rest are
Python code in torch that asks a handful of C functions, attributes of `torch._C`. Here are those
functions over the machine's counters, so that torch's own code does all the formatting.

Source of names and argument orders: torch/csrc/cuda/Module.cpp and torch/cuda/*.py, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.accelerator
import torch.backends.cudnn.rnn
import torch.cuda
from torch.backends import ContextProp

from vramlab.allocator import snapshot
from vramlab.allocator.history import History
from vramlab.allocator.statistics import DEFAULT_POOL_ID
from vramlab.cudnn.workspaces import VERSIONS
from vramlab.errors import OutOfDeviceMemory, UnsupportedOnVirtualGPU
from vramlab.gpu.core.identities import device_uuid
from vramlab.gpu.core.machine import Machine, VirtualDevice
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session
from vramlab.gpu.core.stack_frames import AllFrames, Frames, Lines
from vramlab.gpu.stand_ins.graphs import pool_functions
from vramlab.gpu.stand_ins.libraries.nvml_library import pci_bus
from vramlab.gpu.stand_ins.streams import (
    current_stream_data,
    default_stream_data,
    stream_and_event_types,
)
from vramlab.gpu.torch_internals import (
    CUDA_FUNCTIONS,
    CUDA_PREFIX,
    Replaced,
    installed_version,
    names_in_cuda_build,
    undeclared,
)

_SAFE_WITHOUT_GPU = ("cudnn", "getCompiledVersion")
"""What these say needs no GPU: settings that C++ keeps, and what PyTorch was built with."""

RNN_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}
"""cudnnRNNMode_t."""

CUDA_VERSION = "13.0"
"""What `torch.version.cuda` says while a virtual GPU is attached."""


def _fact(name: str) -> property:
    """Read a figure of the catalogue when a program asks for it, so that it is known which."""
    return property(lambda properties: getattr(properties._model, name))


class CudaDeviceProperties:
    """What `torch.cuda.get_device_properties` answers; the fields of torch's own object."""

    def __init__(self, device: VirtualDevice) -> None:
        self._index = device.index
        self._model = device.model

    name = _fact("product_name")
    major = property(lambda self: self._model.compute_capability[0])
    minor = property(lambda self: self._model.compute_capability[1])
    total_memory = _fact("total_bytes")
    multi_processor_count = _fact("multiprocessors")
    is_integrated = 0
    is_multi_gpu_board = 0
    max_threads_per_multi_processor = _fact("max_threads_per_multiprocessor")
    max_threads_per_block = _fact("max_threads_per_block")
    warp_size = _fact("warp_size")
    regs_per_multiprocessor = _fact("registers_per_multiprocessor")
    shared_memory_per_block = _fact("shared_memory_per_block_bytes")
    shared_memory_per_block_optin = _fact("shared_memory_per_block_optin_bytes")
    shared_memory_per_multiprocessor = _fact("shared_memory_per_multiprocessor_bytes")
    L2_cache_size = _fact("l2_cache_bytes")
    clock_rate = _fact("clock_rate_khz")
    memory_clock_rate = _fact("memory_clock_rate_khz")
    memory_bus_width = _fact("memory_bus_width_bits")
    pci_bus_id = property(lambda self: pci_bus(self._index))
    pci_device_id = 0
    pci_domain_id = 0
    uuid = property(lambda self: device_uuid(self._model, self._index))
    gcnArchName = _fact("product_name")  # noqa: N815  # torch's name

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


class NoStandIn(UnsupportedOnVirtualGPU, AttributeError):
    """A C function without a stand-in. Also an AttributeError, for code that asks by hasattr()."""


def _missing(name: str) -> Any:
    """Refuse a missing attribute of `torch._C`."""
    if name.startswith(CUDA_PREFIX):
        raise NoStandIn(
            f"torch._C.{name} is not modelled by the virtual GPU, nor what torch.cuda builds on it"
        )
    raise AttributeError(f"module 'torch._C' has no attribute '{name}'")


def is_safe_without_gpu(name: str) -> bool:
    """Return whether PyTorch's own C function can be left where it is."""
    return any(word in name for word in _SAFE_WITHOUT_GPU)


class _Refused(type):
    """A class, as programs name it in annotations, that refuses to make objects and to be asked."""

    why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOnVirtualGPU(cls.why)

    def __getattr__(cls, name: str) -> Any:
        raise NoStandIn(cls.why)


_REFUSED = {
    "GreenContext": "green contexts are not modelled by the virtual GPU: use the whole GPU",
}


def _refused_storage(typed: type) -> type:
    """Make a typed storage's class that cannot be made objects of, and else is that class."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedOnVirtualGPU(
            f"torch.cuda.{typed.__name__} is not modelled by the virtual GPU: typed storages are "
            "deprecated. Make a tensor, torch.empty(size, dtype=..., device='cuda')"
        )

    return type(typed)(typed.__name__, (typed,), {"__new__": refuse, "__module__": "torch.cuda"})


class _CudaError(int):
    """An error of CUDA's runtime, by its number."""

    success = 0


class _NoMarkers:
    """Replace NVTX, whose marks are not read."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: 0


def install(session: Session) -> None:
    """Put the C functions of torch.cuda where torch looks for them."""
    CLayer(session.machine, session.has_values).install(session.patches)


class CLayer:
    """The C functions of torch.cuda over one machine."""

    def __init__(self, machine: Machine, has_values: bool = False) -> None:
        self._machine = machine
        self._has_values = has_values
        self._raw_blocks: dict[int, tuple[int, Any]] = {}

    def install(self, patches: Patches) -> None:
        """Put the stand-ins where torch looks for them."""
        functions = self.functions()
        # A PyTorch with CUDA has them all; those without a stand-in could start the real CUDA.
        for name in names_in_cuda_build():
            if name not in functions and not is_safe_without_gpu(name):
                patches.remove(*undeclared(name).at)
        for name, function in functions.items():
            patches.set(*CUDA_FUNCTIONS[name].at, function)
        patches.set(*Replaced.C_GETATTR.at, _missing)
        stream, event = stream_and_event_types(self._machine)
        for module in (torch, torch.cuda, torch.cuda.streams):
            patches.set(module, "Stream", stream)
            patches.set(module, "Event", event)
        patches.set(torch.cuda, "ExternalStream", stream.ExternalStream)  # type: ignore[attr-defined]
        patches.set(*Replaced.EXCHANGE_DEVICE.at, self._machine.set_device)
        patches.set(*Replaced.MAYBE_EXCHANGE_DEVICE.at, self._machine.set_device)
        patches.set(*Replaced.CUDART.at, self._cudart())
        in_use = any(device.memory.context_bytes for device in self._machine.devices)
        patches.set(*Replaced.INITIALIZED.at, in_use)
        patches.set(*Replaced.QUEUED_CALLS.at, [])
        patches.set(*Replaced.CACHED_DEVICE_COUNT.at, None)
        patches.set(torch.cuda, "device_count", self._machine.count)
        patches.set(*Replaced.IS_IN_BAD_FORK.at, lambda: False)
        patches.set(*Replaced.GET_DEVICE_PROPERTIES.at, self._device_properties)
        # Recurrent layers ask, and move their weights into one buffer (`cudnn_rnn.py`).
        patches.set(torch.backends.cudnn, "is_acceptable", self._is_acceptable)
        patches.set(*Replaced.HAS_CUDNN.at, True)
        patches.set(torch.backends.cudnn, "version", self._cudnn_version)
        limit = ContextProp(
            lambda: self._machine.benchmarks.limit,
            partial(setattr, self._machine.benchmarks, "limit"),
        )
        patches.set(type(torch.backends.cudnn), "benchmark_limit", limit)
        patches.set(*Replaced.USE_FLATTENED_WEIGHTS.at, lambda: True)
        patches.set(torch.backends.cudnn.rnn, "get_cudnn_mode", RNN_MODES.__getitem__)
        patches.set(*Replaced.NVTX.at, _NoMarkers())
        for name in (name for name in torch.cuda.__all__ if name.endswith("Storage")):
            patches.set(torch.cuda, name, _refused_storage(getattr(torch.cuda, name)))
        for module in (torch.cuda, torch.cuda.green_contexts):
            for name in _REFUSED.keys() & vars(module).keys():
                refused = {"why": _REFUSED[name], "__module__": "torch.cuda"}
                patches.set(module, name, _Refused(name, (), refused))
        patches.set(*Replaced.HAS_CUDA.at, True)
        patches.set(torch.version, "cuda", CUDA_VERSION)
        self._machine.when_used = torch.cuda.init

    def _cudnn_version(self) -> int:
        """Return the version of the cuDNN that this PyTorch comes with."""
        known = [one for one in VERSIONS if one <= self._machine.torch_version]
        return VERSIONS[max(known, default=min(VERSIONS))]

    def _is_acceptable(self, tensor: torch.Tensor) -> bool:
        """Return whether cuDNN takes such tensors; not if the CPU computes values."""
        cudnn = torch.backends.cudnn
        known = cudnn.enabled and tensor.dtype in cudnn.CUDNN_TENSOR_DTYPES
        return known and tensor.is_cuda and not self._has_values

    def functions(self) -> dict[str, Callable[..., Any]]:
        machine = self._machine
        allocator = lambda device: machine.device(device).allocator  # noqa: E731
        return {
            "_cuda_init": lambda: None,
            "_cuda_getDeviceCount": machine.count,
            "_cuda_getDevice": machine.current_device,
            "_cuda_setDevice": self._set_device,
            "_cuda_exchangeDevice": machine.set_device,
            "_cuda_maybeExchangeDevice": machine.set_device,
            "_cuda_hasPrimaryContext": (
                lambda device: machine.device(device).memory.context_bytes > 0
            ),
            "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer,
            "_cuda_getArchFlags": self._arch_flags,
            "_cuda_isInBadFork": lambda: machine.is_in_bad_fork,
            "_cuda_ipc_collect": lambda: None,
            "_cuda_sleep": lambda cycles: None,
            "_cuda_get_sync_debug_mode": lambda: 0,
            "_cuda_set_sync_debug_mode": lambda mode: None,
            "_cuda_synchronize": self._synchronize,
            "_cuda_getCurrentStream": lambda device: current_stream_data(machine, device),
            "_cuda_getDefaultStream": default_stream_data,
            "_cuda_setStream": self._set_stream,
            "_cuda_getCurrentRawStream": machine.current_stream,
            # memory
            "_cuda_memoryStats": self._memory_stats,
            "_cuda_resetPeakMemoryStats": lambda device: allocator(device).reset_peak_stats(),
            "_cuda_resetAccumulatedMemoryStats": (
                lambda device: allocator(device).reset_accumulated_stats()
            ),
            "_cuda_emptyCache": machine.empty_cache,
            "_cuda_setMemoryFraction": self._set_memory_fraction,
            "_cuda_getMemoryFraction": lambda device: allocator(device).memory_fraction,
            "_cuda_getAllocatorBackend": lambda: "native",
            "_cuda_cudaCachingAllocator_raw_alloc": self._raw_alloc,
            "_cuda_cudaCachingAllocator_raw_delete": self._raw_delete,
            "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
            "_cuda_cudaCachingAllocator_enable": self._cannot_disable_caching,
            "_cuda_memorySnapshot": self._snapshot,
            "_cuda_record_memory_history": self._record_memory_history,
            "_cuda_setMemoryMetadata": self._set_memory_metadata,
            "_cuda_getMemoryMetadata": lambda: self._history().user_metadata,
            "_cuda_memoryMetadataSupported": lambda: True,
            "_cuda_annotateMemory": self._annotate_memory,
            "_cuda_clearCublasWorkspaces": self._clear_cublas_workspaces,
            "_cuda_get_cudnn_benchmark_limit": lambda: machine.benchmarks.limit,
            "_cuda_set_cudnn_benchmark_limit": partial(setattr, machine.benchmarks, "limit"),
            "_cuda_get_conv_benchmark_empty_cache": lambda: machine.benchmarks.empties_cache,
            "_cudnn_set_conv_benchmark_empty_cache": (
                partial(setattr, machine.benchmarks, "empties_cache")
            ),
            "_cuda_attach_out_of_memory_observer": machine.out_of_memory_observers.append,
            # the device-neutral names of the same things
            "_get_accelerator": lambda check=None: torch.device("cuda"),
            "_accelerator_getAccelerator": lambda: torch.device("cuda"),
            "_accelerator_getDeviceIndex": machine.current_device,
            "_accelerator_setDeviceIndex": machine.set_device,
            "_accelerator_exchangeDevice": machine.set_device,
            "_accelerator_maybeExchangeDevice": machine.set_device,
            "_accelerator_getStream": lambda device: torch.cuda.current_stream(device),
            "_accelerator_setStream": lambda stream: torch.cuda.set_stream(stream),
            "_accelerator_synchronizeDevice": lambda device: self._synchronize(),
            "_accelerator_isAllocatorInitialized": lambda: True,
            "_accelerator_emptyCache": machine.empty_cache,
            "_accelerator_emptyHostCache": lambda: None,
            "_host_emptyCache": lambda: None,
            **pool_functions(machine),
            "_accelerator_getDeviceStats": self._memory_stats,
            "_accelerator_resetPeakStats": lambda device: allocator(device).reset_peak_stats(),
            "_accelerator_resetAccumulatedStats": (
                lambda device: allocator(device).reset_accumulated_stats()
            ),
            "_accelerator_getMemoryInfo": self._mem_get_info,
            "_accelerator_getAllocatorSettings": lambda: allocator(0).settings.text,
            "_accelerator_setAllocatorSettings": self._set_allocator_settings,
        }

    def _cudart(self) -> SimpleNamespace:
        return SimpleNamespace(
            cudaMemGetInfo=self._mem_get_info,
            cudaError=_CudaError,
            cudaGetErrorString=str,
            cudaProfilerStart=lambda: 0,
            cudaProfilerStop=lambda: 0,
            cudaHostRegister=lambda address, size, flags: 0,
            cudaHostUnregister=lambda address: 0,
        )

    def _device_properties(self, index: int) -> CudaDeviceProperties:
        return CudaDeviceProperties(self._machine.device(index))

    def _arch_flags(self) -> str:
        capabilities = {device.model.compute_capability for device in self._machine.devices}
        return " ".join(f"sm_{major}{minor}" for major, minor in sorted(capabilities))

    def _synchronize(self) -> None:
        """Wait for the GPU. The allocator's books stay as they are, as in PyTorch."""
        index = self._machine.current_device()
        self._machine.use(index)
        self._machine.captures.wait_for_device(index)

    def _memory_stats(self, device: int) -> dict[str, Any]:
        """Return the allocator's statistics; of private pools since PyTorch 2.13.

        Older Python code, which is the installed PyTorch's, cannot read their keys.
        """
        stats = self._machine.device(device).allocator.stats()
        if min(self._machine.torch_version, installed_version()) < (2, 13):
            del stats["reserved_bytes_by_private_pools"]
        return stats

    def _set_device(self, device: int) -> None:
        """Choose a device. CUDA is initialized from then on, as by `THCPModule_setDevice_wrap`."""
        torch.cuda.init()
        self._machine.set_device(device)

    def _set_stream(self, *, stream_id: int, device_index: int, device_type: int) -> None:
        self._machine.set_device(device_index)
        self._machine.set_stream(device_index, stream_id)

    def _mem_get_info(self, index: int) -> tuple[int, int]:
        device = self._machine.use(index)
        return device.memory.free_bytes, device.model.total_bytes

    def _set_memory_fraction(self, fraction: float, index: int) -> None:
        self._machine.device(index).allocator.memory_fraction = fraction

    def _set_allocator_settings(self, text: str) -> None:
        """Change the settings of all GPUs while the program runs.

        Raises:
            AllocatorConfigError: PyTorch would refuse them.
        """
        for device in self._machine.devices:
            device.allocator.settings = device.allocator.settings.updated(text)

    def _raw_alloc(self, size_bytes: int, stream: int = 0) -> int:
        """Allocate, and answer the address: the null pointer of 0 bytes, as C++'s `raw_alloc`."""
        if size_bytes == 0:
            return 0
        index = self._machine.current_device()
        try:
            block = self._machine.malloc(index, size_bytes)
        except OutOfDeviceMemory as error:
            raise torch.OutOfMemoryError(str(error)) from error
        self._raw_blocks[block.address] = (index, block)
        return int(block.address)

    def _raw_delete(self, address: int) -> None:
        if address == 0:
            return
        try:
            index, block = self._raw_blocks.pop(address)
        except KeyError:
            raise RuntimeError(f"invalid device pointer: {address:#x}") from None
        self._machine.free(index, block)

    def _cannot_disable_caching(self, enable: bool) -> None:
        if not enable:
            raise UnsupportedOnVirtualGPU(
                "the caching allocator of a virtual GPU cannot be switched off; "
                "torch.cuda.empty_cache() returns what is unused"
            )

    def _clear_cublas_workspaces(self) -> None:
        for device in self._machine.devices:
            device.free_workspaces()

    def _record_memory_history(
        self,
        enabled: str | None,
        context: str | None,
        stacks: str,
        max_entries: int,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: list[str] | None = None,
        record_pinned_host_memory: bool = False,
        record_cuda: bool = True,
    ) -> None:
        """Start or stop the history, as `torch.cuda.memory._record_memory_history` asks.

        Pinned memory is the host's, and is not recorded.
        """
        if not record_cuda:
            enabled = None
        kind = AllFrames if stacks == "all" else Frames
        self._machine.gather_frames(kind.of_caller if enabled and context else None)
        for device in self._machine.devices:
            device.allocator.record_history(
                enabled, context, max_entries, clear_history, skip_actions or ()
            )

    def _set_memory_metadata(self, metadata: str) -> None:
        """Put a text on the current GPU's allocations to come."""
        self._history().user_metadata = metadata

    def _annotate_memory(self, address: int, metadata: str) -> None:
        """Record a text about the allocation that begins at an address, on whichever GPU."""
        context = self._machine.allocation_context()
        for device in self._machine.devices:
            device.allocator.annotate(address, metadata, context)

    def _history(self) -> History:
        return self._machine.devices[self._machine.current_device()].allocator.history

    def _snapshot(self, mempool_id: tuple[Any, ...] | None = None) -> dict[str, Any]:
        """Make what `torch.cuda.memory._snapshot()` and `memory_snapshot()` return."""
        first, second, *others = mempool_id or DEFAULT_POOL_ID
        include_traces = bool(others[0]) if others else True
        allocators = [device.allocator for device in self._machine.devices]
        lines = Lines()
        # What allocates is what frees and stays: its frames are reported once, as in PyTorch.
        to_frames = cache(lambda context: context.told_by(lines))
        taken = snapshot(allocators, include_traces, to_frames, (first, second))
        if self._machine.torch_version >= (2, 14):  # of pinned memory, which is not recorded
            taken |= {"host_segments": [], "host_traces": []}
        return taken
