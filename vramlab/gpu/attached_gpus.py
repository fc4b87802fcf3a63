"""Which virtual GPUs are attached: the one place that knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramlab.gpu.virtual_gpu import VirtualGPU


class AttachedGPUs:
    """The virtual GPUs that are attached. The newest of them is awake, the others sleep.

    Attributes:
        for_program: the one that `vramlab.attach()` has attached for the rest of the program.
    """

    def __init__(self) -> None:
        self._gpus: list[VirtualGPU] = []
        self.for_program: VirtualGPU | None = None

    def __contains__(self, gpu: VirtualGPU) -> bool:
        return gpu in self._gpus

    def __iter__(self) -> Iterator[VirtualGPU]:
        return iter(tuple(self._gpus))

    @property
    def newest(self) -> VirtualGPU | None:
        """The GPU that is awake, or None."""
        return self._gpus[-1] if self._gpus else None

    def add(self, gpu: VirtualGPU) -> None:
        """Note that a GPU has been attached."""
        self._gpus.append(gpu)

    def remove(self, gpu: VirtualGPU) -> None:
        """Note that a GPU has been detached."""
        self._gpus.remove(gpu)
        if self.for_program is gpu:
            self.for_program = None


ATTACHED = AttachedGPUs()
"""Those of this process."""


def _after_fork() -> None:
    for gpu in ATTACHED:
        gpu.machine.forbid_after_fork()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_after_fork)


def attached() -> VirtualGPU | None:
    """Return the virtual GPU that is attached now, or None."""
    return ATTACHED.newest
