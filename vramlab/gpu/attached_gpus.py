"""Which virtual GPUs are attached: the one place that knows."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramlab.gpu.virtual_gpu import VirtualGPU


class AttachedGPUs:
    """The virtual GPUs that are attached. The newest of them is awake, the others sleep.

    Attaching is process-wide: all threads see the same GPU. So only one thread at a time attaches.

    Attributes:
        newest: the one that is awake, or None; every op asks.
        for_program: the one that `vramlab.attach()` has attached for the rest of the program.
        lock: held while a GPU is attached or detached.
    """

    def __init__(self) -> None:
        self._gpus: dict[VirtualGPU, threading.Thread] = {}
        self.newest: VirtualGPU | None = None
        self.for_program: VirtualGPU | None = None
        self.lock = threading.RLock()

    def __contains__(self, gpu: VirtualGPU) -> bool:
        return gpu in self._gpus

    def __iter__(self) -> Iterator[VirtualGPU]:
        return iter(tuple(self._gpus))

    def check_thread(self) -> None:
        """Refuse the calling thread while another one has a GPU attached.

        Raises:
            RuntimeError: another thread, which is running, has attached a GPU.
        """
        for gpu, thread in self._gpus.items():
            if thread is not threading.current_thread() and thread.is_alive():
                raise RuntimeError(
                    f"{gpu!r} is attached by thread {thread.name!r}, and attaching is "
                    "process-wide: attach in one thread at a time, or share one GPU and start "
                    "the other threads after it is attached"
                )

    def add(self, gpu: VirtualGPU) -> None:
        """Note that the calling thread has attached a GPU."""
        self._gpus[gpu] = threading.current_thread()
        self.newest = next(reversed(self._gpus))

    def remove(self, gpu: VirtualGPU) -> None:
        """Note that a GPU has been detached."""
        del self._gpus[gpu]
        self.newest = next(reversed(self._gpus), None)
        if self.for_program is gpu:
            self.for_program = None


ATTACHED = AttachedGPUs()
"""Those of this process."""


def _after_fork() -> None:
    ATTACHED.lock = threading.RLock()  # another thread, which the child lacks, may have held it
    for gpu in ATTACHED:
        gpu.machine.forbid_after_fork()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_after_fork)


def attached() -> VirtualGPU | None:
    """Return the virtual GPU that is attached now, or None."""
    return ATTACHED.newest
