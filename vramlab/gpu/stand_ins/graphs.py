"""`torch.cuda.CUDAGraph` and `torch.cuda.MemPool` of a virtual GPU.

PyTorch's own Python classes stay; the C++ classes below them are replaced. A graph has no kernels:
what is captured allocates, in the graph's private pool, and a replay does nothing.

Source: aten/src/ATen/cuda/CUDAGraph.cpp, CUDAGeneratorImpl.cpp and MemPool.cpp, and
torch/csrc/cuda/Graph.cpp, Module.cpp and MemPool.cpp; PyTorch 2.11 to 2.15. Errors have PyTorch's
words.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import CellType, FunctionType
from typing import Any

import torch
import torch.cuda

from vramlab.allocator import Block
from vramlab.allocator.private_pools import Accepts
from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.captures import Capture
from vramlab.gpu.core.machine import AUTOGRAD_THREAD, DEFAULT_STREAM, Machine
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.patching.warning_lines import warn
from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import (
    CUDA_FUNCTIONS,
    Replaced,
    current_graph_task_id,
    generator_id,
    get_device_index,
)

STATE_BYTES = 8
"""A generator's seed, and its offset, that a graph reads when it is replayed: an int64 each."""

_CAPTURE_MODES = ("global", "thread_local", "relaxed")

_EMPTY = (
    "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on "
    "wrong device or stream."
)
_LOST = (
    "info.status != cudaStreamCaptureStatusInvalidated INTERNAL ASSERT FAILED at "
    '"c10/cuda/CUDACachingAllocator.cpp", please report a bug to PyTorch. Invalid stream capture '
    "status"
)
_NO_GRAPH = (
    "No cudaGraph_t is available: either capture_end() has not been called, or the underlying "
    "cudaGraph_t was destroyed (keep_graph=false, and capture has been finalized)."
)
_NO_CONDITIONS = "conditional nodes of CUDA graphs are not modelled by the virtual GPU"
_NO_DUMPS = "a CUDA graph of a virtual GPU has no kernels, so there is nothing to dump"


def install(session: Session) -> None:
    """Put graphs and memory pools where torch looks for them."""
    machine, patches = session.machine, session.patches
    # What torch._inductor.cudagraph_trees imports, which torch.compiler resets and marks steps in.
    patches.set(*Replaced.ALLOCATOR_STATE.at, type("AllocatorState", (), {}))
    patches.set(*Replaced.CACHE_TENSORS.at, lambda enabled: None)
    handle: Callable[[], PoolId] = lambda: (0, next(machine.captures.user_pools))  # noqa: E731
    patches.set(*Replaced.GRAPH_POOL_HANDLE.at, handle)
    patches.set(*Replaced.GRAPH_POOL_HANDLE_OF_GRAPHS.at, handle)
    for internal, name in (
        (Replaced.IS_CAPTURING, "_cuda_isCurrentStreamCapturing"),
        (Replaced.BEGIN_ALLOCATE_OF_THREAD, "_cuda_beginAllocateCurrentThreadToPool"),
        (Replaced.BEGIN_ALLOCATE, "_cuda_beginAllocateToPool"),
        (Replaced.END_ALLOCATE, "_cuda_endAllocateToPool"),
        (Replaced.RELEASE_POOL, "_cuda_releasePool"),
    ):
        patches.set(*internal.at, CUDA_FUNCTIONS[name].value())
    graph = graph_type(machine, session.dispatcher.backing_device.type == "meta")
    _replace(patches, Replaced.CUDA_GRAPH.at, graph, torch.cuda.graphs, "CUDAGraph")
    _replace(patches, Replaced.MEM_POOL.at, pool_type(machine), torch.cuda.memory, "MemPool")
    # A stream that a graph keeps for all captures: of this machine.
    patches.set(torch.cuda.graph, "default_capture_stream", None)


def _replace(patches: Patches, at: tuple[Any, str], base: type, module: Any, name: str) -> None:
    """Replace a C++ class, and PyTorch's class that extends it by the same one over `base`."""
    patches.set(*at, base)
    made = rebased(getattr(module, name), base)
    patches.set(module, name, made)
    patches.set(torch.cuda, name, made)


def rebased(original: type, base: type) -> type:
    """Make the same class with another base: its methods' `super()` is then that base."""
    cell = CellType()
    namespace = {
        name: _rebound(value, cell)
        for name, value in vars(original).items()
        if name not in ("__dict__", "__weakref__")
    }
    made = type(base)(original.__name__, (base,), namespace)
    cell.cell_contents = made
    return made


def _rebound(value: Any, cell: CellType) -> Any:
    """Make a method, of any kind, whose `super()` is that of the class in `cell`."""
    if isinstance(value, staticmethod | classmethod):
        return type(value)(_rebound(value.__func__, cell))
    if isinstance(value, property):
        fget, fset, fdel = (_rebound(each, cell) for each in (value.fget, value.fset, value.fdel))
        return property(fget, fset, fdel, value.__doc__)
    if not isinstance(value, FunctionType) or "__class__" not in value.__code__.co_freevars:
        return value
    old = value.__closure__ or ()
    names = value.__code__.co_freevars
    closure = tuple(
        cell if name == "__class__" else each for name, each in zip(names, old, strict=True)
    )
    made = FunctionType(
        value.__code__, value.__globals__, value.__name__, value.__defaults__, closure
    )
    made.__kwdefaults__ = value.__kwdefaults__
    made.__doc__ = value.__doc__
    made.__qualname__ = value.__qualname__
    return made


def pool_functions(machine: Machine) -> dict[str, Callable[..., Any]]:
    """Make the C functions that send allocations to private pools."""

    def begin(device: int, pool_id: PoolId, accepts: Accepts) -> None:
        machine.use(device).allocator.begin_allocate_to_pool(_as_id(pool_id), accepts)

    def begin_all(device: int, pool_id: PoolId) -> None:
        begin(device, pool_id, lambda stream: True)

    def begin_for_stream(device: int, pool_id: PoolId) -> None:
        current = machine.current_stream(device)
        begin(device, pool_id, lambda stream: stream == current)

    def begin_for_thread(device: int, pool_id: PoolId) -> None:
        thread = _thread()
        begin(device, pool_id, lambda stream: thread == _thread())

    def end(device: int, pool_id: PoolId) -> None:
        machine.device(device).allocator.end_allocate_to_pool(_as_id(pool_id))

    def release(device: int, pool_id: PoolId) -> None:
        machine.device(device).allocator.release_pool(_as_id(pool_id))

    def is_capturing() -> bool:
        return machine.capture_on(machine.current_device()) is not None

    return {
        "_cuda_beginAllocateToPool": begin_all,
        "_cuda_beginAllocateCurrentStreamToPool": begin_for_stream,
        "_cuda_beginAllocateCurrentThreadToPool": begin_for_thread,
        "_cuda_endAllocateToPool": end,
        "_cuda_releasePool": release,
        "_cuda_isCurrentStreamCapturing": is_capturing,
    }


def _as_id(given: Sequence[int]) -> PoolId:
    """Read a pool's id: a pair, of whatever type."""
    first, second = given
    return int(first), int(second)


def _thread() -> object:
    """Return which thread allocates: on CUDA the backward pass has one of its own."""
    return threading.get_ident() if current_graph_task_id() == -1 else AUTOGRAD_THREAD


class _GeneratorStates:
    """The seeds and offsets on the GPU that graphs need of one generator.

    From PyTorch 2.12 on each capture has its own, on the default stream, and from 2.14 on only if
    one of its kernels uses the generator. Before, all graphs shared one, from the first that the
    generator was registered with to the end of the last.
    """

    def __init__(self, machine: Machine, device: int) -> None:
        self._machine = machine
        self._device = device
        self._shared = machine.torch_version < (2, 12)
        self._blocks: dict[object, Sequence[Block]] = {}
        self._graphs: set[int] = set()

    def register(self, graph: int) -> None:
        """Note a graph that will use the generator, by its `id`: nothing may keep it."""
        if self._shared:
            if not self._graphs:
                self._blocks[None] = self._allocate(None)
            self._graphs.add(graph)

    def begin(self, capture: Capture) -> None:
        """Allocate what a capture needs."""
        if not self._shared and capture not in self._blocks:
            self._blocks[capture] = self._allocate(DEFAULT_STREAM)

    def end(self, graph: int, capture: Capture | None) -> None:
        """Free what a graph had, when it is reset."""
        if self._shared:
            self._graphs.discard(graph)
            blocks = () if self._graphs else self._blocks.pop(None, ())
        else:
            blocks = self._blocks.pop(capture, ())[::-1]
        for block in blocks:
            self._machine.free(self._device, block)

    def _allocate(self, stream: int | None) -> Sequence[Block]:
        return tuple(
            self._machine.malloc(self._device, STATE_BYTES, stream=stream) for _ in range(2)
        )


class _GraphState:
    """What C++ keeps of a graph, and frees when the graph goes."""

    def __init__(self, machine: Machine, keep_graph: bool) -> None:
        self.keeps_graph = keep_graph
        self.capture: Capture | None = None
        self.has_ended = False
        self.has_graph = False
        self.is_instantiated = False
        self.pool_id: PoolId = DEFAULT_POOL_ID
        self.retained: list[PoolId] = []
        self.device = machine.current_device()
        self.stream = machine.current_stream(self.device)
        self.generators: dict[object, _GeneratorStates] = {}
        self.has_pool = self.is_routing = False
        self._machine = machine

    def reset(self) -> None:
        """Free what the capture left: the states of generators, workspaces, the use of a pool."""
        capture, self.capture = self.capture, None
        if self._machine.torch_version >= (2, 12):
            self._end_generators(capture)
        gpu = self._machine.devices[self.device]
        if capture is not None and self._machine.torch_version >= (2, 12):
            gpu.free_workspaces(self.stream)
        frees_lost = self._machine.torch_version >= (2, 14)
        if frees_lost and self.is_routing:
            with suppress(torch.AcceleratorError):
                self.stop_routing(capture)
        if self.has_ended or (frees_lost and self.has_pool):
            gpu.allocator.release_pool(self.pool_id)
        self.has_pool = False
        for pool_id in self.retained:
            gpu.allocator.release_pool(pool_id)
        self.retained.clear()
        self.has_ended = self.has_graph = self.is_instantiated = False

    def stop_routing(self, capture: Capture | None) -> None:
        """End a capture, and what goes into the private pool because of it.

        Args:
            capture: None if it could not begin.

        Raises:
            torch.AcceleratorError: something was done that a capture forbids.
        """
        allocator = self._machine.devices[self.device].allocator
        try:
            if capture is not None:
                self._machine.captures.end(capture)
        finally:
            if capture is not None:
                allocator.end_capture()
            if capture is None or capture.is_valid or self._machine.torch_version >= (2, 13):
                allocator.end_allocate_to_pool(self.pool_id)
                self.is_routing = False

    def _end_generators(self, capture: Capture | None) -> None:
        for states in self.generators.values():
            states.end(id(self), capture)
        self.generators.clear()

    def __del__(self) -> None:
        self.reset()
        self._end_generators(None)


def graph_type(machine: Machine, can_capture: bool) -> type:
    """Make the class below `torch.cuda.CUDAGraph`, for one machine.

    Args:
        machine: the machine.
        can_capture: whether a capture may begin: not where the CPU computes values, which a replay
            would have to compute again.
    """
    graph_of: weakref.WeakValueDictionary[Capture, _CUDAGraph] = weakref.WeakValueDictionary()

    def states_of(generator: torch.Generator) -> _GeneratorStates:
        known = generator.__dict__
        if "_graph_states" not in known:
            index = get_device_index(generator.device, optional=True)
            known["_graph_states"] = _GeneratorStates(machine, index)
        states: _GeneratorStates = known["_graph_states"]
        return states

    def draw(to_state: weakref.ref[_GraphState], generator: torch.Generator | None = None) -> None:
        state = to_state()
        if state is None or state.capture is None:
            return
        used = torch.cuda.default_generators[state.device] if generator is None else generator
        made = _GeneratorStates(machine, state.device)
        state.generators.setdefault(generator_id(used), made).begin(state.capture)

    class _CUDAGraph:
        """A CUDA graph of a virtual GPU."""

        def __new__(cls, keep_graph: bool = False) -> _CUDAGraph:
            made = super().__new__(cls)
            made._state = _GraphState(machine, keep_graph)
            return made

        _state: _GraphState

        def register_generator_state(self, generator: torch.Generator) -> None:
            """Let the captured kernels use a generator."""
            states = states_of(generator)
            states.register(id(self._state))
            self._state.generators[generator] = states

        def capture_begin(
            self, pool: PoolId | None = None, capture_error_mode: str = "global"
        ) -> None:
            """Capture what comes into the current stream, which allocates from a private pool."""
            state = self._state
            if capture_error_mode not in _CAPTURE_MODES:
                raise RuntimeError(
                    "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, "
                    f"got {capture_error_mode}"
                )
            if not can_capture:
                raise UnsupportedOnVirtualGPU(
                    "CUDA graphs with values=True: a virtual GPU does not compute values when a "
                    "graph is replayed. Leave values=True out, or run the captured part directly"
                )
            if state.is_instantiated:
                raise RuntimeError(
                    "This CUDAGraph instance already owns a captured graph. To capture a new "
                    "graph, create a new instance."
                )
            device = machine.current_device()
            stream = machine.current_stream(device)
            if stream == DEFAULT_STREAM:
                raise RuntimeError(
                    "CUDA graphs must be captured on a non-default stream. (However, after "
                    "capture, it's ok to replay them on the default stream.)"
                )
            allocator = machine.use(device).allocator
            if allocator.settings.graph_capture_record_stream_reuse:
                raise UnsupportedOnVirtualGPU(
                    "graph_capture_record_stream_reuse is not modelled by the virtual GPU: which "
                    "blocks it frees during a capture, kernels decide. Leave the setting out"
                )
            is_lazy = machine.torch_version >= (2, 14)
            if not is_lazy:
                self.register_generator_state(torch.cuda.default_generators[device])
            state.device, state.stream = device, stream
            given = DEFAULT_POOL_ID if pool is None else _as_id(pool)
            state.pool_id = (
                (next(machine.captures.graph_pools), 0) if given == DEFAULT_POOL_ID else given
            )
            begun: list[Capture] = []

            def accepts(asked: int) -> bool:
                capture = machine.captures.of(asked)
                if capture is None or capture not in begun:
                    return False
                if not capture.is_valid and machine.torch_version >= (2, 13):
                    raise RuntimeError(_LOST)
                return capture.is_valid

            allocator.begin_allocate_to_pool(state.pool_id, accepts)
            state.has_pool = state.is_routing = True
            state.capture = machine.captures.begin(device, stream)
            graph_of[state.capture] = self
            begun.append(state.capture)
            allocator.begin_capture()
            if is_lazy:
                state.generators.clear()
                state.capture.draw = functools.partial(draw, weakref.ref(state))
                return
            known = (each for each in state.generators if isinstance(each, torch.Generator))
            state.capture.generators = frozenset(map(generator_id, known))
            for states in state.generators.values():
                states.begin(state.capture)

        def capture_end(self) -> None:
            """End the capture: the graph can be replayed."""
            self.capture_end_pre()
            if not self._state.keeps_graph:
                self.instantiate()
            self.capture_end_post()

        def capture_end_pre(self) -> None:
            """End the capture. Since PyTorch 2.14 its own class instantiates the graph then."""
            state = self._state
            if machine.current_stream(machine.current_device()) != state.stream:
                raise RuntimeError("Capture must end on the same stream it began on.")
            capture = machine.captures.of(state.stream)
            if capture is None or capture is not state.capture:
                raise RuntimeError("capture_end() called before capture_begin().")
            state.stop_routing(capture)
            if not capture.launches:
                warn(_EMPTY)
            state.has_ended = state.has_graph = True

        def capture_end_post(self) -> None:
            """Drop the graph that has been instantiated, unless it is kept."""
            if not self._state.keeps_graph:
                self._state.has_graph = False

        def instantiate(self) -> None:
            """Make the graph ready to be replayed."""
            state = self._state
            if not state.has_ended:
                raise RuntimeError("capture_end() must have been called before calling instantiate")
            if state.is_instantiated and not state.keeps_graph:
                raise RuntimeError(
                    "instantiate() is intended to be called by the user only when keep_graph=true"
                )
            state.is_instantiated = True

        def replay(self) -> None:
            """Run the captured kernels: a virtual GPU has none."""
            state = self._state
            if not state.has_ended:
                raise RuntimeError(
                    "Called CUDAGraph::replay without a preceding successful capture."
                )
            if not state.is_instantiated:
                self.instantiate()
            if (capture := machine.capture_on(state.device)) is not None:
                capture.launches += 1

        def reset(self) -> None:
            """Free what the capture left. Tensors that it made stay."""
            self._state.reset()

        def pool(self) -> PoolId:
            """Return the id of the private pool."""
            if not self._state.has_ended:
                raise RuntimeError(
                    "Called CUDAGraph::pool() without a preceding successful capture."
                )
            return self._state.pool_id

        def pools(self) -> list[PoolId]:
            """List the private pools that stay until the graph is reset."""
            if not self._state.has_ended:
                raise RuntimeError(
                    "Called CUDAGraph::pools() without a preceding successful capture."
                )
            return [self._state.pool_id, *self._state.retained]

        def _retain_pool(self, pool_id: PoolId) -> None:
            """Keep a pool that the capture allocates from, until the graph is reset."""
            state, pool_id = self._state, _as_id(pool_id)
            if state.capture is None or state.has_ended:
                raise RuntimeError("CUDAGraph::retain_pool may only be called during capture.")
            if pool_id == DEFAULT_POOL_ID:
                raise RuntimeError("CUDAGraph::retain_pool expected a non-default memory pool.")
            if pool_id not in (state.pool_id, *state.retained):
                machine.devices[state.device].allocator.create_or_retain_pool(pool_id)
                state.retained.append(pool_id)

        @staticmethod
        def get_currently_capturing_graph() -> _CUDAGraph:
            """Find the graph into which the current stream is captured."""
            capture = machine.capture_on(machine.current_device())
            if capture is None:
                raise RuntimeError("The current stream is not currently capturing.")
            return graph_of[capture]

        @property
        def _has_graph_exec(self) -> bool:
            return self._state.is_instantiated

        def enable_debug_mode(self) -> None:
            """Keep the graph, since PyTorch 2.14; there are no kernels to look at."""
            if machine.torch_version >= (2, 14):
                self._state.keeps_graph = True

        def raw_cuda_graph(self) -> int:
            """Return a handle of the graph, if it is kept."""
            if machine.torch_version >= (2, 14):
                if not self._state.has_graph:
                    raise RuntimeError(_NO_GRAPH)
                return id(self._state)
            if not self._state.keeps_graph:
                raise RuntimeError(
                    "You cannot access the raw cudaGraph_t instance unless CUDAGraph was "
                    "initialized with keep_graph=true"
                )
            if not self._state.has_graph:
                raise RuntimeError(
                    "You cannot access the raw cudaGraph_t instance until capture_end() has been "
                    "called"
                )
            return id(self._state)

        def raw_cuda_graph_exec(self) -> int:
            """Return a handle of the graph that is ready to be replayed."""
            if not self._state.is_instantiated:
                raise RuntimeError(
                    "You cannot access the raw cudaGraphExec_t instance until instantiate() has "
                    "been called"
                )
            return id(self._state)

        debug_dump = _refused(_NO_DUMPS)
        begin_capture_to_if_node = _refused(_NO_CONDITIONS)
        begin_capture_to_while_node = _refused(_NO_CONDITIONS)
        set_conditional_handle_for_current_node = _refused(_NO_CONDITIONS)
        end_capture_to_conditional_node = _refused(_NO_CONDITIONS)

    return _CUDAGraph


def _refused(why: str) -> Callable[..., Any]:
    def refuse(self: object, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedOnVirtualGPU(why)

    return refuse


class _PoolState:
    """What C++ keeps of a memory pool: its use of a private pool, which ends with it."""

    def __init__(self, machine: Machine, pool_id: PoolId) -> None:
        self.pool_id = pool_id
        self.device = machine.current_device()
        self.allocator = machine.use(self.device).allocator
        self.allocator.create_or_retain_pool(pool_id)

    def __del__(self) -> None:
        self.allocator.set_use_on_oom(self.pool_id, False)
        self.allocator.release_pool(self.pool_id)
        self.allocator.empty_cache(pool_id=self.pool_id)


def pool_type(machine: Machine) -> type:
    """Make the class below `torch.cuda.MemPool`, for one machine."""

    class _MemPool:
        """A memory pool of a virtual GPU."""

        def __init__(
            self,
            allocator: Any = None,
            is_user_created: bool = True,
            use_on_oom: bool = False,
            no_split: bool = False,
        ) -> None:
            if allocator is not None:
                raise UnsupportedOnVirtualGPU(
                    "torch.cuda.MemPool with an allocator of its own is not modelled by the "
                    "virtual GPU: make one without"
                )
            captures = machine.captures
            pool_id = (
                (0, next(captures.user_pools))
                if is_user_created
                else (next(captures.graph_pools), 0)
            )
            self._state = _PoolState(machine, pool_id)
            if use_on_oom:
                self._state.allocator.set_use_on_oom(pool_id, True)
            if no_split:
                self._state.allocator.set_no_split(pool_id)

        @property
        def id(self) -> PoolId:
            """The private pool's id."""
            return self._state.pool_id

        @property
        def allocator(self) -> None:
            """The allocator of the program's own: none."""
            return None

        @property
        def device(self) -> int:
            """The GPU whose memory it has."""
            return self._state.device

        def use_count(self) -> int:
            """Count who uses the private pool."""
            return self._state.allocator.pool_use_count(self._state.pool_id)

    return _MemPool
