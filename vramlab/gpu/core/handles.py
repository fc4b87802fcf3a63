"""Which library handle a thread computes with: handles are lent, and given back when it ends.

A workspace that cuBLAS keeps belongs to a handle. DataParallel starts new threads for every forward
pass; they compute with the handles of the threads before them, and so with their workspaces.

Source: aten/src/ATen/cuda/detail/DeviceThreadHandles.h (`PoolWindow`), PyTorch 1.13 to 2.13.
"""

from __future__ import annotations

import threading


class HandlePool:
    """The handles of one library on one GPU, each a number; a thread keeps its own until it ends.

    A real thread gives its handle back a moment after Python sees it end; here, a moment before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: dict[object, int] = {}
        self._free: list[int] = []

    def reserve(self, thread: object) -> int:
        """Return the thread's handle: the one it has, or the one last given back, or a new one."""
        if (handle := self._lent.get(thread)) is not None:
            return handle
        with self._lock:
            handle = self._free.pop() if self._free else len(self._lent)
            self._lent[thread] = handle
        return handle

    def release(self, thread: object) -> None:
        """Take the handle of a thread that ends, if it has one."""
        with self._lock:
            if (handle := self._lent.pop(thread, None)) is not None:
                self._free.append(handle)
