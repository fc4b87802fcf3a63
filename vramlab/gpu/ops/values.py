"""What a program gets where it reads a value of a tensor that has none.

A virtual GPU on the meta carrier keeps no values. A few are known all the same, and then the answer
is the true one: a tensor that `torch.ones` or `full` has filled, one element, or few whole numbers,
copied from the host, until an op changes them; what logic makes of those (`uniform.py`); and what a
healthy run has where a program only branches on it (GradScaler finds no infinities). For everything
else the policy decides: an error that says what to do, or, under `vramlab run`, nan and 0, each
noted with the line of the program that asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from vramlab.gpu.core.dispatcher import Dispatcher, handles
from vramlab.gpu.core.errors import no_values
from vramlab.gpu.core.stack_frames import user_line
from vramlab.gpu.core.storage_record import Scalar, has_values, holding_of, wraps
from vramlab.gpu.ops.callers import asking

aten = torch.ops.aten

# Factories of a known value -> the value, or the position of the argument that holds it.
_FILLS: dict[OpOverload, Callable[[tuple[Any, ...]], Any]] = {
    aten.zeros.default: lambda args: 0,
    aten.ones.default: lambda args: 1,
    aten.full.default: lambda args: args[1],
    aten.scalar_tensor.default: lambda args: args[0],
}


class ValuePolicy(ABC):
    """Decides what a program gets where it reads a value that does not exist."""

    @abstractmethod
    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        """Answer `tensor.item()`, or raise."""

    @abstractmethod
    def truth(self, what: str, healthy: bool, tensor: torch.Tensor) -> bool:
        """Answer a question such as `torch.equal`, or raise."""

    @abstractmethod
    def assume_all(self, what: str, tensor: torch.Tensor) -> None:
        """Allow that a result whose shape depends on values is as large as can be, or raise."""

    @abstractmethod
    def save(self, tensor: torch.Tensor) -> None:
        """Allow that a tensor without values is saved, or raise."""

    def remember_fill(self, func: OpOverload, args: tuple[Any, ...], result: Any) -> None:
        """Remember the value that a factory has filled a tensor with."""
        fill = _FILLS.get(func)
        if fill is not None:
            remember(result, fill(args))


class RefuseValues(ValuePolicy):
    """Every read of an unknown value is an error that says what to do.

    Except where PyTorch asks for itself (`callers.py`), as its optimizers do.
    """

    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        if (caller := asking(tensor.dtype)) is not None:
            return unknown(tensor.dtype) if caller.answer is None else caller.answer
        raise no_values(what, tensor)

    def truth(self, what: str, healthy: bool, tensor: torch.Tensor) -> bool:
        raise no_values(what, tensor)

    def assume_all(self, what: str, tensor: torch.Tensor) -> None:
        raise no_values(f"the shape of the result of {what} depends on the values", tensor)

    def save(self, tensor: torch.Tensor) -> None:
        raise no_values("saving", tensor)


class AnswerNan(ValuePolicy):
    """Reads answer nan (floating point) or 0, and are counted by the line that asked.

    Attributes:
        reads: (what, "file:line") -> how often.
    """

    def __init__(self) -> None:
        self.reads: Counter[tuple[str, str]] = Counter()

    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        caller = asking(tensor.dtype)
        if caller is not None and caller.answer is not None:
            return caller.answer
        self.reads[what, user_line()] += 1
        return unknown(tensor.dtype)

    def truth(self, what: str, healthy: bool, tensor: torch.Tensor) -> bool:
        self.reads[what, user_line()] += 1
        return healthy

    def assume_all(self, what: str, tensor: torch.Tensor) -> None:
        self.reads[f"shape of {what} (as if all were chosen)", user_line()] += 1

    def save(self, tensor: torch.Tensor) -> None:
        self.reads["saving (shapes only)", user_line()] += 1


def unknown(dtype: torch.dtype) -> Scalar:
    """What stands for a value that nobody knows: nan, or 0 where a dtype has no nan."""
    if dtype.is_floating_point:
        return float("nan")
    if dtype.is_complex:
        return complex("nan")
    return False if dtype == torch.bool else 0


def remember(tensor: torch.Tensor, value: Scalar) -> None:
    """Note what every element of a tensor is, as its dtype holds it, if it fills its storage."""
    holding = holding_of(tensor)
    if holding is not None and tensor.untyped_storage().nbytes() == tensor.nbytes:
        holding.value = torch.tensor(value, dtype=tensor.dtype, device="cpu").item()
        holding.numbers = None


def known(tensor: torch.Tensor) -> Scalar | None:
    """The value of every element of a tensor, where it is known."""
    if has_values(tensor):
        return tensor.item() if tensor.numel() == 1 else None
    holding = holding_of(tensor)
    if holding is None:
        return None
    if tensor.numel() == 1 and (numbers := known_numbers(tensor)) is not None:
        return numbers.item()
    return holding.value


_MOST_NUMBERS_BYTES = 2**16


def remember_numbers(source: torch.Tensor, copied: torch.Tensor) -> None:
    """Note few whole numbers that are copied from the host: sizes, lengths, labels.

    Programs copy such numbers back to count with them, and to make tensors of those sizes.
    """
    holding = holding_of(copied)
    if holding is None or copied.layout != torch.strided or wraps(type(copied)):
        return
    if copied.dtype.is_floating_point or copied.dtype.is_complex:
        return
    storage_bytes = copied.untyped_storage().nbytes()
    if storage_bytes != copied.nbytes or storage_bytes > _MOST_NUMBERS_BYTES:
        return
    flat = torch.empty(copied.numel(), dtype=copied.dtype, device="cpu")
    flat.as_strided(copied.size(), copied.stride()).copy_(source)
    holding.numbers = flat


def known_numbers(tensor: torch.Tensor) -> torch.Tensor | None:
    """The numbers of a tensor on a GPU, as a host tensor, where they are known."""
    holding = holding_of(tensor)
    numbers = None if holding is None else holding.numbers
    if numbers is None or numbers.dtype != tensor.dtype:
        return None
    return numbers.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


@handles(aten._local_scalar_dense.default)
def item(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Scalar:
    """`tensor.item()`, also behind float(), int(), bool() and formatting."""
    (tensor,) = args
    if has_values(tensor):
        return func(tensor)
    value = known(tensor)
    return dispatcher.values.read("item()", tensor) if value is None else value


@handles(aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default)
def fill_(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """`tensor.fill_(value)` and `zero_()`: from now on the value is known, if it was."""
    tensor, *given = args
    value: Any = given[0] if given else 0
    if isinstance(value, torch.Tensor):
        value = known(value)
    dispatcher.run_plain(func, args, kwargs)
    if value is not None and tensor.is_meta:
        remember(tensor, value)
    return tensor


@handles(aten.equal.default, aten.allclose.default)
def equal(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> bool:
    """`torch.equal` and `torch.allclose`: shapes decide where they differ."""
    left, right = args[:2]
    if has_values(left) and has_values(right):
        return bool(func(*args, **kwargs))
    if func is aten.equal.default and left.shape != right.shape:
        return False
    if dispatcher.machine.thread.finds_no_fault:
        return False
    name = func._schema.name.removeprefix("aten::")
    return bool(dispatcher.values.truth(f"torch.{name}", True, left))


@handles(aten._nested_tensor_from_mask_left_aligned.default)
def left_aligned(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Whether a padding mask pads at the end only, so that nn.TransformerEncoder may cut it off.

    What is cut off, the values say. Without them, it stays.
    """
    _, mask = args
    if has_values(mask):
        return bool(func(*args, **kwargs))
    return bool(dispatcher.values.truth("nn.TransformerEncoder, of its padding mask", False, mask))


@handles(aten._assert_async.default, aten._assert_async.msg)
def assert_async(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """An assertion on the device: nothing to check without values."""
    if not args[0].is_meta:
        func(*args, **kwargs)


@handles(aten._amp_foreach_non_finite_check_and_unscale_.default)
def unscale(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """GradScaler's unscale: a healthy run finds no infinities."""
    _, found_inf, _ = args
    if not found_inf.is_meta:
        func(*args, **kwargs)
        return
    dispatcher.place_of(func, args, kwargs)
    remember(found_inf, 0.0)


@handles(aten._amp_update_scale_.default)
def update_scale(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """GradScaler's update: the scale grows after `interval` steps without infinities.

    Source: amp_update_scale_cuda_kernel in aten/src/ATen/native/cuda/AmpKernels.cu, PyTorch 2.13.
    """
    scale, growth_tracker, found_inf, growth_factor, backoff_factor, interval = args
    if not scale.is_meta:
        func(*args, **kwargs)
        return scale
    value, steps, infinite = known(scale), known(growth_tracker), known(found_inf)
    if value is None or steps is None or infinite is None:
        for tensor in (scale, growth_tracker):
            if (holding := holding_of(tensor)) is not None:
                holding.forget()
    elif infinite:
        remember(scale, value * backoff_factor)
        remember(growth_tracker, 0)
    elif steps + 1 == interval:
        remember(scale, value * growth_factor)
        remember(growth_tracker, 0)
    else:
        remember(growth_tracker, steps + 1)
    return scale
