"""See every ATen op below autograd, and make the allocations that its CUDA kernel would make.

The op itself runs on its carrier (meta tensors, or CPU tensors where values are wanted). Each
storage among its outputs that was not there before is an allocation on the GPU where the op runs;
what the kernel takes and gives back in between is said by the rules of `vramlab.kernels`. A
storage's end is its block's free (`ledger.py`).

Ops that move data, read values or depend on them are not computations, and have handlers of their
own (`transfers.py`, `values.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from vramlab.allocator import Block
from vramlab.errors import OutOfDeviceMemory, UnsupportedOnVirtualGPU
from vramlab.gpu.core.errors import device_mismatch, is_written_to, no_kernel, raise_as_on_cpu
from vramlab.gpu.core.machine import AUTOGRAD_THREAD, Machine
from vramlab.gpu.core.storage_record import (
    ATTRIBUTE,
    HOST,
    Holding,
    attach_holding,
    has_values,
    holding_of,
    wraps,
)
from vramlab.gpu.ops.cuda_paths import CUDA_PATHS, WHOLE_ON_CUDA
from vramlab.gpu.ops.fast_meta import SHORTCUTS, Shortcut
from vramlab.gpu.ops.higher_order import in_eager
from vramlab.gpu.ops.layouts import LAYOUTS, Layout
from vramlab.gpu.ops.operand_checks import CHECKS, Check
from vramlab.kernels import TABLE, Marker, Rule, replay
from vramlab.kernels.cublas import workspaces

# An op that consists of others has a kernel for the first of these and none for the second.
_COMPOSITE_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.CPU)

# While fake tensors are computed, which stand for shapes: DTensor asks them for those of a whole.
_FAKE = torch._C._TorchDispatchModeKey.FAKE

Handler = Callable[["Dispatcher", OpOverload, tuple[Any, ...], dict[str, Any]], Any]

HANDLERS: dict[OpOverload, Handler] = {}
"""Ops that are not plain computations; filled by the modules that define them."""


def handles(*overloads: OpOverload) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of these ops."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(overloads, handler))
        return handler

    return register


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of an op before it is called.

    Attributes:
        handler: runs instead of everything else.
        rule: what its kernel takes beyond its outputs.
        creates: a factory: it takes a `device`, and no tensor decides where it runs.
        mutates: an argument is changed, so that a known value no longer is.
        resizes: an argument's storage may grow (`out=`, `resize_`, `set_`).
        check: refuses operands that CUDA's kernel refuses and the meta kernel lets pass.
        skips: changes values only and has none of its own to return: nothing to do without values.
        shortcut: answers plain cases in place of the meta kernel.
        layout: lays the meta kernel's result out as CUDA does.
    """

    handler: Handler | None
    rule: Rule | None
    creates: bool
    mutates: bool
    resizes: bool
    skips: bool
    check: Check | None
    shortcut: Shortcut | None
    layout: Layout | None


def _plan(func: OpOverload) -> Plan:
    schema = func._schema
    arguments = schema.arguments
    mutated = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    name = schema.name.removeprefix("aten::")
    return Plan(
        handler=HANDLERS.get(func),
        rule=TABLE.find(func),
        creates=any(a.name == "device" for a in arguments),
        mutates=bool(mutated),
        resizes=name in ("resize_", "set_", "resize_as_") or any(a.is_out for a in arguments),
        skips=name.startswith(("_foreach_", "_fused_")) and bool(mutated) and not schema.returns,
        check=CHECKS.get(func),
        shortcut=SHORTCUTS.get(func),
        layout=LAYOUTS.get(func),
    )


class Dispatcher:
    """Runs ops for one machine. Shared by the modes of all its threads.

    Attributes:
        machine: the GPUs.
        carrier: the torch device that carries the tensors: meta, or cpu where values are wanted.
        values: what to answer where a program reads a value.
        host_values_below_bytes: host tensors this large or larger hold no values.
        seen: how often each op ran on a GPU, for the report on what was modelled.
    """

    def __init__(
        self, machine: Machine, carrier: torch.device, values: Any, host_values_below_bytes: int
    ) -> None:
        self.machine = machine
        self.carrier = carrier
        self.values = values
        self.host_values_below_bytes = host_values_below_bytes
        self.seen: dict[OpOverload, int] = {}
        self._plans: dict[OpOverload, Plan] = {}
        self._paths: dict[OpOverload, Callable[..., Any] | None] = {}

    def path_of(self, func: OpOverload) -> Callable[..., Any] | None:
        """What an op that consists of others does, where it has not been taken apart yet.

        Autograd takes it apart. In inference mode, from a nested tensor and from an operator that
        takes functions it comes whole, and the allocations are those of its parts.
        """
        if func not in self._paths:
            self._paths[func] = None if func in HANDLERS else self._take_apart(func)
        return self._paths[func]

    def _take_apart(self, func: OpOverload) -> Callable[..., Any] | None:
        if func in CUDA_PATHS:
            key = DispatchKey.Meta if self.carrier.type == "meta" else DispatchKey.CPU
            return partial(func._op_dk, key)
        if func in WHOLE_ON_CUDA and self.carrier.type == "meta":
            return None
        if func.namespace == "prim":  # questions to a tensor; C++ has no functions for them
            return None
        kernels = (func.has_kernel_for_dispatch_key(key) for key in _COMPOSITE_KEYS)
        return func.decompose if tuple(kernels) == (True, False) else None

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one op: compute on the carrier, allocate on the GPU."""
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = _plan(func)
        handler = Dispatcher.run_plain if plan.handler is None else plan.handler
        if self.machine.frames_of_caller is None:
            return handler(self, func, args, kwargs)
        with self.machine.thread.running(func):
            return handler(self, func, args, kwargs)

    def run_plain(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op that has no handler, or whose handler has done its part."""
        plan = self._plans[func]
        if plan.creates and (device := kwargs.get("device")) is not None:
            return self.create(plan, func, args, kwargs, device)
        place = self.place_of(func, args, kwargs)
        if place is None:
            if any(tensor.device == self.carrier for tensor in tensors_in(args)):
                self.machine.thread.recent = None
            return func(*args, **kwargs)
        if place == HOST:
            return self.run_on_host(func, args, kwargs)
        return self.launch(plan, func, args, kwargs, place)

    def launch(
        self,
        plan: Plan,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        place: int,
    ) -> Any:
        """Run a kernel on GPU `place`."""
        self.note(func, place)
        if plan.mutates:
            for tensor in tensors_in(args, kwargs):
                if (holding := holding_of(tensor)) is not None:
                    holding.forget()
        if plan.skips and self.carrier.type == "meta" and plan.rule is None:
            return None
        if plan.check is not None:
            plan.check(*args)
        result = None
        if plan.shortcut is not None and self.carrier.type == "meta":
            result = plan.shortcut(args, kwargs)
        if result is None:
            result = self.compute(func, args, kwargs)
            if plan.layout is not None and self.carrier.type == "meta":
                result = plan.layout(args, result)
        self.account(func, args, kwargs, result, place)
        return result

    def note(self, func: OpOverload, place: int) -> None:
        """Note that an op runs on GPU `place`."""
        self.seen[func] = self.seen.get(func, 0) + 1
        self.machine.thread.recent = place

    def account(
        self,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        place: int,
    ) -> None:
        """Allocate on GPU `place` for an op that was computed: its outputs and temporaries."""
        plan = self._plans[func]
        outputs = list(_flat(result))
        if plan.rule is None:
            for output in outputs:
                if output is not None:
                    self.hold(output, place)
        else:
            steps = plan.rule.steps(self.machine.devices[place].launch, func, args, kwargs, outputs)
            with _Kernel(self, place, outputs) as kernel:
                replay(steps, len(outputs), kernel)
        if plan.resizes:
            for output in outputs:
                if output is not None:
                    self.resize(output, place)

    def compute(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an op on its carrier; an op that has no meta kernel is named, not counted as zero."""
        try:
            return func(*args, **kwargs)
        except NotImplementedError as error:
            raise no_kernel(func, error) from error
        except RuntimeError:
            if self.carrier.type == "meta":
                raise_as_on_cpu(func, args, kwargs)
            raise

    def create(
        self,
        plan: Plan,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device: torch.device,
    ) -> Any:
        """Run a factory, on a GPU or on the host."""
        if device == self.carrier:
            device = self._meant_by_carrier(func, args)
        if device.type == "cuda":
            place = self.index_of(device)
            kwargs = {**kwargs, "device": self.carrier}
            kwargs.pop("pin_memory", None)
            if "generator" in kwargs and self.carrier.type == "meta":
                kwargs["generator"] = None
            result = self.launch(plan, func, args, kwargs, place)
            self.values.remember_fill(func, args, result)
            return result
        if device.type == "cpu":
            return self.create_on_host(func, args, kwargs)
        return func(*args, **kwargs)

    def _meant_by_carrier(self, func: OpOverload, args: Sequence[Any]) -> torch.device:
        """The device that is meant where a factory is asked for the carrier's device.

        PyTorch's C++ code asks for the device of a tensor it works on, and that is the carrier's
        where a GPU is pretended. What a program itself wants there has come through the function
        mode. Without a tensor to go by, it is the GPU of the op before; on the CPU, which programs
        use by default, only in the backward pass and in code that is known to mean it.
        """
        thread = self.machine.thread
        if thread.wants_carrier:
            return self.carrier
        place = self.place_of(func, args, {})
        if place is None and (
            self.carrier.type == "meta"
            or thread.means_gpu
            or torch._C._current_graph_task_id() != -1
        ):
            place = thread.recent
        if place is None:
            return self.carrier
        return torch.device("cpu") if place == HOST else torch.device("cuda", place)

    def create_on_host(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a factory on the host: without values if the tensor is large, pinned if asked."""
        pinned = kwargs.get("pin_memory")
        if pinned:
            kwargs = {**kwargs, "pin_memory": False}
        if self.carrier.type == "meta" and any(
            holding_of(tensor) is not None for tensor in tensors_in(args)
        ):
            result = func(*args, **{**kwargs, "device": torch.device("meta")})
            self.hold_on_host(result)
        elif self._is_large(args, kwargs):
            if "generator" in kwargs:
                kwargs["generator"] = None
            result = func(*args, **{**kwargs, "device": torch.device("meta"), "pin_memory": None})
            self.hold_on_host(result)
        else:
            result = func(*args, **kwargs)
        if pinned:
            pin(result)
        return result

    def _is_large(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        size = next((a for a in args if isinstance(a, list | torch.Size)), None)
        if not size or self.carrier.type != "meta":
            return False
        if kwargs.get("layout") not in (None, torch.strided):
            return False  # a sparse tensor takes little, and of the tensors it is made of
        numel = 1
        for length in size:
            if not isinstance(length, int):
                return False
            numel *= length
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return bool(numel * dtype.itemsize >= self.host_values_below_bytes)

    def run_on_host(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run an op on host tensors of which at least one holds no values: nor will its result."""
        if func._schema.is_mutable:
            if not any(tensor.is_meta for tensor in tensors_in(args[:1])):
                return args[0]  # host memory whose values are unknown before and after
            args = (args[0], *(_without_values(a) for a in args[1:]))
        else:
            args = tuple(_without_values(a) for a in args)
        kwargs = {name: _without_values(a) for name, a in kwargs.items()}
        result = self.compute(func, args, kwargs)
        for output in _flat(result):
            if output is not None and output.is_meta:
                self.hold_on_host(output)
        return result

    def hold_on_host(self, tensor: torch.Tensor) -> None:
        """Mark a meta tensor as one of the host's that holds no values."""
        if holding_of(tensor) is None:
            attach_holding(tensor, Holding(HOST))

    def hold(self, tensor: torch.Tensor, place: int, storage_bytes: int | None = None) -> None:
        """Allocate for `tensor`'s storage on GPU `place`, unless it has its block already."""
        if wraps(type(tensor)):
            return  # what it wraps has its blocks
        if tensor.layout != torch.strided:
            self.hold_sparse(tensor, place)
            return
        storage = tensor.untyped_storage()
        attributes = storage.__dict__
        if ATTRIBUTE in attributes:
            return
        size_bytes = storage.nbytes() if storage_bytes is None else storage_bytes
        block = self.machine.malloc(place, size_bytes) if size_bytes else None
        attributes[ATTRIBUTE] = Holding(place, block, self.machine)

    def hold_sparse(self, tensor: torch.Tensor, place: int) -> None:
        """The same for the parts of a sparse tensor."""
        if tensor.layout != torch.sparse_coo:
            raise UnsupportedOnVirtualGPU(
                f"a tensor of layout {tensor.layout}: a virtual GPU models dense tensors, and "
                "sparse ones of layout torch.sparse_coo"
            )
        self.hold(tensor._indices(), place)
        self.hold(tensor._values(), place)

    def resize(self, tensor: torch.Tensor, place: int) -> None:
        """Allocate anew where an op has made a storage larger than its block."""
        holding = holding_of(tensor)
        size_bytes = tensor.untyped_storage().nbytes()
        if holding is None or holding.place < 0:
            return
        if holding.block is None or holding.block.requested_bytes < size_bytes:
            larger = self.machine.malloc(place, size_bytes) if size_bytes else None
            holding.release()
            holding.block = larger

    def index_of(self, device: torch.device) -> int:
        """The index that a cuda device stands for; `cuda` alone is the current device."""
        index = self.machine.current_device() if device.index is None else device.index
        self.machine.device(index)
        return index

    def place_of(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> int | None:
        """Where an op runs: the GPU of its operands, `HOST`, or None for ordinary host tensors.

        Raises:
            RuntimeError: the operands are on different devices, in torch's words. A CPU tensor of
                no dimensions may go with tensors of any GPU, as on CUDA.
        """
        place: int | None = None
        stranger = False
        for tensor in tensors_in(args, kwargs):
            holding = holding_of(tensor)
            where = None if holding is None else holding.place
            if where is None or where == HOST:
                stranger = stranger or tensor.dim() > 0 or is_written_to(tensor, func, args, kwargs)
                if where == HOST and place is None and not has_values(tensor):
                    place = HOST
            elif place is None or place == HOST:
                place = where
            elif where != place:
                raise device_mismatch(func, args, kwargs)
        if stranger and place is not None and place >= 0:
            raise device_mismatch(func, args, kwargs)
        return place

    def handle_owner(self) -> object:
        """Whose library handle is used: the backward pass runs on a thread of its own on CUDA."""
        if torch._C._current_graph_task_id() != -1:
            return AUTOGRAD_THREAD
        return threading.get_ident()


class _Kernel:
    """Carries out the steps of a kernel's rule: an `Allocates` on one GPU."""

    __slots__ = ("_borrowed", "_dispatcher", "_outputs", "_place")

    def __init__(
        self, dispatcher: Dispatcher, place: int, outputs: Sequence[torch.Tensor | None]
    ) -> None:
        self._dispatcher = dispatcher
        self._place = place
        self._outputs = outputs
        self._borrowed: list[Block] = []

    def __enter__(self) -> _Kernel:
        return self

    def __exit__(self, *exception: object) -> None:
        for block in reversed(self._borrowed):
            self.give(block)

    def take(self, size_bytes: int, what: str) -> Block:
        return self._dispatcher.machine.malloc(self._place, size_bytes, what)

    def give(self, handle: Block) -> None:
        self._dispatcher.machine.free(self._place, handle)

    def output(self, index: int, storage_bytes: int | None) -> None:
        output = self._outputs[index]
        if output is not None:
            self._dispatcher.hold(output, self._place, storage_bytes)

    def workspace(self, library: Marker) -> None:
        machine = self._dispatcher.machine
        device = machine.devices[self._place]
        for workspace in workspaces(library, device.launch):
            if workspace.kept:
                device.keep_workspace(
                    workspace,
                    self._dispatcher.handle_owner(),
                    machine.current_stream(self._place),
                    machine.allocation_context(),
                )
            elif workspace.size_bytes:
                self._borrowed.append(self.take(workspace.size_bytes, workspace.pool))


def tensors_in(args: Iterable[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Yield every tensor among an op's arguments, also those in lists, and in lists of lists."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from tensors_in(arg)
    if kwargs:
        yield from tensors_in(kwargs.values())


def _flat(result: Any) -> Iterator[torch.Tensor | None]:
    if isinstance(result, torch.Tensor) or result is None:
        yield result
    elif isinstance(result, list | tuple):
        for item in result:
            yield from _flat(item)


def _without_values(arg: Any) -> Any:
    """A meta tensor in place of a host tensor with values; anything else as it is."""
    if isinstance(arg, torch.Tensor) and not arg.is_meta:
        return torch.empty_strided(arg.size(), arg.stride(), dtype=arg.dtype, device="meta")
    if isinstance(arg, list):
        return [_without_values(item) for item in arg]
    return arg


def pin(tensor: torch.Tensor) -> None:
    """Mark a host tensor as page-locked."""
    holding = holding_of(tensor)
    if holding is None:
        holding = Holding(HOST)
        attach_holding(tensor, holding)
    holding.pinned = True


class AllocationMode(TorchDispatchMode):
    """The dispatch mode of one thread: hands each op to the `Dispatcher` that all threads share.

    Args:
        served: that of the GPU that is awake, or None while none is.
    """

    supports_higher_order_operators = True

    def __init__(self, served: Callable[[], Dispatcher | None]) -> None:
        super().__init__()
        self._served = served

    def retire(self) -> None:
        """Pass everything by from now on."""
        self._served = lambda: None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every op in a guard against torch.compile, and its frames.
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        dispatcher = self._served()
        if dispatcher is None or torch._C._get_dispatch_mode(_FAKE) is not None:
            return func(*args, **(kwargs or {}))
        if isinstance(func, HigherOrderOperator):
            with self:
                return in_eager(func)(*args, **(kwargs or {}))
        if any(map(wraps, types)):  # a DTensor, say: it makes ops on the tensors that it holds
            return NotImplemented
        if (path := dispatcher.path_of(func)) is not None:
            with self:
                return path(*args, **(kwargs or {}))
        # In the backward pass the function mode is still on; kernels must see tensors as they are.
        with torch._C.DisableTorchFunction():
            try:
                return dispatcher.run(func, args, kwargs or {})
            except OutOfDeviceMemory as error:
                raise torch.OutOfMemoryError(str(error)) from error
