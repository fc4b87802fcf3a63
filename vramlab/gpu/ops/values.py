"""What a program gets where it reads a value of a tensor that has none.

A virtual GPU computes no values. Those of small tensors are known all the same while all that they
are made of is (`vramlab.gpu.core.values`), and then the answer is the true one. For everything
else the policy decides: an error that says what to do, or, under `vramlab run`, nan and 0, or what
a healthy run has where a program only branches on it (GradScaler finds no infinities). Each is
noted with the line of the program that asked.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from vramlab.gpu.core.dispatch_mode import AllocationMode
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import no_values
from vramlab.gpu.core.op_table import handler, op
from vramlab.gpu.core.stack_frames import asking_frame, user_line
from vramlab.gpu.core.storage_record import (
    SHADOWS,
    Scalar,
    has_values,
    known,
    known_number,
    remember,
)
from vramlab.gpu.core.values.branches import healthy_answer
from vramlab.gpu.core.values.read_places import ReadPlaces
from vramlab.gpu.core.values.shadows import UNKNOWN
from vramlab.gpu.core.values.value_policy import ValuePolicy
from vramlab.gpu.ops.callers import asking
from vramlab.gpu.ops.counts import counted_as
from vramlab.gpu.torch_internals import OpOverload, plain_name_of, schema_of

aten = torch.ops.aten

# Factories, and from their arguments the value that they fill a tensor with.
op(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    fill=lambda args: 0,
)
op("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", fill=lambda args: 1)
op("aten.full.default", "aten.full_like.default", fill=lambda args: args[1])
op("aten.new_full.default", fill=lambda args: args[2])
op("aten.scalar_tensor.default", fill=lambda args: args[0])


class RefuseValues(ValuePolicy):
    """Every read of an unknown value is an error that says what to do.

    Except where PyTorch asks for itself (`callers.py`), as its optimizers do.
    """

    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        if (caller := asking(tensor.dtype)) is not None:
            told = caller.tells()
            return unknown(tensor.dtype) if told is None else told
        raise no_values(what, tensor)

    def read_array(self, what: str, tensor: torch.Tensor) -> Scalar:
        return self.read(what, tensor)

    def truth(self, what: str, healthy: bool, tensor: torch.Tensor) -> bool:
        raise no_values(what, tensor)

    def assume_all(self, what: str, tensor: torch.Tensor) -> None:
        raise no_values(f"the shape of the result of {what} depends on the values", tensor)

    def save(self, tensor: torch.Tensor) -> None:
        raise no_values("saving", tensor)


class AnswerNan(ValuePolicy):
    """Reads answer nan (floating point) or 0, and are counted by the line that asked.

    Counts of masks answer as if all were chosen. A truth value by which the program would raise is
    the other one, as in a healthy run; else it is False. Arrays answer 0: what takes arrays
    (histograms, assignments, metrics) refuses nan.

    Args:
        zero: return 0 instead of nan, too.

    Attributes:
        reads: (what, "file:line") -> how often.
        places: where in the code that was.
        last_line: where a value was read last.
    """

    def __init__(self, zero: bool = False) -> None:
        self.reads: Counter[tuple[str, str]] = Counter()
        self.places = ReadPlaces()
        self.last_line: str | None = None
        self._zero = zero

    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        caller = asking(tensor.dtype)
        if caller is not None and (told := caller.tells()) is not None:
            return told
        if tensor.dtype == torch.bool and what == "item()":
            frame = asking_frame()
            answer = None if frame is None else healthy_answer(frame)
            if answer is not None:
                self._note(f"{what} (so that nothing is raised)")
                return answer
        number = counted_as(tensor)
        if number is not None and tensor.dtype != torch.bool:
            self._note(f"{what} (as if all were chosen)")
            return number * 1.0 if tensor.dtype.is_floating_point else number
        self._note(what)
        return dtype_zero(tensor.dtype) if self._zero else unknown(tensor.dtype)

    def read_array(self, what: str, tensor: torch.Tensor) -> Scalar:
        self._note(what)
        number = counted_as(tensor)
        return dtype_zero(tensor.dtype) if number is None else number

    def truth(self, what: str, healthy: bool, tensor: torch.Tensor) -> bool:
        self._note(what)
        frame = asking_frame()
        answer = None if frame is None else healthy_answer(frame)
        return healthy if answer is None else answer

    def assume_all(self, what: str, tensor: torch.Tensor) -> None:
        self._note(f"shape of {what} (as if all were chosen)")

    def save(self, tensor: torch.Tensor) -> None:
        self._note("saving (shapes only)")

    def _note(self, what: str) -> None:
        self.places.note(what)
        self.last_line = user_line()
        self.reads[what, self.last_line] += 1


PADDING = "nn.TransformerEncoder with padding"
"""What depends on the values of its padding mask."""

HEALTHY = {"isfinite": True, "isnan": False, "isinf": False}
"""What a healthy run hears of each element of a tensor."""


class UnknownNumber(float):
    """A nan that stands for an unknown number, and so does what is computed with it."""

    def __new__(cls) -> UnknownNumber:
        return super().__new__(cls, "nan")

    def __reduce__(self) -> Any:
        return float, ("nan",)


def _stays_unknown(name: str) -> None:
    computed = getattr(float, name)

    def compute(self: UnknownNumber, *others: Any) -> Any:
        result = computed(self, *others)
        return UnknownNumber() if isinstance(result, float) else result

    setattr(UnknownNumber, name, compute)


for _operator in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _stays_unknown(f"__{_operator}__")
    _stays_unknown(f"__r{_operator}__")
for _operator in ("abs", "neg", "pos"):
    _stays_unknown(f"__{_operator}__")


def dtype_zero(dtype: torch.dtype) -> Scalar:
    """Return 0 as the Python number that a dtype reads as."""
    return False if dtype == torch.bool else 0.0 if dtype.is_floating_point else 0


def unknown(dtype: torch.dtype) -> Scalar:
    """Return what stands for an unknown value: nan, or 0 where a dtype has no nan."""
    if dtype.is_floating_point:
        return UnknownNumber()
    if dtype.is_complex:
        return complex("nan")
    return False if dtype == torch.bool else 0


@handler("aten._local_scalar_dense.default")
def item(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Scalar:
    """Read `tensor.item()`, also behind float(), int(), bool() and formatting."""
    (tensor,) = args
    dispatcher.host_waits_for(tensor)
    if has_values(tensor):
        return func(tensor)
    value = known_number(tensor)
    return dispatcher.values.read("item()", tensor) if value is None else value


@handler("aten.fill_.Scalar", "aten.fill_.Tensor", "aten.zero_.default")
def fill_(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Fill in place; from now on the value is known, if it was."""
    tensor, *given = args
    value: Any = given[0] if given else 0
    if isinstance(value, torch.Tensor):
        value = known_number(value)
    dispatcher.run_plain(func, args, kwargs)
    if SHADOWS.is_followed(tensor):
        if value is None:
            SHADOWS.forget(tensor)
        else:
            SHADOWS.fill(tensor, value)
    return tensor


@handler("aten.equal.default", "aten.allclose.default")
def equal(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Return `torch.equal` and `torch.allclose`: shapes decide where they differ."""
    left, right = args[:2]
    _compare(dispatcher, func, args, kwargs)
    dispatcher.host_waits_for(left)
    values = known(left), known(right)
    if values[0] is not None and values[1] is not None:
        return bool(func(*values, *args[2:], **kwargs))
    if func is aten.equal.default and left.shape != right.shape:
        return False
    if dispatcher.machine.thread.answer_healthy:
        return False
    name = schema_of(func).name.removeprefix("aten::")
    likely = likely_equal(name, *values, left.dtype)
    return bool(dispatcher.values.truth(f"torch.{name}", likely, left))


def likely_equal(
    name: str, left: torch.Tensor | None, right: torch.Tensor | None, dtype: torch.dtype
) -> bool:
    """Return what to assume of two tensors of which at least one is not known.

    Results that are compared with each other are equal in a healthy run; a computed float that is
    compared with a constant (`torch.equal(gradient, one)`) hardly ever is.
    """
    with_constant = (left is None) != (right is None)
    return not (name == "equal" and with_constant and dtype.is_floating_point)


def _compare(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Allocate what comparing two tensors on a GPU takes.

    Source: `cuda_equal` in aten/src/ATen/native/cuda/Equal.cpp, `allclose` in TensorCompare.cpp,
    PyTorch 2.13.
    """
    left, right = args[:2]
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if device_index is None or device_index < 0 or not left.is_meta:
        return
    with AllocationMode(lambda: dispatcher):
        if func is aten.allclose.default:
            aten.all(aten.isclose(*args, **kwargs))
        elif left.shape == right.shape and left.numel():
            aten.all(aten.eq(left, right))


@handler("aten._nested_tensor_from_mask_left_aligned.default")
def left_aligned(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Return whether a mask pads at the end only, so that nn.TransformerEncoder may cut it off.

    What is cut off, the values say. Without them, all of it stays, which is the most it can take.
    """
    _, mask = args
    if has_values(mask):
        dispatcher.host_waits_for(mask)
        return bool(func(*args, **kwargs))
    _compare_lengths(dispatcher, func, args, kwargs)
    dispatcher.host_waits_for(mask)
    dispatcher.values.assume_all(PADDING, mask)
    return False


def _compare_lengths(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Allocate what comparing each length with the first position that is padded takes.

    Source: `NestedTensor_nested_tensor_from_mask_left_aligned` in
    aten/src/ATen/native/nested/NestedTensorMath.cpp, PyTorch 2.13.
    """
    _, mask = args
    device_index = dispatcher.find_device_index(func, args, kwargs)
    if device_index is None or device_index < 0 or not mask.is_meta:
        return
    with AllocationMode(lambda: dispatcher):
        padding = mask.new_zeros([mask.size(0), 1])
        padded = torch.cat([mask, padding], 1)
        first_padded = padded.to(torch.int32).argmin(1)
        lengths = mask.cumsum(1)[:, -1]
        aten.all(aten.eq(lengths, first_padded))


@handler("aten._assert_async.default", "aten._assert_async.msg")
def assert_async(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Check an assertion on the device, where there are values."""
    if not args[0].is_meta:
        func(*args, **kwargs)


@handler("aten._amp_foreach_non_finite_check_and_unscale_.default")
def unscale(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Unscale gradients for GradScaler: a healthy run finds no infinities."""
    gradients, found_inf, _ = args
    if not found_inf.is_meta:
        func(*args, **kwargs)
        return
    dispatcher.find_device_index(func, args, kwargs)
    name, written = plain_name_of(func), [*gradients, found_inf]
    if SHADOWS.follow(func, name, args, kwargs, None, written) is UNKNOWN:
        remember(found_inf, 0.0)


@handler("aten._amp_update_scale_.default")
def update_scale(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Update the scale for GradScaler: it grows after `interval` steps without infinities.

    Source: amp_update_scale_cuda_kernel in aten/src/ATen/native/cuda/AmpKernels.cu, PyTorch 2.13.
    """
    if args[0].is_meta:
        SHADOWS.follow(func, plain_name_of(func), args, kwargs, None, args[:2])
    else:
        func(*args, **kwargs)
    scale: torch.Tensor = args[0]
    return scale
