"""The virtual GPU's error messages: torch's words where torch has them, else what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from vramlab.errors import NoValuesError, UnsupportedOnVirtualGPU
from vramlab.gpu.core.op_table import is_written
from vramlab.gpu.core.storage_record import HOST, StorageRecord, record_of
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import OpOverload, dispatch_dump, schema_of

if TYPE_CHECKING:
    from vramlab.gpu.core.machine import Machine


def device_name(tensor: torch.Tensor) -> str:
    """Name the device that a program believes `tensor` to be on."""
    record = record_of(tensor)
    if record is None:
        return str(tensor.device)
    return "cpu" if record.device_index == HOST else f"cuda:{record.device_index}"


def device_mismatch(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> RuntimeError:
    """Report that operands are on different devices, as CUDA's kernels do.

    Source: element-wise kernels check in aten/src/ATen/TensorIterator.cpp; others in the wrapper
    that torchgen writes, through c10::impl::check_and_update_common_device in
    aten/src/ATen/core/op_registration/adaption.cpp; convolutions in `check_input_same_type_as_
    parameters` of aten/src/ATen/native/Convolution.cpp. PyTorch 2.13.
    """
    operands = _operands(func, args, kwargs)
    devices = [device_name(tensor) for _, tensor in operands]
    if schema_of(func).name == "aten::convolution" and "cpu" in devices:
        return _types_differ(operands)
    if iterates(func):
        common = next(device for device in devices if device != "cpu")
        other = next(device for device in devices if device != common)
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{common} and {other}!"
        )
    name, other = next(
        (name, device)
        for (name, _), device in zip(operands, devices, strict=True)
        if device != devices[0]
    )
    return RuntimeError(
        f"Expected all tensors to be on the same device, but got {name} is on {other}, different "
        f"from other tensors on {devices[0]} (when checking argument in method {_wrapper(func)})"
    )


def other_machine(record: StorageRecord, attached: Machine) -> RuntimeError:
    """Report that a tensor is on a GPU of another `VirtualGPU` than the one that is attached."""
    assert record.machine is not None
    return RuntimeError(
        f"a tensor of VirtualGPU({record.machine.devices[0].model.name!r}) is used while "
        f"VirtualGPU({attached.devices[0].model.name!r}) is attached: copy the tensor with .cpu() "
        "and then .cuda(), or attach one VirtualGPU with several GPUs (count=2)"
    )


# Ops without the tag of element-wise ones whose CUDA kernels are TensorIterator's all the same.
_ITERATES = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "masked_fill")

_MOST_SHADOWED_NUMEL = 2**22

# Ops that are another op on CUDA, which is the one to notice: its name, and its arguments'.
_DELEGATES = {
    "embedding": ("index_select", {"weight": "self", "indices": "index"}),
    "stack": ("cat", {}),
}


def iterates(func: OpOverload) -> bool:
    """Return whether an op's CUDA kernel uses TensorIterator, which accepts CPU scalars."""
    name = _plain_name(func).removesuffix("_")
    if name in _ITERATES or name.startswith("_foreach_"):
        return True
    functional = getattr(torch.ops.aten, name, None)
    forms = [getattr(functional, form) for form in functional.overloads()] if functional else []
    return any(torch.Tag.pointwise in form.tags for form in (func, *forms))


def _operands(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, torch.Tensor]]:
    """List the tensors that a kernel compares, in its order: `out` first, no CPU scalars."""
    names = _DELEGATES.get(_plain_name(func), ("", {}))[1]
    arguments = schema_of(func).arguments
    given = {a.name: arg for a, arg in zip(arguments, args, strict=False)} | dict(kwargs)
    return [
        (names.get(a.name, a.name), tensor)
        for a in sorted(arguments, key=lambda a: not a.is_out)
        for tensor in tensors_in((given.get(a.name),))
        if tensor.dim() > 0 or is_written(a) or device_name(tensor) != "cpu"
    ]


def is_written_to(
    tensor: torch.Tensor, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether `tensor` is what the op changes, not an operand."""
    if not schema_of(func).is_mutable:
        return False
    arguments = schema_of(func).arguments
    given = {a.name: arg for a, arg in zip(arguments, args, strict=False)} | dict(kwargs)
    return any(given.get(a.name) is tensor for a in arguments if is_written(a))


def reraise_naming_cuda(error: RuntimeError, tensors: Sequence[torch.Tensor]) -> None:
    """Raise the same error with the GPU's name where C++ has read "meta", if it has.

    The new error must not be bound to a name: its traceback holds the frame, and with it the
    tensors of the program, which would then live until the garbage is collected.

    Args:
        error: raised by PyTorch's C++ code.
        tensors: those of the call; the first on a GPU is taken to be meant.
    """
    text = re.sub(r"\bMeta(\w+)Type\b", r"torch.cuda.\1Tensor", str(error))
    names = [device_name(t) for t in tensors if record_of(t) is not None]
    gpu = next((name for name in names if name != "cpu"), None)
    if type(error) is not RuntimeError or gpu is None:
        return
    text = re.sub(r"\bmeta\b", gpu, text.replace("'meta'", "'cuda'"))
    if text != str(error):
        raise RuntimeError(text) from error


def raise_as_on_cpu(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise what C++ says of these operands, if it refuses them.

    Meta kernels written in Python refuse the same operands in words of their own. CPU and CUDA
    kernels share the checks of sizes. To be called when the op has failed.
    """

    def shadow(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return torch.empty(arg.size(), dtype=arg.dtype, device="cpu")
        return [shadow(item) for item in arg] if isinstance(arg, list | tuple) else arg

    tensors = list(tensors_in(args, kwargs))
    if sum(tensor.numel() for tensor in tensors) > _MOST_SHADOWED_NUMEL:
        return
    kwargs = {name: shadow(arg) for name, arg in kwargs.items() if name != "device"}
    try:
        func(*(shadow(arg) for arg in args), **kwargs)
    except RuntimeError as error:
        if "not implemented for" not in str(error):  # a dtype that CUDA has and the CPU has not
            raise


def _types_differ(operands: list[tuple[str, torch.Tensor]]) -> RuntimeError:
    types = {name: type_name(tensor) for name, tensor in operands}
    other = "weight" if types["weight"] != types["input"] else "bias"
    return RuntimeError(
        f"Input type ({types['input']}) and {other} type ({types[other]}) should be the same"
    )


def type_name(tensor: torch.Tensor) -> str:
    """Name a tensor's type as `tensor.type()` does on the device that a program believes in."""
    name = torch.empty((), dtype=tensor.dtype, device="cpu").type()
    is_on_gpu = device_name(tensor).startswith("cuda")
    return name.replace("torch.", "torch.cuda.", 1) if is_on_gpu else name


def _plain_name(func: OpOverload) -> str:
    return str(schema_of(func).name).removeprefix("aten::")


def _wrapper(func: OpOverload) -> str:
    """Name the C++ function that checks devices: structured kernels are named differently.

    Source: `wrapper_kernel_sig` and `gen_one` in torchgen/dest/register_dispatch_key.py; structured
    kernels are those whose meta function torchgen has written too.
    """
    name, _ = _DELEGATES.get(_plain_name(func), (_plain_name(func), {}))
    overload = str(schema_of(func).overload_name)
    is_out = "_out" if any(a.is_out for a in schema_of(func).arguments) else ""
    if "RegisterMeta" in dispatch_dump(f"aten::{name}" + (overload and f".{overload}")):
        return f"wrapper_CUDA_{name}{is_out}" + (overload and f"_{overload}")
    return f"wrapper_CUDA_{overload}_{name}{is_out}"


def no_kernel(func: OpOverload, error: Exception) -> UnsupportedOnVirtualGPU:
    """Report that an op has no model, so that it is not counted as zero."""
    return UnsupportedOnVirtualGPU(
        f"{func} is not modelled by the virtual GPU: PyTorch has no shape rule for it "
        f"({_first_line(error)}). Replace the op, run this part on the host (.cpu() first), use "
        "values=True for small tensors, or run on a real GPU."
    )


def no_values(what: str, tensor: torch.Tensor | None = None) -> NoValuesError:
    """Report that a value was read that does not exist."""
    of = ""
    if tensor is not None:
        of = f" of a {tensor.dtype} tensor of shape {tuple(tensor.shape)} on {device_name(tensor)}"
    return NoValuesError(
        f"{what}{of}: a virtual GPU keeps the sizes of tensors, not their values. Remove or guard "
        "this line; for small programs, use VirtualGPU(..., values=True) to compute values; or use "
        "`vramlab run`, where reads return nan or 0."
    )


def _first_line(error: Exception) -> str:
    first, *_ = str(error).strip().splitlines() or [type(error).__name__]
    for more in (" You may have run into this message", " This could be because"):
        first = first.partition(more)[0]
    return first.rstrip(".")
