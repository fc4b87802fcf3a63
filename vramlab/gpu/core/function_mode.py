"""The function mode: it translates devices in torch's Python API, above autograd.

Most of PyTorch's API reaches the dispatch mode with the device it was given, and is translated
there. What does not, because it is answered in C++ from the tensor alone (`tensor.device`), or
because C++ would look for a CUDA driver first (`tensor.cuda()`), is overridden here.

A mode is off below a function that went through it. PyTorch's functions in Python that ask a tensor
where it is (`asks_where`) run with the mode on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, MethodWrapperType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import reraise_naming_cuda
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import (
    OpOverload,
    device_constructors,
    pop_function_mode,
    push_function_mode,
)

Override = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Service:
    """What the modes of all threads need of one machine.

    Attributes:
        dispatcher: runs its ops.
        overrides: torch functions, and what is called in their place
            (`stand_ins/tensor_overrides.py`).
    """

    dispatcher: Dispatcher
    overrides: dict[Any, Override]

    def is_backing_device(self, device: Any) -> bool:
        """Return whether a device is the one that stands behind GPUs."""
        return torch.device(device).type == self.dispatcher.backing_device.type


class DeviceMode(TorchFunctionMode):
    """The function mode of one thread.

    Args:
        served: the machine that is awake, or None while none is.
    """

    def __init__(self, served: Callable[[], Service | None]) -> None:
        super().__init__()
        self._served = served

    def retire(self) -> None:
        """Pass everything by from now on."""
        self._served = lambda: None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        service = self._served()
        if service is None:
            return func(*args, **kwargs)
        device = kwargs.get("device")
        if isinstance(device, int):  # C++ would ask for the accelerator that is really there
            kwargs = {**kwargs, "device": torch.device("cuda", device)}
        try:
            override = service.overrides.get(func)
            if override is not None:
                return override(*args, **kwargs)
            # An op that another dispatch mode passes on names the backing device where C++ meant
            # the GPU.
            passed_on = isinstance(func, OpOverload)
            if device is not None:
                names_host = service.is_backing_device(kwargs["device"])
            else:  # where operands are, or else on the host
                names_host = func in device_constructors() and (
                    service.dispatcher.work_where(args, kwargs) is None
                )
            if names_host and not passed_on:
                with service.dispatcher.machine.thread.naming_backing_device():
                    return func(*args, **kwargs)
            gpu = None
            if not passed_on and type(func) is not _GETTER:
                gpu = service.dispatcher.work_where(args, kwargs)
            if gpu is None or service.dispatcher.backing_device.type == "meta":
                return self._run(func, args, kwargs)
            with service.dispatcher.machine.thread.having_operands_on_gpu():
                return self._run(func, args, kwargs)
        except RuntimeError as error:
            reraise_naming_cuda(error, list(tensors_in(args, kwargs)))
            raise

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Run a function of PyTorch's: one that asks where tensors are, with this mode on."""
        if type(func) is not FunctionType or not asks_where(func):
            return func(*args, **kwargs)
        namespace = func.__globals__ | dict.fromkeys(_CHECKS, _sees_no_mode)
        body = FunctionType(
            func.__code__, namespace, func.__name__, func.__defaults__, func.__closure__
        )
        body.__kwdefaults__ = func.__kwdefaults__
        push_function_mode(self)
        try:
            return body(*args, **kwargs)
        finally:
            pop_function_mode()


_GETTER = MethodWrapperType
"""The type of what reads an attribute, such as `torch.Tensor.shape.__get__`."""

_CHECKS = frozenset(
    {"has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"}
)
"""What functions of PyTorch call first, to see whether a mode takes their place."""

_QUESTIONS = {"device", "is_cuda", "is_cpu", "is_meta", "get_device"}


def _sees_no_mode(*_: Any) -> bool:
    return False


@cache
def asks_where(func: FunctionType) -> bool:
    """Return whether a Python function of PyTorch, or one that it calls, asks where tensors are.

    It looks for modes itself: one that others are wrapped around does not. Methods of tensors have
    stand-ins of their own (`stand_ins/tensor_overrides.py`).
    """
    looks = not _CHECKS.isdisjoint(func.__code__.co_names)
    is_method = getattr(torch.Tensor, func.__name__, None) is func
    return looks and not is_method and _asks(func, set())


def _asks(func: FunctionType, seen: set[CodeType]) -> bool:
    func = inspect.unwrap(func)
    code = getattr(func, "__code__", None)
    if code is None or code in seen or not (func.__module__ or "").startswith("torch."):
        return False
    seen.add(code)
    names = set(_names(code))
    called = (func.__globals__.get(name) for name in names)
    return bool(names & _QUESTIONS) or any(
        _asks(each, seen) for each in called if type(each) is FunctionType
    )


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
