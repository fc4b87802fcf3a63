"""The dispatch mode: it sees every ATen op below autograd, and hands it to the dispatcher."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import torch

from vramlab.errors import OutOfDeviceMemory
from vramlab.gpu.core.backward_nodes import ENGINE, run_in_node
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.higher_order import in_eager
from vramlab.gpu.core.ops_in_python import kernel_of_program
from vramlab.gpu.core.storage_record import wraps
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    HigherOrderOperator,
    OpOverload,
    TorchDispatchMode,
    TorchDispatchModeKey,
    current_graph_task_id,
    get_dispatch_mode,
)

# While fake tensors are computed, which stand for shapes: DTensor asks them for those of a whole.
_FAKE = TorchDispatchModeKey.FAKE


class AllocationMode(TorchDispatchMode):
    """The dispatch mode of one thread: hands each op to the `Dispatcher` that all threads share.

    Args:
        served: that of the GPU that is awake, or None while none is.
        around_python: entered around a kernel that the program has written in Python, so that it
            sees tensors as the program does.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        served: Callable[[], Dispatcher | None],
        around_python: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        super().__init__()
        self._served = served
        self._around_python = around_python

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
        if dispatcher is None or get_dispatch_mode(_FAKE) is not None:
            return func(*args, **(kwargs or {}))
        if isinstance(func, HigherOrderOperator):
            with self:
                return in_eager(func)(*args, **(kwargs or {}))
        if any(map(wraps, types)):  # a DTensor, say: it makes ops on the tensors that it holds
            return NotImplemented
        if (path := dispatcher.path_of(func, args, kwargs or {})) is not None:
            in_python = kernel_of_program(func) is not None
            with self, self._around_python() if in_python else nullcontext():
                return path(*args, **(kwargs or {}))
        # In the backward pass the function mode is still on; kernels must see tensors as they are.
        with DisableTorchFunction():
            try:
                if current_graph_task_id() != -1 and sys._getframe(1).f_code is ENGINE:
                    result = run_in_node(dispatcher, func, args, kwargs or {})
                    if result is not NotImplemented:
                        return result
                return dispatcher.run(func, args, kwargs or {})
            except OutOfDeviceMemory as error:
                raise torch.OutOfMemoryError(str(error)) from error


_OP = AllocationMode.__torch_dispatch__.__code__


def engine_asks() -> bool:
    """Return whether the engine itself called the running op, without Python code between."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _OP:
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    return caller is not None and caller.f_code is ENGINE
