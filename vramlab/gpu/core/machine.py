"""The machine that is pretended: its GPUs, what each thread of the program does with them.

Knows the allocators and the drivers' side of memory; knows no tensors. `dispatcher.py` brings
tensors and devices together, `stand_ins/torch_c.py` lets torch.cuda ask about them.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vramlab.allocator import (
    AllocatorSettings,
    Block,
    CachingAllocator,
    DeviceMemory,
    precedence_of,
)
from vramlab.catalogue import GPUModel
from vramlab.cudnn.plans import BenchmarkSettings, Plans
from vramlab.cudnn.workspaces import Workspaces
from vramlab.errors import OutOfDeviceMemory
from vramlab.gpu.core.captures import Capture, Captures
from vramlab.gpu.core.handles import HandlePool
from vramlab.gpu.core.identities import device_uuid, visible_count
from vramlab.gpu.core.observers import Observer, RunningOps
from vramlab.kernels import KernelContext
from vramlab.kernels.rule_table.cublas import Workspace

if TYPE_CHECKING:
    from torch import Generator

DEFAULT_STREAM = 0

_VISIBLE = "CUDA_VISIBLE_DEVICES"

FramesOfCaller = Callable[[Sequence[object], str], object]

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
        cudnn: what cuDNN takes for convolutions, and who said so.
        plans: which of cuDNN's plans threads have chosen.
        kernel_context: what the rules in `vramlab.kernels` may ask about the GPU.
        handles: cuBLAS's handles, which cuBLASLt shares.
        generator: `torch.cuda.default_generators` has it; None until the GPU is attached.
    """

    def __init__(
        self,
        index: int,
        model: GPUModel,
        settings: AllocatorSettings,
        torch_version: tuple[int, int],
        environment: Mapping[str, str],
        benchmarks: BenchmarkSettings,
        is_capturing: Callable[[], bool],
    ) -> None:
        self.index = index
        self.model = model
        self.memory = DeviceMemory(model.total_bytes, ordinal=index)
        self.allocator = CachingAllocator(
            self.memory,
            settings,
            device=index,
            precedence=precedence_of(torch_version),
            pools_count_as_captures=torch_version < (2, 13),
        )
        self.cudnn = Workspaces(model, torch_version)
        self.plans = Plans(benchmarks, environment)
        self.kernel_context = KernelContext(
            model=model,
            torch_version=torch_version,
            environment=environment,
            is_capturing=is_capturing,
        )
        self.handles = HandlePool()
        self.generator: Generator | None = None
        self._workspaces: dict[tuple[str, int, int], Block] = {}

    @property
    def used_bytes(self) -> int:
        """What the driver counts for this process: CUDA context plus reserved memory, in bytes."""
        return self.memory.used_by_process_bytes

    def lacks_workspace(self, workspace: Workspace, thread: object, stream: int) -> bool:
        """Return whether the handle of `thread` keeps none as large as this one for `stream`."""
        kept = self._workspaces.get((workspace.pool, self.handles.reserve(thread), stream))
        return workspace.size_bytes > (0 if kept is None else kept.requested_bytes)

    def keep_workspace(
        self, workspace: Workspace, thread: object, stream: int, context: object = None
    ) -> None:
        """Allocate a library's workspace that the handle of `thread` keeps for `stream`.

        One that it keeps already, and that is too small, is given back after that.
        """
        key = (workspace.pool, self.handles.reserve(thread), stream)
        kept = self._workspaces.get(key)
        self._workspaces[key] = self.allocator.malloc(workspace.size_bytes, stream, context)
        if kept is not None:
            self.allocator.free(kept)

    def free_workspaces(self, stream: int | None = None) -> None:
        """Free every kept workspace (`torch._C._cuda_clearCublasWorkspaces`).

        Args:
            stream: only those for this stream.
        """
        for key in [key for key in self._workspaces if stream in (None, key[2])]:
            self.allocator.free(self._workspaces.pop(key))


@dataclass
class ThreadState(threading.local):
    """Where a thread stands.

    Attributes:
        device: its current device.
        streams: its current stream on each device.
        recent: the GPU that its latest op ran on, or that its function of torch works on; None if
            that is about real meta tensors.
        user_named_backing_device: inside a call that itself names the device that stands behind
            GPUs: "meta", or "cpu" where values are computed.
        cpp_means_gpu: inside C++ code of PyTorch's that names the device of a GPU's tensors, and so
            the backing device.
        has_operands_on_gpu: inside a function of torch that was given tensors of a GPU.
        answer_healthy: inside a function of PyTorch's that asks a tensor whether something is
            wrong, where in a healthy run nothing is.
    """

    device: int = 0
    streams: dict[int, int] = field(default_factory=dict)
    recent: int | None = None
    user_named_backing_device: bool = False
    cpp_means_gpu: bool = False
    has_operands_on_gpu: bool = False
    answer_healthy: bool = False

    def naming_backing_device(self) -> AbstractContextManager[None]:
        """Note that the program itself names the backing device in what follows."""
        return self._while_true("user_named_backing_device")

    def answering_healthy(self) -> AbstractContextManager[None]:
        """Let what follows hear that nothing is wrong."""
        return self._while_true("answer_healthy")

    def having_operands_on_gpu(self) -> AbstractContextManager[None]:
        """Note that a function of torch that follows was given tensors of the recent GPU."""
        return self._while_true("has_operands_on_gpu")

    def working_on(self, gpu: int) -> AbstractContextManager[None]:
        """Note that C++ code means this GPU where it names the backing device."""
        self.recent = gpu
        return self._while_true("cpp_means_gpu")

    @contextmanager
    def _while_true(self, name: str) -> Iterator[None]:
        before = getattr(self, name)
        setattr(self, name, True)
        try:
            yield
        finally:
            setattr(self, name, before)


class Machine:
    """All virtual GPUs of one `VirtualGPU`, with the current device and stream of every thread.

    Attributes:
        torch_version: (major, minor) of the PyTorch whose rules are meant.
        devices: the GPUs, by index.
        benchmarks: how `torch.backends.cudnn.benchmark` works.
        thread: where the calling thread stands.
        when_used: called when a GPU is used for the first time.
        hidden_real_gpus: CUDA_VISIBLE_DEVICES when the GPUs were made.
        is_in_bad_fork: whether this process was forked from one that had used a GPU.
        observers: objects that are notified of ops and kernels.
        out_of_memory_observers: called before an error is raised, with the device, the bytes
            asked of the driver, the bytes that may be used in all, and those that are free.
        caveats: what to know of the answers, as sentences; each once.
        skipped_kernels: kernels of the program's own that were launched and did nothing, by name.
        captures: the streams that are captured into CUDA graphs.
    """

    def __init__(
        self,
        models: Sequence[GPUModel],
        settings: AllocatorSettings,
        torch_version: tuple[int, int],
    ) -> None:
        self.torch_version = torch_version
        environment = Environment()
        self.benchmarks = BenchmarkSettings()
        self.devices = tuple(
            VirtualDevice(
                index,
                model,
                settings,
                torch_version,
                environment,
                self.benchmarks,
                functools.partial(self._is_capturing, index),
            )
            for index, model in enumerate(models)
        )
        self.caveats: dict[str, None] = {}
        self.skipped_kernels: Counter[str] = Counter()
        self.when_used: Callable[[], None] | None = None
        self.is_in_bad_fork = False
        self.hidden_real_gpus = os.environ.get(_VISIBLE)
        self._count: int | None = None
        self.observers: tuple[Observer, ...] = ()
        self._frames_of_caller: FramesOfCaller | None = None
        self._running = RunningOps()
        self.out_of_memory_observers: list[Callable[[int, int, int, int], object]] = []
        self.thread = ThreadState()
        self._stream_ids = itertools.count(1)
        self.captures = Captures()

    def current_device(self) -> int:
        """Return the index of the calling thread's current device."""
        return self.thread.device

    def set_device(self, index: int) -> int:
        """Make `index` the calling thread's device; answer the one before. Negative: no change."""
        before = self.thread.device
        if index >= 0:
            self.device(index)
            self.thread.device = index
        return before

    def count(self) -> int:
        """Return how many GPUs the program sees, by a CUDA_VISIBLE_DEVICES that it has set itself.

        As on a GPU, the variable is read until a GPU is used. What it was before the GPUs were
        attached is about real ones.
        """
        if self._count is not None:
            return self._count
        text = os.environ.get(_VISIBLE)
        if text is None or text == self.hidden_real_gpus:
            return len(self.devices)
        return visible_count(
            text, [str(device_uuid(device.model, device.index)) for device in self.devices]
        )

    def is_like(self, other: Machine | None) -> bool:
        """Return whether another machine has the same GPUs, so that its tensors may be used here.

        A program that attaches the same GPU again keeps using the tensors it has.
        """
        return other is not None and (
            [device.model for device in other.devices] == [device.model for device in self.devices]
        )

    def device(self, index: int) -> VirtualDevice:
        """Return the GPU with this index; raise torch's own error if there is none."""
        count = self.count()
        if not count:
            raise RuntimeError("No CUDA GPUs are available")
        if not 0 <= index < count:
            raise RuntimeError(
                "CUDA error: invalid device ordinal\n"
                f"cuda:{index} was asked for; this machine has {count} GPU(s), "
                f"cuda:0 to cuda:{count - 1}"
            )
        return self.devices[index]

    def new_stream(self) -> int:
        """Make a stream id. 0 is every device's default stream."""
        return next(self._stream_ids)

    def current_stream(self, device: int) -> int:
        """Return the calling thread's current stream on `device`."""
        return self.thread.streams.get(device, DEFAULT_STREAM)

    def set_stream(self, device: int, stream: int) -> None:
        """Make `stream` the calling thread's current stream on `device`."""
        self.thread.streams[device] = stream

    def capture_on(self, device: int) -> Capture | None:
        """Find the capture of the calling thread's current stream on `device`."""
        return self.captures.of(self.current_stream(device)) if self.captures else None

    def _is_capturing(self, device: int) -> bool:
        return self.capture_on(device) is not None

    def use(self, index: int) -> VirtualDevice:
        """Return the GPU with this index; the first use of a GPU creates its CUDA context."""
        gpu = self.device(index)
        if gpu.memory.context_bytes == 0:
            self._count = self.count()
            gpu.memory.context_bytes = gpu.model.context_bytes
            if self.when_used is not None:
                self.when_used()
        return gpu

    @property
    def is_used(self) -> bool:
        """Whether one of the GPUs has a CUDA context."""
        return any(gpu.memory.context_bytes for gpu in self.devices)

    def forbid_after_fork(self) -> None:
        """Refuse the GPUs from now on, in PyTorch's words, if they were used before the fork."""
        if self.is_used:
            self.is_in_bad_fork = True
            self.use = _refuse_after_fork  # type: ignore[method-assign]

    def thread_ends(self) -> None:
        """Take back what the libraries have lent to the calling thread."""
        for device in self.devices:
            device.handles.release(threading.get_ident())
            device.plans.forget(threading.get_ident())

    def add_observer(self, observer: Observer) -> None:
        """Tell an observer of the ops that begin from now on, in all threads."""
        self.observers = (*self.observers, observer)

    def remove_observer(self, observer: Observer) -> None:
        """Tell an observer no more, once the ops that are running have ended."""
        self.observers = tuple(each for each in self.observers if each is not observer)

    @contextmanager
    def observing(self, observer: Observer) -> Iterator[None]:
        """Tell an observer of the ops that begin inside of the with statement, in all threads."""
        self.add_observer(observer)
        try:
            yield
        finally:
            self.remove_observer(observer)

    def kernel_takes(
        self, device: int, size_bytes: int, what: str, *, is_kept: bool = False
    ) -> None:
        """Tell the observers of what a kernel is about to allocate for itself."""
        for observer in self.observers:
            observer.kernel_takes(device, size_bytes, what, is_kept=is_kept)

    def gather_frames(self, of_caller: FramesOfCaller | None) -> None:
        """Gather the frames of each allocation from now on, or with None no more.

        Args:
            of_caller: called with the ops that are running, outermost first, and the rule's name
                for what a kernel takes for itself, or "".
        """
        self.remove_observer(self._running)
        if of_caller is not None:
            self.add_observer(self._running)
        self._frames_of_caller = of_caller

    def allocation_context(self, taking: str = "") -> object:
        """Return the frames that led to an allocation, if a memory history is recorded."""
        if self._frames_of_caller is None:
            return None
        return self._frames_of_caller(self._running.ops, taking)

    def malloc(
        self, device: int, size_bytes: int, taking: str = "", *, stream: int | None = None
    ) -> Block:
        """Allocate on a device.

        Args:
            device: its index.
            size_bytes: more than 0.
            taking: what a kernel takes for itself, as its rule calls it.
            stream: for which stream; None: for the calling thread's current one there.
        """
        if stream is None:
            stream = self.current_stream(device)
        gpu = self.use(device)
        try:
            return gpu.allocator.malloc(size_bytes, stream, self.allocation_context(taking))
        except OutOfDeviceMemory as error:
            limit_bytes = int(gpu.memory.total_bytes * gpu.allocator.memory_fraction)
            for observer in self.out_of_memory_observers:
                observer(device, error.segment_bytes, limit_bytes, gpu.memory.free_bytes)
            raise

    def empty_cache(self) -> None:
        """Return unused segments of every GPU to the driver, as torch.cuda.empty_cache does."""
        for device in self.devices:
            device.allocator.empty_cache()

    def free(self, device: int, block: Block) -> None:
        """Give a block back to the cache of its device."""
        self.devices[device].allocator.free(block)


def _refuse_after_fork(index: int) -> VirtualDevice:
    """Raise what `torch.cuda._lazy_init` raises. Source: torch/cuda/__init__.py, PyTorch 2.13."""
    raise RuntimeError(
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' start method"
    )
