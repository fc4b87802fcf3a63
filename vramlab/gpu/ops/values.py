"""What a program gets where it reads a value of a tensor that has none.

A virtual GPU backed by meta tensors keeps no values. A few are known all the same, and then the
answer is the true one: a tensor that `torch.ones` or `full` has filled, one element, or few whole
numbers, copied from the host, until an op changes them; what logic makes of those
(`known_values.py`); and what a healthy run has where a program only branches on it (GradScaler
finds no infinities). For everything else the policy decides: an error that says what to do, or,
under `vramlab run`, nan and 0, each noted with the line of the program that asked.
"""

from __future__ import annotations

import linecache
from collections import Counter
from typing import Any

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import no_values
from vramlab.gpu.core.op_table import handler, op
from vramlab.gpu.core.stack_frames import asking_frame, user_line
from vramlab.gpu.core.storage_record import Scalar, has_values, known, record_of, remember
from vramlab.gpu.core.value_policy import ValuePolicy
from vramlab.gpu.ops.callers import asking
from vramlab.gpu.ops.counts import counted_as
from vramlab.gpu.torch_internals import OpOverload, schema_of

aten = torch.ops.aten

# Factories, and from their arguments the value that they fill a tensor with.
op("aten.zeros.default", fill=lambda args: 0)
op("aten.ones.default", fill=lambda args: 1)
op("aten.full.default", fill=lambda args: args[1])
op("aten.scalar_tensor.default", fill=lambda args: args[0])


class RefuseValues(ValuePolicy):
    """Every read of an unknown value is an error that says what to do.

    Except where PyTorch asks for itself (`callers.py`), as its optimizers do.
    """

    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        if (caller := asking(tensor.dtype)) is not None:
            return unknown(tensor.dtype) if caller.answer is None else caller.answer
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

    Counts of masks answer as if all were chosen, and what a program asserts is true, as it is in a
    healthy run. Arrays answer 0: what takes arrays (histograms, assignments, metrics) refuses nan.

    Args:
        zero: answer 0 in place of nan, too.

    Attributes:
        reads: (what, "file:line") -> how often.
        last_line: where a value was read last.
    """

    def __init__(self, zero: bool = False) -> None:
        self.reads: Counter[tuple[str, str]] = Counter()
        self.last_line: str | None = None
        self._zero = zero

    def read(self, what: str, tensor: torch.Tensor) -> Scalar:
        caller = asking(tensor.dtype)
        if caller is not None and caller.answer is not None:
            return caller.answer
        if tensor.dtype == torch.bool and what == "item()" and _is_asserted():
            self._note(f"{what} (as it is asserted)")
            return True
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
        return healthy

    def assume_all(self, what: str, tensor: torch.Tensor) -> None:
        self._note(f"shape of {what} (as if all were chosen)")

    def save(self, tensor: torch.Tensor) -> None:
        self._note("saving (shapes only)")

    def _note(self, what: str) -> None:
        self.last_line = user_line()
        self.reads[what, self.last_line] += 1


def _is_asserted() -> bool:
    """Tell whether the line that asks is an `assert`.

    Not one further out: what it calls may ask for other things, and go on until they are False
    (`torch.nn.init.trunc_normal_`, PyTorch 2.13).
    """
    frame = asking_frame()
    if frame is None:
        return False
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).split()
    return line[:1] == ["assert"] and line[1:2] != ["not"]


def dtype_zero(dtype: torch.dtype) -> Scalar:
    """Return 0 as the Python number that a dtype reads as."""
    return False if dtype == torch.bool else 0.0 if dtype.is_floating_point else 0


def unknown(dtype: torch.dtype) -> Scalar:
    """Return what stands for an unknown value: nan, or 0 where a dtype has no nan."""
    if dtype.is_floating_point:
        return float("nan")
    if dtype.is_complex:
        return complex("nan")
    return False if dtype == torch.bool else 0


@handler("aten._local_scalar_dense.default")
def item(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> Scalar:
    """Read `tensor.item()`, also behind float(), int(), bool() and formatting."""
    (tensor,) = args
    if has_values(tensor):
        return func(tensor)
    value = known(tensor)
    return dispatcher.values.read("item()", tensor) if value is None else value


@handler("aten.fill_.Scalar", "aten.fill_.Tensor", "aten.zero_.default")
def fill_(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Fill in place; from now on the value is known, if it was."""
    tensor, *given = args
    value: Any = given[0] if given else 0
    if isinstance(value, torch.Tensor):
        value = known(value)
    dispatcher.run_plain(func, args, kwargs)
    if value is not None and tensor.is_meta:
        remember(tensor, value)
    return tensor


@handler("aten.equal.default", "aten.allclose.default")
def equal(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Answer `torch.equal` and `torch.allclose`: shapes decide where they differ."""
    left, right = args[:2]
    if has_values(left) and has_values(right):
        return bool(func(*args, **kwargs))
    if func is aten.equal.default and left.shape != right.shape:
        return False
    if dispatcher.machine.thread.answer_healthy:
        return False
    name = schema_of(func).name.removeprefix("aten::")
    return bool(dispatcher.values.truth(f"torch.{name}", True, left))


@handler("aten._nested_tensor_from_mask_left_aligned.default")
def left_aligned(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Tell whether a mask pads at the end only, so that nn.TransformerEncoder may cut it off.

    What is cut off, the values say. Without them, it stays.
    """
    _, mask = args
    if has_values(mask):
        return bool(func(*args, **kwargs))
    return bool(dispatcher.values.truth("nn.TransformerEncoder, of its padding mask", False, mask))


@handler("aten._assert_async.default", "aten._assert_async.msg")
def assert_async(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Check an assertion on the device, where there are values."""
    if not args[0].is_meta:
        func(*args, **kwargs)


@handler("aten._amp_foreach_non_finite_check_and_unscale_.default")
def unscale(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> None:
    """Unscale gradients for GradScaler: a healthy run finds no infinities."""
    _, found_inf, _ = args
    if not found_inf.is_meta:
        func(*args, **kwargs)
        return
    dispatcher.find_device_index(func, args, kwargs)
    remember(found_inf, 0.0)


@handler("aten._amp_update_scale_.default")
def update_scale(dispatcher: Dispatcher, func: OpOverload, args: Any, kwargs: Any) -> torch.Tensor:
    """Update the scale for GradScaler: it grows after `interval` steps without infinities.

    Source: amp_update_scale_cuda_kernel in aten/src/ATen/native/cuda/AmpKernels.cu, PyTorch 2.13.
    """
    scale, growth_tracker, found_inf, growth_factor, backoff_factor, interval = args
    if not scale.is_meta:
        func(*args, **kwargs)
        return scale
    value, steps, infinite = known(scale), known(growth_tracker), known(found_inf)
    if value is None or steps is None or infinite is None:
        for tensor in (scale, growth_tracker):
            if (record := record_of(tensor)) is not None:
                record.forget_values()
    elif infinite:
        remember(scale, value * backoff_factor)
        remember(growth_tracker, 0)
    elif steps + 1 == interval:
        remember(scale, value * growth_factor)
        remember(growth_tracker, 0)
    else:
        remember(growth_tracker, steps + 1)
    return scale
