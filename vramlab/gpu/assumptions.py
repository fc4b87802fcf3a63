"""Check, once per process, what vramlab assumes about reference counts in CPython and PyTorch.

The autograd engine adds a gradient in place only if nothing else references it. vramlab detects
this by counting references (`ops/inplace_backward.py`). Another CPython or PyTorch may count them
differently; the memory of backward passes would then be wrong, without any error. So when the first
GPU is attached, a few sums with known results run on a separate, hidden GPU. They take about a
millisecond.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vramlab import catalogue
from vramlab.allocator import AllocatorSettings
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.dispatch_mode import AllocationMode
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.machine import Machine
from vramlab.gpu.ops.values import RefuseValues
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    disable_current_modes,
    engine_run_backward,
)
from vramlab.torch_versions import NEWEST, OLDEST, text

aten = torch.ops.aten


class Sums(NamedTuple):
    """How many sums the engine made."""

    in_place: int
    out_of_place: int


def used_twice(x: Tensor, keep: list[Any]) -> Tensor:
    """Use a tensor twice: the engine alone holds the first gradient when the second comes."""
    y = x * 2
    return y * 3 + y * 5


def used_three_times(x: Tensor, keep: list[Any]) -> Tensor:
    """Use a tensor three times: the sum of two is held as the first of them was."""
    y = x * 2
    return y * 3 + y * 5 + y * 7


def passed_on(x: Tensor, keep: list[Any]) -> Tensor:
    """Pass one gradient to both operands of a sum: the engine holds it for another node, too."""
    y = x * 2
    return (y * 3 + (y * 5 + y)) * 7


def kept_by_hooks(x: Tensor, keep: list[Any]) -> Tensor:
    """Keep both gradients in hooks: the program holds them."""
    y = x * 2
    a, b = y * 3, y * 5
    for tensor in (a, b):
        tensor.grad_fn.register_hook(lambda gradients, _: keep.append(gradients))  # type: ignore[union-attr]
    return a + b


def kept_by_views(x: Tensor, keep: list[Any]) -> Tensor:
    """Keep views of both: the program holds their storages."""
    y = x * 2
    a, b = y * 3, y * 5
    for tensor in (a, b):
        tensor.grad_fn.register_hook(lambda gradients, _: keep.append(gradients[0].detach()))  # type: ignore[union-attr]
    return a + b


EXPECTED: dict[Callable[[Tensor, list[Any]], Tensor], Sums] = {
    used_twice: Sums(1, 0),  # the first of all: its numbers are those of an unreferenced one
    used_three_times: Sums(2, 0),
    passed_on: Sums(1, 1),
    kept_by_hooks: Sums(0, 1),
    kept_by_views: Sums(0, 1),
}
"""Programs, and the sums of their backward passes. Source: `can_accumulate_inplace` in
torch/csrc/autograd/input_buffer.cpp, PyTorch 2.0 to 2.13."""


@functools.cache
def check() -> None:
    """Try everything; nothing happens from the second time on.

    Raises:
        UnsupportedOnVirtualGPU: an assumption does not hold, and what to do.
    """
    machine = Machine([catalogue.find("T4")], AllocatorSettings(), (2, 0))
    dispatcher = Dispatcher(machine, torch.device("meta"), RefuseValues(), 0)
    for program, expected in EXPECTED.items():
        found = sums_of(program, dispatcher)
        if found != expected:
            raise UnsupportedOnVirtualGPU(
                f"vramlab cannot tell on this machine which gradients autograd adds up in place, "
                f"so that backward passes would get a wrong memory: of a tensor "
                f"{program.__name__.replace('_', ' ')} it should see {expected}, and sees {found}. "
                "It counts references (sys.getrefcount, Tensor._use_count), and "
                f"{platform.python_implementation()} {platform.python_version()} with PyTorch "
                f"{torch.__version__} counts otherwise than the versions that vramlab is tested "
                f"with, CPython and PyTorch {text(OLDEST)} to {text(NEWEST)}. Use one of these, "
                "and please report this message."
            )


def sums_of(program: Callable[[Tensor, list[Any]], Tensor], dispatcher: Dispatcher) -> Sums:
    """Run a program backward, whatever the calling thread is in, and count the engine's sums."""
    with (
        disable_current_modes(),
        DisableTorchFunction(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
        AllocationMode(lambda: dispatcher),
    ):
        place = torch.device("cuda", 0)
        x = aten.ones.default([1], device=place).requires_grad_()
        output, gradient = program(x, []), aten.ones.default([1], device=place)
        dispatcher.seen.clear()
        # As torch.autograd.backward does, which imports SymPy first.
        engine_run_backward(
            (output,), (gradient,), False, False, (x,), allow_unreachable=True, accumulate_grad=True
        )
    seen = dispatcher.seen
    return Sums(seen.get(aten.add_.Tensor, 0), seen.get(aten.add.Tensor, 0))
