"""The function mode: it translates devices in torch's Python API, above autograd.

Most of PyTorch's API reaches the dispatch mode with the device it was given, and is translated
there. What does not, because it is answered in C++ from the tensor alone (`tensor.device`), or
because C++ would look for a CUDA driver first (`tensor.cuda()`), is overridden here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.errors import reraise_naming_cuda
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import OpOverload

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
        """Tell whether a device is the one that stands behind GPUs."""
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
            if not passed_on and device is not None and service.is_backing_device(kwargs["device"]):
                with service.dispatcher.machine.thread.naming_backing_device():
                    return func(*args, **kwargs)
            return func(*args, **kwargs)
        except RuntimeError as error:
            reraise_naming_cuda(error, list(tensors_in(args, kwargs)))
            raise
