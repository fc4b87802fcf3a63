"""Stand in for what tensors answer of themselves, and for their methods that take device names.

The function mode (`core/function_mode.py`) calls these instead of torch's functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import type_name
from vramlab.gpu.core.function_mode import Override
from vramlab.gpu.core.storage_record import (
    HOST,
    has_values,
    known,
    known_number,
    mark_as_host,
    record_of,
    remember,
)
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.core.values.shadows import MOST_BYTES
from vramlab.gpu.ops.copies import use_on_stream
from vramlab.gpu.ops.values import UnknownNumber
from vramlab.gpu.stand_ins.cuda_tensor_types import cuda_type
from vramlab.gpu.stand_ins.nan_sentinel import UNKNOWN_VALUE
from vramlab.gpu.stand_ins.swap_tensors import swap_impls
from vramlab.gpu.torch_internals import DisableTorchFunction, default_device, parse_to

_CPU = torch.device("cpu")

_METHODS = (
    "bernoulli_",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "normal_",
    "random_",
    "uniform_",
)
_INITIALIZERS = ("kaiming_normal_", "kaiming_uniform_", "normal_", "uniform_")
_RANDOM_IN_PLACE: tuple[Callable[..., torch.Tensor], ...] = (
    *(getattr(torch.Tensor, name) for name in _METHODS),
    *(getattr(torch.nn.init, name) for name in _INITIALIZERS),
)


def _cuda(index: int) -> torch.device:
    return torch.device("cuda", index)


class TensorOverrides:
    """Answer for tensors while a machine is attached.

    Each method stands for the torch function of the same name, called with the same arguments. A
    tensor that the machine does not manage is passed to the original.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._backing_device = dispatcher.backing_device

    def table(self) -> dict[Any, Override]:
        """Map torch functions to what is called in their place by `DeviceMode`."""
        tensor = torch.Tensor
        return {
            # Property getters are created at each access, but compare equal.
            tensor.device.__get__: self.device,
            tensor.is_cuda.__get__: self.is_cuda,  # type: ignore[attr-defined]
            tensor.is_cpu.__get__: self.is_cpu,  # type: ignore[attr-defined]
            tensor.is_meta.__get__: self.is_meta,  # type: ignore[attr-defined]
            tensor.data.__set__: self.set_data,  # type: ignore[attr-defined]
            tensor.grad.__set__: self.set_grad,  # type: ignore[union-attr]
            tensor.get_device: self.get_device,
            torch.get_device: self.get_device,
            tensor.type: self.type,
            tensor.data_ptr: self.data_ptr,
            tensor.item: self.item,
            tensor.__float__: self.item_as_float,
            tensor.to: self.to,
            tensor.cuda: self.cuda,
            tensor.cpu: self.cpu,
            tensor.numpy: self.numpy,
            tensor.__array__: self.array,
            tensor.tolist: self.tolist,
            tensor.__repr__: self.repr,
            tensor.__format__: self.format,
            tensor.pin_memory: self.pin_memory,
            tensor.is_pinned: self.is_pinned,
            tensor.record_stream: self.record_stream,
            tensor.new: self.new,
            tensor.new_tensor: self.new_tensor,
            tensor.__setitem__: self.setitem,
            torch.tensor: self.tensor,
            torch.as_tensor: self.as_tensor,
            torch.asarray: self.as_tensor,
            torch.nn.functional.ctc_loss: self.ctc_loss,
            torch.istft: self.istft,
            torch.isfinite: self.isfinite,
            tensor.isfinite: self.isfinite,
            torch.isnan: self.isnan,
            tensor.isnan: self.isnan,
            torch.isinf: self.isinf,
            tensor.isinf: self.isinf,
            torch.sparse.mm: self.sparse_mm,
            torch.sparse_coo_tensor: self.sparse_coo_tensor,
            **{make: self._refuse_on_gpu(make) for make in _COMPRESSED},
            torch.device: self.torch_device,
            parse_to: self.parse_to,
            **{fill: self._random_in_place(fill) for fill in _RANDOM_IN_PLACE},
        }

    # What a tensor says of itself

    def device(self, tensor: torch.Tensor) -> torch.device:
        record = record_of(tensor)
        return tensor.device if record is None else record.device

    def is_cuda(self, tensor: torch.Tensor) -> bool:
        record = record_of(tensor)
        return tensor.is_cuda if record is None else record.device_index != HOST

    def is_cpu(self, tensor: torch.Tensor) -> bool:
        record = record_of(tensor)
        return tensor.is_cpu if record is None else record.device_index == HOST

    def is_meta(self, tensor: torch.Tensor) -> bool:
        return record_of(tensor) is None and tensor.is_meta

    def get_device(self, tensor: torch.Tensor) -> int:
        record = record_of(tensor)
        return int(tensor.get_device()) if record is None else record.device_index

    def data_ptr(self, tensor: torch.Tensor) -> int:
        record = record_of(tensor)
        if record is None or record.block is None:
            return tensor.data_ptr()
        return record.block.address + int(tensor.storage_offset()) * tensor.dtype.itemsize

    def type(self, tensor: torch.Tensor, dtype: Any = None, **kwargs: Any) -> Any:
        if (on_gpu := cuda_type(dtype)) is not None:
            return self.to(tensor, "cuda", on_gpu.dtype, **kwargs)
        if dtype is not None:
            return tensor.type(dtype, **kwargs)
        return type_name(tensor)

    def repr(self, tensor: torch.Tensor, **kwargs: Any) -> str:
        record = record_of(tensor)
        if record is None or has_values(tensor):
            return torch.Tensor.__repr__(tensor, **kwargs)  # not Parameter's, which asks here
        device, grad = f", device='{record.device}'", ", requires_grad=True" * tensor.requires_grad
        values = known(tensor)
        if values is not None and tensor.nbytes <= MOST_BYTES:
            shown, *dtype = repr(values.clone()).removesuffix(")").rsplit(", dtype=", 1)
            return f"{shown}{device}{''.join(f', dtype={each}' for each in dtype)}{grad})"
        return (
            f"tensor(<no values>{device}, size={tuple(tensor.shape)}, dtype={tensor.dtype}{grad})"
        )

    # Names of devices: a number alone is a GPU's

    def torch_device(self, *args: Any, **kwargs: Any) -> torch.device:
        if args and isinstance(args[0], int):
            args = ("cuda", *args)
        return torch.device(*args, **kwargs)

    def parse_to(self, *args: Any, **kwargs: Any) -> Any:
        """Return what `Module.to` reads its arguments with."""
        if args and isinstance(args[0], int):
            args = (_cuda(args[0]), *args[1:])
        return parse_to(*args, **kwargs)

    # Moving

    def to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], torch.Tensor):
            like, *rest = args
            args = (self.device(like), like.dtype, *rest)
        device, dtype, non_blocking, copy, memory_format = _parse_to(*args, **kwargs)
        if device is not None and device.type == "cuda":
            device = torch.device("cuda", self._dispatcher.index_of(device))
        if device is None or device == self.device(tensor):
            # The same place: C++ knows best what `to` does, except where that place is.
            return tensor.to(
                dtype if dtype is not None else tensor.dtype,
                non_blocking=non_blocking,
                copy=copy,
                memory_format=memory_format,
            )
        if is_lazy(tensor):
            raise UnsupportedOnVirtualGPU(
                "moving a parameter that has no shape yet is not modelled by the virtual GPU. Give "
                "the lazy module one batch on the host, or name the sizes, before it is moved."
            )
        if device.type == "meta":
            with self._dispatcher.machine.thread.naming_backing_device():
                return torch.ops.aten._to_copy.default(tensor, dtype=dtype, device=device)
        options = {
            "dtype": dtype,
            "device": device,
            "non_blocking": non_blocking,
            "memory_format": memory_format,
        }
        if tensor.requires_grad and torch.is_grad_enabled():
            return _Transfer.apply(tensor, options, self)
        return self.copy_to(tensor, options)

    def copy_to(self, tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        """Copy to the device that the program has named."""
        with self._dispatcher.machine.thread.naming_backing_device():
            copied: torch.Tensor = torch.ops.aten._to_copy.default(tensor, **options)
        return copied

    def to_host_without_values(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Move to the host, to a tensor that holds no values. It takes no memory there."""
        with self._dispatcher.machine.thread.naming_backing_device():
            moved = torch.ops.aten._to_copy.default(
                tensor, dtype=dtype, device=torch.device("meta")
            )
        with DisableTorchFunction():
            mark_as_host(moved)
        return moved

    def cuda(
        self,
        tensor: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        if isinstance(device, int):
            device = _cuda(device)
        device = torch.device("cuda" if device is None else device)
        return self.to(tensor, device, non_blocking=non_blocking, memory_format=memory_format)

    def cpu(
        self, tensor: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format
    ) -> torch.Tensor:
        return self.to(tensor, _CPU, memory_format=memory_format)

    def pin_memory(self, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        if self.is_cuda(tensor):
            raise RuntimeError(
                f"cannot pin '{self.type(tensor)}' only dense CPU tensors can be pinned"
            )
        if self.is_pinned(tensor):
            return tensor
        return torch.ops.aten._pin_memory.default(tensor)

    def is_pinned(self, tensor: torch.Tensor, device: Any = None) -> bool:
        record = record_of(tensor)
        return record is not None and record.pinned

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        use_on_stream(self._dispatcher, tensor, stream.stream_id)

    def set_data(self, tensor: torch.Tensor, new: torch.Tensor) -> None:
        """Set `tensor.data`. C++ refuses to change between host and meta: they swap impls."""
        if tensor.device.type == new.device.type:
            tensor.data = new
        else:
            requires_grad = tensor.requires_grad
            body = new.detach().requires_grad_(requires_grad)
            if isinstance(tensor, torch.nn.Parameter):
                body = torch.nn.Parameter(body, requires_grad=requires_grad)
            swap_impls(tensor, body)

    def set_grad(self, tensor: torch.Tensor, grad: torch.Tensor | None) -> None:
        """Set `tensor.grad`. To C++ all GPUs are one; their indices must be equal."""
        places = self.get_device(tensor), -1 if grad is None else self.get_device(grad)
        if min(places) >= 0 and places[0] != places[1]:
            raise RuntimeError(
                f"attempting to assign a gradient located on device with index '{places[1]}' to a "
                f"tensor located on device with index '{places[0]}'. Please ensure that the "
                "gradient and the tensor are on the same device"
            )
        if grad is not None and max(places) < 0 and tensor.is_meta != grad.is_meta:
            grad = self._without_values(grad, tensor)
        tensor.grad = grad

    def _without_values(self, grad: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """Return a host gradient that C++ takes for a host tensor: one of the two has no values."""
        if record_of(grad if grad.is_meta else tensor) is None:
            return grad  # the program's own meta tensor: C++ will say so
        if not tensor.is_meta:
            return _full(grad, float("nan"))
        with self._dispatcher.machine.thread.naming_backing_device():
            result = torch.empty_like(grad, device="meta")
        mark_as_host(result)
        return result

    def setitem(self, tensor: torch.Tensor, index: Any, value: Any) -> None:
        """Set `tensor[index]` by a statement, by which `ops/indexing.py` knows it."""
        tensor[index] = value

    # Reading values

    def item(self, tensor: torch.Tensor) -> Any:
        value = tensor.item()
        unknown = value != value and tensor.is_meta and known_number(tensor) is None
        return UnknownNumber() if unknown and isinstance(value, float) else value

    def item_as_float(self, tensor: torch.Tensor) -> float:
        value = self.item(tensor)
        return UNKNOWN_VALUE if type(value) is UnknownNumber else float(value)

    def numpy(self, tensor: torch.Tensor, *, force: bool = False) -> Any:
        if force:
            tensor = self.cpu(tensor.detach())
        return self._readable(tensor).numpy(force=force)

    def array(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return self._readable(tensor).__array__(*args, **kwargs)

    def format(self, tensor: torch.Tensor, form: str) -> str:
        """Format as behind f"{tensor:.4f}": a number if it is one, as in `Tensor.__format__`."""
        if record_of(tensor) is None or has_values(tensor):
            return tensor.__format__(form)
        if tensor.dim() == 0 and type(tensor) is torch.Tensor:
            return format(tensor.item(), form)
        return self.repr(tensor) if form == "" else object.__format__(tensor, form)

    def tolist(self, tensor: torch.Tensor) -> Any:
        record = record_of(tensor)
        if record is None or has_values(tensor):
            return tensor.tolist()
        if tensor.dim() == 0:
            return tensor.item()
        if tensor.numel() == 0:
            return torch.empty(tensor.size(), dtype=tensor.dtype, device=_CPU).tolist()
        if record.device_index != HOST:
            self._dispatcher.crosses_to_host(record.device_index, None, non_blocking=False)
        if (values := known(tensor)) is not None:
            return values.tolist()
        return _full(tensor, self._dispatcher.values.read("tolist()", tensor)).tolist()

    def _readable(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a host tensor as NumPy can have it: unknown values become what the policy answers.

        Raises:
            TypeError, RuntimeError: as PyTorch does for a tensor on a GPU or one that needs a
                gradient.
            NoValuesError: the policy is to refuse.
        """
        record = record_of(tensor)
        if record is None:
            return tensor
        if record.device_index != HOST:
            raise TypeError(
                f"can't convert {record.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if has_values(tensor):
            return tensor
        if tensor.requires_grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead."
            )
        if (values := known(tensor)) is not None:
            return values.clone(memory_format=torch.contiguous_format)
        policy = self._dispatcher.values
        read = policy.read_array if tensor.dim() else policy.read
        return _full(tensor, read("numpy()", tensor))

    def ctc_loss(
        self, log_probs: torch.Tensor, targets: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Call CTC loss. CUDA's kernel takes lengths as numbers, from the host or copied to it.

        Unknown lengths are taken to be the longest that fit.
        Source: `ctc_loss` in aten/src/ATen/native/LossCTC.cpp, PyTorch 2.13.
        """
        batch = log_probs.size(1) if log_probs.dim() == 3 else 1
        longest = {
            "input_lengths": log_probs.size(0),
            "target_lengths": targets.size(1) if targets.dim() == 2 else targets.numel() // batch,
        }
        named = dict(zip(longest, args, strict=False)) | kwargs
        for name, length in longest.items():
            lengths = named.get(name)
            if not isinstance(lengths, torch.Tensor):
                continue
            if (values := known(lengths)) is not None:
                named[name] = values.tolist()
            elif not self.is_meta(lengths):
                self._dispatcher.values.assume_all("ctc_loss()", lengths)
                named[name] = [length] * lengths.numel()
        rest = args[len(longest) :]
        front = [named.pop(name) for name in longest if name in named]
        return torch.nn.functional.ctc_loss(log_probs, targets, *front, *rest, **named)

    def istft(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Invert a spectrogram. It asks whether the windows leave a gap: they do not."""
        with self._dispatcher.machine.thread.answering_healthy():
            return torch.istft(*args, **kwargs)

    # Whether all is well, which it is in a healthy run

    def isfinite(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._in_a_healthy_run(tensor, torch.isfinite, healthy=True)

    def isnan(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._in_a_healthy_run(tensor, torch.isnan, healthy=False)

    def isinf(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._in_a_healthy_run(tensor, torch.isinf, healthy=False)

    def _in_a_healthy_run(
        self,
        tensor: torch.Tensor,
        ask: Callable[[torch.Tensor], torch.Tensor],
        healthy: bool,
    ) -> torch.Tensor:
        result = ask(tensor)
        if result.is_meta and tensor.is_floating_point() and known(result) is None:
            remember(result, healthy)
        return result

    # Random numbers

    def _random_in_place(self, fill: Callable[..., torch.Tensor]) -> Override:
        """Fill a tensor with random numbers; of a DTensor, the part that is here.

        PyTorch would copy the state of the GPU's generator between ranks, and ask a fake GPU for
        the result's shape.
        """

        def fill_part(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            to_local = getattr(tensor, "to_local", None)
            if to_local is None or self._backing_device.type != "meta":
                return fill(tensor, *args, **kwargs)
            with torch.no_grad():
                to_local().normal_()
            return tensor

        return fill_part

    # Making tensors from data

    def tensor(self, data: Any, *, device: Any = None, **kwargs: Any) -> torch.Tensor:
        requires_grad = kwargs.pop("requires_grad", False)
        made = self._from_data(torch.tensor, data, device, kwargs)
        return made.requires_grad_(requires_grad)

    def as_tensor(self, data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if args:
            kwargs["dtype"] = args[0]
        if len(args) > 1:
            device = args[1]
        if isinstance(data, torch.Tensor) and record_of(data) is not None:
            return self.to(data, device, kwargs.get("dtype"))
        return self._from_data(torch.as_tensor, data, device, kwargs)

    def new(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a sparse tensor of indices, values and a size, as optimizers of sparse ones do."""
        if tensor.layout is torch.sparse_coo and args and record_of(tensor) is not None:
            with torch.sparse.check_sparse_tensor_invariants(False):
                return torch.sparse_coo_tensor(*args, dtype=tensor.dtype)
        return tensor.new(*args, **kwargs)

    # Sparse tensors

    def sparse_mm(self, mat1: torch.Tensor, mat2: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Multiply; C++ makes the zeros to add to where the dense matrix is.

        Source: `_sparse_mm` in aten/src/ATen/native/sparse/SparseTensorMath.cpp, PyTorch 2.13.
        """
        record = record_of(mat2)
        if record is None or record.device_index == HOST:
            return torch.sparse.mm(mat1, mat2, *args, **kwargs)
        with self._dispatcher.machine.thread.working_on(record.device_index):
            return torch.sparse.mm(mat1, mat2, *args, **kwargs)

    def sparse_coo_tensor(self, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        """Move values and then indices to the GPU, and make a sparse tensor of them.

        Source: `sparse_coo_tensor_ctor` in torch/csrc/utils/tensor_new.cpp, PyTorch 2.13.
        """
        if _cuda_or_none(device) is None:
            return torch.sparse_coo_tensor(*args, device=device, **kwargs)
        parts = dict(zip(("indices", "values", "size"), args, strict=False)) | kwargs
        requires_grad = parts.pop("requires_grad", False)
        if "values" not in parts or parts.get("size") is None:  # the size is read from the indices
            parts = kwargs | {"requires_grad": False}
            made = self.to(torch.sparse_coo_tensor(*args, **parts), device)
        else:
            values, indices = parts.pop("values"), parts.pop("indices")
            values = self.as_tensor(values, dtype=parts.pop("dtype", None), device=device)
            indices = self.as_tensor(indices, dtype=torch.int64, device=device)
            made = torch.sparse_coo_tensor(indices, values, parts.pop("size"), **parts)
        return made.requires_grad_(requires_grad)

    def _refuse_on_gpu(self, make: Callable[..., torch.Tensor]) -> Override:
        """Make compressed sparse tensors on the host only: cuSPARSE's buffers are not known."""

        def compressed(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
            records = (record_of(part) for part in tensors_in(args, kwargs))
            on_gpu = any(record is not None and record.device_index != HOST for record in records)
            if on_gpu or _cuda_or_none(device) is not None:
                raise UnsupportedOnVirtualGPU(
                    f"{make.__name__} on a GPU is not modelled by the virtual GPU, nor are "
                    "products of such tensors. Make one of layout torch.sparse_coo "
                    "(torch.sparse_coo_tensor), or run on a real GPU."
                )
            return make(*args, device=device, **kwargs)

        return compressed

    def new_tensor(self, tensor: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.setdefault("dtype", tensor.dtype)
        kwargs.setdefault("device", self.device(tensor))
        return self.tensor(data, **kwargs)

    def _from_data(
        self, make: Callable[..., torch.Tensor], data: Any, device: Any, kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Make it on the host first, as PyTorch does, then copy."""
        if device is None:
            device = default_device() or _CPU
        device = torch.device(device)
        if device.type != "cuda":
            return make(data, device=device, **kwargs)
        pinned = kwargs.pop("pin_memory", False)
        made = make(data, device=_CPU, **kwargs)
        if pinned:
            mark_as_host(made).pinned = True
        return self.to(made, device)


_COMPRESSED = (
    torch.sparse_compressed_tensor,
    torch.sparse_csr_tensor,
    torch.sparse_csc_tensor,
    torch.sparse_bsr_tensor,
    torch.sparse_bsc_tensor,
)


def _cuda_or_none(device: Any) -> torch.device | None:
    """Read a device that names a GPU, such as "cuda" or 1; None for any other, or for None."""
    if device is None:
        return None
    found = _cuda(device) if isinstance(device, int) else torch.device(device)
    return found if found.type == "cuda" else None


class _Transfer(torch.autograd.Function):
    """A move to another device whose gradient moves back: C++ sees meta on both sides."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, options: dict[str, Any], answers: TensorOverrides
    ) -> Any:
        ctx.device, ctx.dtype, ctx.answers = answers.device(tensor), tensor.dtype, answers
        with DisableTorchFunction():
            ctx.without_values = tensor.is_meta
        return answers.copy_to(tensor, options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        if ctx.without_values and ctx.device.type == "cpu":
            return ctx.answers.to_host_without_values(grad, ctx.dtype), None, None
        return ctx.answers.to(grad, ctx.device, ctx.dtype), None, None


def _parse_to(
    *args: Any, copy: bool = False, **kwargs: Any
) -> tuple[torch.device | None, torch.dtype | None, bool, bool, torch.memory_format]:
    """Read the arguments of `Tensor.to`: (device, dtype, non_blocking, copy, memory format)."""
    if args and isinstance(args[0], int):
        args = (_cuda(args[0]), *args[1:])
    expected = 4 if args and not isinstance(args[0], torch.dtype) else 3
    if len(args) == expected:  # copy is the last positional argument
        *front, copy = args
        args = tuple(front)
    device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
    return device, dtype, non_blocking, copy, memory_format or torch.preserve_format


def _full(like: torch.Tensor, value: Any) -> torch.Tensor:
    """Make a host tensor whose values are there, however large: those of factories may not be."""
    return torch.full((), value, dtype=like.dtype, device=_CPU).expand(like.size()).clone()
