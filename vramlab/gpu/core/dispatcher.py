"""See every ATen op below autograd, and make the allocations that its CUDA kernel would make.

The op itself runs on the backing device, which stands behind the GPU: meta, or the CPU where values
are wanted. Each storage among its outputs that was not there before is an allocation on the GPU
where the op runs; what the kernel allocates and frees in between is said by the rules of
`vramlab.kernels`. A storage's end is its block's free (`storage_record.py`).

What is known of an op beforehand is its record in the table of ops (`op_table.py`). Ops that move
data, read values or depend on them are not computations, and have handlers of their own
(`ops/copies.py`, `ops/values.py`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import Any

import torch

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.captured_ops import PAGEABLE_COPY, captured
from vramlab.gpu.core.errors import (
    device_mismatch,
    is_written_to,
    no_kernel,
    other_machine,
    raise_as_on_cpu,
)
from vramlab.gpu.core.inferred_shapes import INFERRED
from vramlab.gpu.core.kernel_steps import KernelSteps
from vramlab.gpu.core.machine import AUTOGRAD_THREAD, Machine
from vramlab.gpu.core.observers import Observer
from vramlab.gpu.core.op_table import OPS, OpSpec, written_by
from vramlab.gpu.core.ops_in_python import kernel_of_program
from vramlab.gpu.core.storage_record import (
    ATTRIBUTE,
    HOST,
    SHADOWS,
    StorageRecord,
    has_values,
    mark_as_host,
    record_of,
    remember,
    wraps,
)
from vramlab.gpu.core.tensors import outputs_of, tensors_in
from vramlab.gpu.core.values.accurate_sums import ONE_BY_ONE, add_in_float64
from vramlab.gpu.core.values.shadows import DECIDING, WRITING_PLACES
from vramlab.gpu.core.values.value_policy import ValuePolicy
from vramlab.gpu.torch_internals import (
    DispatchKey,
    OpOverload,
    current_graph_task_id,
    kernel_of,
    schema_of,
    sparse_parts,
)
from vramlab.kernels import replay

_PLAIN = (torch.Tensor, torch.nn.Parameter)

_CALLERS_IN_TORCH = (
    *("vramlab.gpu.", "torch.functional", "torch.nn.functional"),
    *("torch._decomp.", "torch._refs.", "torch._prims."),
)
"""Where functions of torch are called that are written in C++, and where those in Python are."""


class Dispatcher:
    """Runs ops for one machine. Shared by the modes of all its threads.

    Attributes:
        machine: the GPUs.
        backing_device: the torch device that stands behind the GPUs and has their tensors: meta, or
            cpu where values are wanted.
        values: what to answer where a program reads a value.
        host_values_below_bytes: host tensors this large or larger hold no values.
        seen: how often each op ran on a GPU, for the report on what was modelled.
    """

    def __init__(
        self,
        machine: Machine,
        backing_device: torch.device,
        values: ValuePolicy,
        host_values_below_bytes: int,
    ) -> None:
        self.machine = machine
        self.backing_device = backing_device
        self.values = values
        self.host_values_below_bytes = host_values_below_bytes
        self.seen: dict[OpOverload, int] = {}
        self._paths: dict[OpOverload, Callable[..., Any] | None] = {}

    def path_of(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Return what takes apart an op that consists of others; None where it is run as it is.

        Autograd takes it apart. In inference mode, from a nested tensor and from an operator that
        takes functions it comes whole, and the allocations are those of its parts. What CUDA makes
        of others is taken apart on a GPU; on the host it is run as it is.
        """
        if func not in self._paths:
            self._paths[func] = self._take_apart(func, OPS[func])
        path = self._paths[func]
        if path is not None and path is self._made_of(func, OPS[func]):
            device_index = self.find_device_index(func, args, kwargs)
            if device_index is None or device_index == HOST:
                return None
            self.machine.thread.recent = device_index
        return path

    def _take_apart(self, func: OpOverload, spec: OpSpec) -> Callable[..., Any] | None:
        if spec.handler is not None:
            return None
        if spec.cuda_path is not None:
            key = DispatchKey.Meta if self.backing_device.type == "meta" else DispatchKey.CPU
            return kernel_of(func, key)
        if (made_of := self._made_of(func, spec)) is not None:
            return made_of
        if spec.cuda_kernel is not None and self.backing_device.type == "meta":
            return None
        return func.decompose if spec.is_composite else None

    def _made_of(self, func: OpOverload, spec: OpSpec) -> Callable[..., Any] | None:
        """Return what runs the parts of an op on a GPU: ours, or the program's own in Python."""
        if self.backing_device.type != "meta":
            return None
        if spec.made_of is not None or spec.cuda_kernel is not None or spec.rule is not None:
            return spec.made_of
        return kernel_of_program(func)

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one op: compute on the backing device, allocate on the GPU."""
        handler = OPS[func].handler or Dispatcher.run_plain
        if self.machine.captures:
            handler = captured(handler)
        if not (observers := self.machine.observers):
            return handler(self, func, args, kwargs)
        begun: list[Observer] = []
        try:
            for observer in observers:
                observer.op_begins(func, args, kwargs)
                begun.append(observer)
            result = handler(self, func, args, kwargs)
            for observer in observers:
                observer.op_ran(func, args, kwargs, result)
            return result
        finally:
            for observer in reversed(begun):
                observer.op_ends(func)

    def run_plain(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op that has no handler, or whose handler has done its part."""
        spec = OPS[func]
        if spec.creates and (device := kwargs.get("device")) is not None:
            return self.create(spec, func, args, kwargs, device)
        device_index = self.find_device_index(func, args, kwargs)
        if device_index is None:
            if any(tensor.device == self.backing_device for tensor in tensors_in(args)):
                self.machine.thread.recent = None
            return func(*args, **kwargs)
        if device_index == HOST:
            return self.run_on_host(func, args, kwargs)
        return self.run_kernel(spec, func, args, kwargs, device_index)

    def run_kernel(
        self,
        spec: OpSpec,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device_index: int,
    ) -> Any:
        """Run a kernel on GPU `device_index`."""
        self.count_call(func, device_index)
        is_meta = self.backing_device.type == "meta"
        sources = args[1:] if spec.base_name in WRITING_PLACES else args
        is_known = is_meta and spec.computes and _have_shadows(sources, kwargs)
        if spec.written and not is_known and is_meta:
            for tensor in written_by(spec, args, kwargs):
                if (record := record_of(tensor)) is not None:
                    record.forget_values()
        if spec.skips and spec.rule is None and is_meta:
            result: Any = None
        else:
            if spec.check is not None:
                spec.check(*args)
            if is_meta:
                result = INFERRED.infer(spec, func, args, kwargs, self.compute)
                if spec.layout is not None:
                    result = spec.layout(args, result)
            elif spec.draws and kwargs.get("generator") is None:
                # The first use of a GPU sets the seed that was chosen before.
                with drawing_from(self.machine.use(device_index).generator):
                    result = self.compute(func, args, kwargs)
            else:
                result = self.compute(func, args, kwargs)
            self.allocate_outputs(func, args, kwargs, result, device_index)
        if spec.fill is not None and is_meta:
            remember(result, spec.fill(args))
        elif is_known:
            written = list(written_by(spec, args, kwargs))
            SHADOWS.follow(func, spec.base_name, args, kwargs, result, written)
        elif spec.base_name in DECIDING and is_meta:
            SHADOWS.decide(spec.base_name, args, result)
        return result

    def work_where(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
        """Note where the operands of a function of torch are, by the first: there C++ works.

        Those of classes that handle functions of torch themselves are not asked.

        Returns:
            The index of the GPU, or None if the operands are elsewhere, or there are none.
        """
        for tensor in chain(args[:1], tensors_in(args, kwargs)):  # most calls end at the first
            if type(tensor) not in _PLAIN:
                continue
            record = record_of(tensor)
            if record is None and tensor.is_meta:
                self.machine.thread.recent = None
                return None
            if record is not None and record.device_index != HOST:
                self.machine.thread.recent = record.device_index
                return record.device_index
        return None

    def count_call(self, func: OpOverload, device_index: int) -> None:
        """Note that an op runs on GPU `device_index`."""
        self.seen[func] = self.seen.get(func, 0) + 1
        self.machine.thread.recent = device_index

    def allocate_outputs(
        self,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        device_index: int,
    ) -> None:
        """Allocate an op's outputs and temporaries on GPU `device_index`, after it was computed."""
        spec = OPS[func]
        outputs = list(outputs_of(result))
        try:
            if spec.rule is None:
                for output in outputs:
                    if output is not None:
                        self.allocate_storage(output, device_index)
            else:
                steps = spec.rule.steps(
                    self.machine.devices[device_index].kernel_context, func, args, kwargs, outputs
                )
                replay(steps, len(outputs), KernelSteps(self, device_index, outputs))
            if spec.resizes:
                for output in outputs:
                    if output is not None:
                        self.resize(output, device_index)
        except Exception:
            _give_back(outputs, args, kwargs)
            raise

    def compute(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an op on the backing device.

        Raises:
            UnsupportedOnVirtualGPU: it has no meta kernel: it is named, not counted as zero.
        """
        try:
            if self.backing_device.type == "cpu" and func in ONE_BY_ONE:
                return add_in_float64(func, args, kwargs)
            return func(*args, **kwargs)
        except NotImplementedError as error:
            raise no_kernel(func, error) from error
        except RuntimeError:
            if self.backing_device.type == "meta":
                raise_as_on_cpu(func, args, kwargs)
            raise

    def create(
        self,
        spec: OpSpec,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device: torch.device,
    ) -> Any:
        """Run a factory, on a GPU or on the host."""
        if device == self.backing_device:
            # Pinned memory is the host's: torch's own hooks offload into it (`save_on_cpu`).
            pinned = kwargs.get("pin_memory") and device.type == "cpu"
            device = device if pinned else self._guess_device_meant(func, args)
        if device.type == "cuda":
            device_index = self.index_of(device)
            kwargs = {**kwargs, "device": self.backing_device}
            kwargs.pop("pin_memory", None)
            if "generator" in kwargs and self.backing_device.type == "meta":
                kwargs["generator"] = None
            return self.run_kernel(spec, func, args, kwargs, device_index)
        if device.type == "cpu":
            return self.create_on_host(func, args, kwargs)
        return func(*args, **kwargs)

    def _guess_device_meant(self, func: OpOverload, args: Sequence[Any]) -> torch.device:
        """Guess the device that is meant where a factory is asked for the backing device.

        PyTorch's C++ code asks for the device of a tensor it works on. The backing device is what
        it reads there for a GPU, and what a program may want for itself. The program has come
        through the function mode, and is known (`user_named_backing_device`). Else, in this order:

        1. the device of the op's own operands, where it has any;
        2. the GPU of the operands of the function of torch that the program has called, or else of
           the op that the thread ran before (`ThreadState.recent`). That is the guess: a factory
           without operands that C++ calls is a step of something that runs on one GPU.
           Where the CPU stands behind the GPUs, which is what programs use by default, only in the
           backward pass, in code that is known to mean the GPU (`cpp_means_gpu`), and in a function
           of torch that was given tensors of the GPU, unless it has called code of the program;
        3. the backing device itself: no op has run on a GPU, or the last one ran elsewhere.
        """
        thread = self.machine.thread
        if thread.user_named_backing_device:
            return self.backing_device
        device_index = self.find_device_index(func, args, {})
        if device_index is None and (
            self.backing_device.type == "meta"
            or thread.cpp_means_gpu
            or current_graph_task_id() != -1
            or (thread.has_operands_on_gpu and _is_called_by_torch())
        ):
            device_index = thread.recent
        if device_index is None:
            return self.backing_device
        return torch.device("cpu") if device_index == HOST else torch.device("cuda", device_index)

    def create_on_host(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a factory on the host: without values if the tensor is large, pinned if asked."""
        pinned = kwargs.get("pin_memory")
        if pinned:
            kwargs = {**kwargs, "pin_memory": False}
        if self.backing_device.type == "meta" and any(
            record_of(tensor) is not None for tensor in tensors_in(args)
        ):
            result = func(*args, **{**kwargs, "device": torch.device("meta")})
            mark_as_host(result)
        elif self._is_large(args, kwargs):
            if "generator" in kwargs:
                kwargs["generator"] = None
            result = func(*args, **{**kwargs, "device": torch.device("meta"), "pin_memory": None})
            mark_as_host(result)
        else:
            result = func(*args, **kwargs)
        if pinned:
            mark_as_host(result).pinned = True
        return result

    def _is_large(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        size = next((a for a in args if isinstance(a, list | torch.Size)), None)
        like = next(iter(tensors_in(args)), None)
        if size is None and like is not None and like.is_meta:  # what has no values gives none
            size = like.shape
        if not size or self.backing_device.type != "meta":
            return False
        layout = kwargs.get("layout") or (torch.strided if like is None else like.layout)
        if layout != torch.strided:
            return False  # a sparse tensor takes little, and of the tensors it is made of
        numel = 1
        for length in size:
            if not isinstance(length, int):
                return False
            numel *= length
        dtype = kwargs.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
        return bool(numel * dtype.itemsize >= self.host_values_below_bytes)

    def run_on_host(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run an op on host tensors of which at least one holds no values: nor will its result."""
        if schema_of(func).is_mutable:
            if not any(tensor.is_meta for tensor in tensors_in(args[:1])):
                for tensor in tensors_in(args[:1]):  # host memory whose values are unknown now
                    mark_as_host(tensor).overwritten = True
                return args[0]
            # Of several, as foreach ops change, some may have values: unknown, too.
            changed = args[0] if isinstance(args[0], torch.Tensor) else _without_values(args[0])
            args = (changed, *(_without_values(a) for a in args[1:]))
        else:
            args = tuple(_without_values(a) for a in args)
        kwargs = {name: _without_values(a) for name, a in kwargs.items()}
        result = self.compute(func, args, kwargs)
        for output in outputs_of(result):
            if output is not None and output.is_meta:
                mark_as_host(output)
        return result

    def allocate_storage(
        self, tensor: torch.Tensor, device_index: int, storage_bytes: int | None = None
    ) -> None:
        """Allocate a block on GPU `device_index` for `tensor`'s storage, unless it has one."""
        if wraps(type(tensor)):
            return  # what it wraps has its blocks
        if tensor.layout != torch.strided:
            self.allocate_sparse_storages(tensor, device_index)
            return
        storage = tensor.untyped_storage()
        attributes = storage.__dict__
        if ATTRIBUTE in attributes:
            return
        size_bytes = storage.nbytes() if storage_bytes is None else storage_bytes
        block = self.machine.malloc(device_index, size_bytes) if size_bytes else None
        attributes[ATTRIBUTE] = StorageRecord(device_index, block, self.machine)

    def allocate_sparse_storages(self, tensor: torch.Tensor, device_index: int) -> None:
        """Allocate blocks for the indices and values of a sparse tensor."""
        if tensor.layout != torch.sparse_coo:
            raise UnsupportedOnVirtualGPU(
                f"a tensor of layout {tensor.layout}: a virtual GPU models dense tensors, and "
                "sparse ones of layout torch.sparse_coo"
            )
        for part in sparse_parts(tensor):
            self.allocate_storage(part, device_index)

    def resize(self, tensor: torch.Tensor, device_index: int) -> None:
        """Allocate again if an op has made a storage larger than its block."""
        record = record_of(tensor)
        size_bytes = tensor.untyped_storage().nbytes()
        if record is None or record.device_index < 0:
            return
        if record.block is None or record.block.requested_bytes < size_bytes:
            larger = self.machine.malloc(device_index, size_bytes) if size_bytes else None
            record.release()
            record.block = larger

    def index_of(self, device: torch.device) -> int:
        """Return the index that a cuda device stands for; `cuda` alone is the current device."""
        index = self.machine.current_device() if device.index is None else device.index
        self.machine.device(index)
        return index

    def find_device_index(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> int | None:
        """Find where an op runs: its operands' GPU, `HOST`, or None for ordinary host tensors.

        Raises:
            RuntimeError: the operands are on different devices, in torch's words. A CPU tensor of
                no dimensions may go with tensors of any GPU, as on CUDA. Or one is on a GPU of
                another `VirtualGPU`.
        """
        device_index: int | None = None
        stranger = False
        for tensor in tensors_in(args, kwargs):
            record = record_of(tensor)
            where = None if record is None else record.device_index
            if where is None or where == HOST:
                stranger = stranger or tensor.dim() > 0 or is_written_to(tensor, func, args, kwargs)
                if where == HOST and device_index is None and not has_values(tensor):
                    device_index = HOST
            elif (
                record is not None
                and record.machine is not self.machine
                and not self.machine.is_like(record.machine)
            ):
                raise other_machine(record, self.machine)
            elif device_index is None or device_index == HOST:
                device_index = where
            elif where != device_index:
                raise device_mismatch(func, args, kwargs)
        if stranger and device_index is not None and device_index >= 0:
            raise device_mismatch(func, args, kwargs)
        return device_index

    def host_waits_for(self, tensor: torch.Tensor) -> None:
        """Note that the host waits for what a tensor's GPU does, if the tensor is on one.

        Raises:
            torch.AcceleratorError: the current stream there is captured into a CUDA graph.
        """
        if self.machine.captures:
            record = record_of(tensor)
            if record is not None and record.device_index >= 0:
                self.machine.captures.wait_for(self.machine.capture_on(record.device_index))

    def crosses_to_host(
        self, device_index: int, host: torch.Tensor | None, non_blocking: bool
    ) -> None:
        """Note a copy between GPU `device_index` and host memory; None: memory that is not pinned.

        Raises:
            RuntimeError: the current stream of the GPU is captured, and host memory is pageable.
            torch.AcceleratorError: the host would have to wait for the stream.
        """
        capture = self.machine.capture_on(device_index)
        if capture is None:
            return
        record = None if host is None else record_of(host)
        if record is None or not record.pinned:
            raise RuntimeError(PAGEABLE_COPY)
        if not non_blocking:
            self.machine.captures.wait_for(capture)

    def handle_owner(self) -> object:
        """Return whose library handle is used: on CUDA the backward pass has its own thread."""
        if current_graph_task_id() != -1:
            return AUTOGRAD_THREAD
        return threading.get_ident()


def _is_called_by_torch() -> bool:
    """Return whether torch itself calls the op that is dispatched, and no hook in between."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "__torch_dispatch__":
        frame = frame.f_back
    while frame is not None and (
        frame.f_code.co_name == "__torch_dispatch__" or frame.f_globals["__name__"] == "torch._ops"
    ):
        frame = frame.f_back
    return frame is not None and frame.f_globals["__name__"].startswith(_CALLERS_IN_TORCH)


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Let kernels of the CPU draw from a GPU's generator, and leave the CPU's as it is.

    Not every op takes a generator, so the CPU's has the state of the GPU's meanwhile.
    """
    if generator is None:
        yield
        return
    default = torch.default_generator
    before = default.get_state()
    default.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(default.get_state())
        default.set_state(before)


def _have_shadows(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether all operands on GPUs have shadows; what is only written to need not."""
    for tensor in tensors_in(args):
        record = record_of(tensor)
        if tensor.is_meta if record is None else record.shadow is None:
            return False
    return not kwargs or _have_shadows([v for k, v in kwargs.items() if k != "out"], {})


def _give_back(
    outputs: Sequence[torch.Tensor | None], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Free the outputs that a kernel had when it failed, as C++ does on its way out.

    The exception's traceback still refers to them, for as long as a program keeps it.
    """
    kept = [record_of(tensor) for tensor in tensors_in(args, kwargs)]
    for output in outputs:
        record = None if output is None else record_of(output)
        if record is not None and not any(record is other for other in kept):
            record.release()


def _without_values(arg: Any) -> Any:
    """Make a meta tensor for a host tensor with values; return anything else unchanged."""
    if isinstance(arg, torch.Tensor) and not arg.is_meta:
        return torch.empty_strided(arg.size(), arg.stride(), dtype=arg.dtype, device="meta")
    if isinstance(arg, list):
        return [_without_values(item) for item in arg]
    return arg
