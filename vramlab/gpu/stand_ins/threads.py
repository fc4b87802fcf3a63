"""Threads started while a machine is attached see its GPUs too.

Torch's modes belong to a thread. DataParallel, pin-memory threads and thread pools start threads of
their own, which must inherit them, as a real GPU is there for every thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from vramlab.gpu.core.patches import Patches
from vramlab.gpu.stand_ins import autograd_queue


def inherit_modes(
    patches: Patches,
    modes: Callable[[], AbstractContextManager[Any]],
    thread_ends: Callable[[], None],
) -> None:
    """Run every thread that is started from now on inside `modes()`; it ends with `thread_ends`."""
    start = threading.Thread.start

    def start_attached(thread: threading.Thread) -> None:
        run = thread.run

        def run_attached() -> None:
            autograd_queue.prepare()
            try:
                with modes():
                    run()
            finally:
                thread_ends()

        thread.run = run_attached  # type: ignore[method-assign]
        start(thread)

    patches.set(threading.Thread, "start", start_attached)
