"""Look on while ops run on virtual GPUs.

    class Counts(Observer):
        def op_begins(self, func, args, kwargs):
            self.counter[func] += 1

    with gpu.machine.observing(Counts()):
        model(x)

An observer can be added and removed at any time, attached or not. It is called in the thread that
runs the op, between torch's function mode and dispatch mode and its kernel: tensors are what they
are on the backing device, and whatever ops the observer itself runs are not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from vramlab.gpu.torch_internals import OpOverload


class Observer:
    """Callbacks for ops that run on the GPUs of one machine. Override those you need."""

    def op_begins(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Hear of an op below autograd that is about to run; those that it calls come inside it."""

    def op_ran(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Hear that an op has run, and what it gave."""

    def op_ends(self, func: OpOverload) -> None:
        """Hear that an op has run, or has failed."""

    def kernel_takes(self, device_index: int, size_bytes: int, what: str, *, is_kept: bool) -> None:
        """Hear what a kernel is about to allocate for itself, beyond its outputs.

        Args:
            device_index: on which GPU.
            size_bytes: how much it asks for.
            what: as its rule or the library's pool is called.
            is_kept: a workspace that a library's handle keeps; else given back before the op ends.
        """


class RunningOps(Observer, threading.local):
    """Keeps the ops that are running in the calling thread, as a C++ stack would show them.

    Attributes:
        ops: outermost first.
    """

    def __init__(self) -> None:
        self.ops: list[OpOverload] = []

    def op_begins(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Push the op."""
        self.ops.append(func)

    def op_ends(self, func: OpOverload) -> None:
        """Pop it."""
        self.ops.pop()
