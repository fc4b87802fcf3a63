"""`Session`: what every stand-in gets while a GPU is awake."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.machine import Machine
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.values.value_policy import ValuePolicy


@dataclass(frozen=True)
class Session:
    """The time from a GPU's waking until it sleeps, and what stand-ins may use in it.

    Attributes:
        machine: the GPUs, their allocators, the current device and stream of each thread.
        dispatcher: runs their ops.
        values: what a program gets where it reads a value that does not exist.
        patches: sets attributes; they are put back when the session ends.
        library: registers kernels of aten's ops; they are gone when the session ends.
        make_alike: makes another `VirtualGPU` with the same options; it can be pickled.
        thread_ends: takes back what the calling thread has borrowed from every attached GPU.
    """

    machine: Machine
    dispatcher: Dispatcher
    values: ValuePolicy
    patches: Patches
    library: torch.library.Library
    make_alike: Callable[[], AbstractContextManager[object]]
    thread_ends: Callable[[], None]

    @property
    def backing_device(self) -> torch.device:
        """Where C++ has the tensors of the GPUs: "meta", or "cpu" where values are computed."""
        return self.dispatcher.backing_device

    @property
    def has_values(self) -> bool:
        """Whether tensors on the GPUs have values."""
        return self.backing_device.type == "cpu"


StandIn = Callable[[Session], AbstractContextManager[object] | None]
"""Replaces a part of PyTorch. What it sets through the session is undone with
it; what is to be undone otherwise, by the context manager that it returns."""
