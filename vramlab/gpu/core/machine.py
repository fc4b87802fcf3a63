"""The machine that is pretended: its GPUs, what each thread of the program does with them.

Knows the allocators and the drivers' side of memory; knows no tensors. `dispatch.py` brings tensors
and devices together, `torch_c.py` lets torch.cuda ask about them.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from vramlab.allocator import AllocatorSettings, Block, CachingAllocator, DeviceMemory
from vramlab.catalogue import GPUModel
from vramlab.errors import OutOfDeviceMemory
from vramlab.gpu.core.handles import HandlePool
from vramlab.kernels import Launch
from vramlab.kernels.cublas import Workspace

DEFAULT_STREAM = 0

# What the current thread computes is either its own program or, inside loss.backward(), work that
# CUDA builds of PyTorch hand to the autograd engine's thread of that GPU.
AUTOGRAD_THREAD = "autograd"


class Environment(Mapping[str, str]):
    """Environment variables as PyTorch's C++ code reads them: each once, when it is first needed.

    It keeps them in static variables of the process, which a machine here stands for.
    """

    def __init__(self) -> None:
        self._read: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._read:
            self._read[name] = os.environ.get(name)
        value = self._read[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(os.environ)

    def __len__(self) -> int:
        return len(os.environ)


class VirtualDevice:
    """One GPU of the machine: a model from the catalogue, its memory, its caching allocator.

    Attributes:
        index: the CUDA device index.
        model: what the catalogue says of this GPU.
        memory: the driver's side: capacity, what is free.
        allocator: PyTorch's side: segments, blocks, counters.
        launch: what the rules in `vramlab.kernels` may ask about the GPU.
        handles: cuBLAS's handles, which cuBLASLt shares.
    """

    def __init__(
        self,
        index: int,
        model: GPUModel,
        settings: AllocatorSettings,
        torch_version: tuple[int, int],
        environment: Mapping[str, str],
    ) -> None:
        self.index = index
        self.model = model
        self.memory = DeviceMemory(model.total_bytes, ordinal=index)
        self.allocator = CachingAllocator(self.memory, settings, device=index)
        self.launch = Launch(model=model, torch_version=torch_version, environment=environment)
        self.handles = HandlePool()
        self._workspaces: dict[tuple[str, int, int], Block] = {}

    @property
    def used_bytes(self) -> int:
        """What the driver counts for this process: CUDA context plus reserved memory, in bytes."""
        return self.memory.used_by_process_bytes

    def keep_workspace(
        self, workspace: Workspace, thread: object, stream: int, context: object = None
    ) -> None:
        """Allocate a library's workspace that stays, unless it is there for `thread` and `stream`.

        It belongs to the handle that the thread computes with. A kept one that is too small is
        replaced, the new one first.
        """
        key = (workspace.pool, self.handles.reserve(thread), stream)
        kept = self._workspaces.get(key)
        if workspace.size_bytes <= (0 if kept is None else kept.requested_bytes):
            return
        self._workspaces[key] = self.allocator.malloc(workspace.size_bytes, stream, context)
        if kept is not None:
            self.allocator.free(kept)

    def free_workspaces(self) -> None:
        """Give every kept workspace back to the cache (`torch._C._cuda_clearCublasWorkspaces`)."""
        for block in self._workspaces.values():
            self.allocator.free(block)
        self._workspaces.clear()


@dataclass
class ThreadState(threading.local):
    """Where a thread stands.

    Attributes:
        device: its current device.
        streams: its current stream on each device.
        recent: the GPU that its latest op ran on; None if it ran on real meta tensors.
        wants_carrier: inside a call that itself names the device which carries the tensors of
            GPUs: "meta", or "cpu" where values are computed.
        means_gpu: inside C++ code of PyTorch's that names the device of a GPU's tensors, and so
            their carrier's.
        ops: those that are running, outermost first, while frames are gathered.
        finds_no_fault: inside a function of PyTorch's that asks a tensor whether something is
            wrong, where in a healthy run nothing is.
    """

    device: int = 0
    streams: dict[int, int] = field(default_factory=dict)
    recent: int | None = None
    wants_carrier: bool = False
    means_gpu: bool = False
    ops: list[object] = field(default_factory=list)
    finds_no_fault: bool = False

    @contextmanager
    def asking_for_carrier(self) -> Iterator[None]:
        """Note that the program itself names the carrier's device in what follows."""
        before, self.wants_carrier = self.wants_carrier, True
        try:
            yield
        finally:
            self.wants_carrier = before

    @contextmanager
    def finding_no_fault(self) -> Iterator[None]:
        """Let what follows hear that nothing is wrong."""
        before, self.finds_no_fault = self.finds_no_fault, True
        try:
            yield
        finally:
            self.finds_no_fault = before

    @contextmanager
    def running(self, op: object) -> Iterator[None]:
        """Note that an op runs, for the frames of what it allocates."""
        self.ops.append(op)
        try:
            yield
        finally:
            self.ops.pop()

    @contextmanager
    def working_on(self, gpu: int) -> Iterator[None]:
        """Note that C++ code means this GPU where it names the carrier's device."""
        before, self.means_gpu, self.recent = self.means_gpu, True, gpu
        try:
            yield
        finally:
            self.means_gpu = before


class Machine:
    """All virtual GPUs of one `VirtualGPU`, with the current device and stream of every thread.

    Attributes:
        torch_version: (major, minor) of the PyTorch whose rules are meant.
        devices: the GPUs, by index.
        thread: where the calling thread stands.
        when_used: called when a GPU is used for the first time.
        frames_of_caller: gathers the frames of an allocation, while a history is kept; from the
            ops that are running and, where a kernel takes it for itself, the rule's name for it.
        out_of_memory_observers: called before an error is raised, with the device, the bytes
            asked of the driver, the bytes that may be used in all, and those that are free.
    """

    def __init__(
        self,
        models: Sequence[GPUModel],
        settings: AllocatorSettings,
        torch_version: tuple[int, int],
    ) -> None:
        self.torch_version = torch_version
        environment = Environment()
        self.devices = tuple(
            VirtualDevice(index, model, settings, torch_version, environment)
            for index, model in enumerate(models)
        )
        self.when_used: Callable[[], None] | None = None
        self.frames_of_caller: Callable[[Sequence[object], str], object] | None = None
        self.out_of_memory_observers: list[Callable[[int, int, int, int], object]] = []
        self.thread = ThreadState()
        self._stream_ids = itertools.count(1)

    def current_device(self) -> int:
        """Index of the calling thread's current device."""
        return self.thread.device

    def set_device(self, index: int) -> int:
        """Make `index` the calling thread's device; answer the one before. Negative: no change."""
        before = self.thread.device
        if index >= 0:
            self.device(index)
            self.thread.device = index
        return before

    def device(self, index: int) -> VirtualDevice:
        """The GPU with this index; torch's own error where there is none."""
        if not 0 <= index < len(self.devices):
            raise RuntimeError(
                "CUDA error: invalid device ordinal\n"
                f"cuda:{index} was asked for; this machine has {len(self.devices)} GPU(s), "
                f"cuda:0 to cuda:{len(self.devices) - 1}"
            )
        return self.devices[index]

    def new_stream(self) -> int:
        """A fresh stream id. 0 is every device's default stream."""
        return next(self._stream_ids)

    def current_stream(self, device: int) -> int:
        """The calling thread's current stream on `device`."""
        return self.thread.streams.get(device, DEFAULT_STREAM)

    def set_stream(self, device: int, stream: int) -> None:
        """Make `stream` the calling thread's current stream on `device`."""
        self.thread.streams[device] = stream

    def use(self, index: int) -> VirtualDevice:
        """The GPU with this index, with a CUDA context: the first use of a GPU creates one."""
        gpu = self.device(index)
        if gpu.memory.context_bytes == 0:
            gpu.memory.context_bytes = gpu.model.context_bytes
            if self.when_used is not None:
                self.when_used()
        return gpu

    def thread_ends(self) -> None:
        """Take back what the libraries have lent to the calling thread."""
        for device in self.devices:
            device.handles.release(threading.get_ident())

    def allocation_context(self, taking: str = "") -> object:
        """The frames that led to an allocation, while somebody keeps a history; else None."""
        if self.frames_of_caller is None:
            return None
        return self.frames_of_caller(self.thread.ops, taking)

    def malloc(self, device: int, size_bytes: int, taking: str = "") -> Block:
        """Allocate on a device for the calling thread's current stream there.

        Args:
            device: its index.
            size_bytes: more than 0.
            taking: what a kernel takes for itself, as its rule calls it.
        """
        gpu = self.use(device)
        try:
            return gpu.allocator.malloc(
                size_bytes, self.current_stream(device), self.allocation_context(taking)
            )
        except OutOfDeviceMemory as error:
            limit_bytes = int(gpu.memory.total_bytes * gpu.allocator.memory_fraction)
            for observer in self.out_of_memory_observers:
                observer(device, error.segment_bytes, limit_bytes, gpu.memory.free_bytes)
            raise

    def free(self, device: int, block: Block) -> None:
        """Give a block back to the cache of its device."""
        self.devices[device].allocator.free(block)
