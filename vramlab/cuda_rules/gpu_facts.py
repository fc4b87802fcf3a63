"""The facts of a GPU that decide what kernels and libraries take of its memory."""

from __future__ import annotations

from typing import Protocol


class CudaGpuFacts(Protocol):
    """Facts of a GPU, as `vramlab.catalogue.GPUModel` and device properties have them."""

    @property
    def multiprocessors(self) -> int: ...

    @property
    def max_threads_per_multiprocessor(self) -> int: ...

    @property
    def compute_capability(self) -> tuple[int, int]: ...
