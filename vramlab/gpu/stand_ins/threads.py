"""Threads started while a machine is attached see its GPUs too.

Torch's modes belong to a thread. DataParallel, pin-memory threads and thread pools start threads of
their own, which must inherit them, as a real GPU is there for every thread.
"""

from __future__ import annotations

import threading

from vramlab.gpu.core import modes
from vramlab.gpu.core.session import Session
from vramlab.gpu.stand_ins import autograd_queue


def install(session: Session) -> None:
    """Let every thread that is started from now on enter the modes, until it ends."""
    start = threading.Thread.start

    def start_attached(thread: threading.Thread) -> None:
        run = thread.run

        def run_attached() -> None:
            autograd_queue.arm()
            try:
                with modes.in_new_thread():
                    run()
            finally:
                session.thread_ends()

        thread.run = run_attached  # type: ignore[method-assign]
        start(thread)

    session.patches.set(threading.Thread, "start", start_attached)
