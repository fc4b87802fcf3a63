"""Let threads see the GPUs that are attached.

Torch's modes belong to a thread. DataParallel, pin-memory threads and thread pools start threads of
their own, which must inherit them, as a real GPU is there for every thread. A pool's threads may
have been started before a GPU was attached: they enter the modes for each call that is submitted.

Known limitation: another thread that was started before sees no GPU, and nor does a call that was
submitted before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vramlab.gpu.core import modes
from vramlab.gpu.core.session import Session
from vramlab.gpu.stand_ins import autograd_queue


def install(session: Session) -> None:
    """Let threads that are started, and calls that are submitted, from now on enter the modes."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_attached(thread: threading.Thread) -> None:
        if session.patches.is_undone:
            return start(thread)
        run = thread.run

        def run_attached() -> None:
            try:
                _call_attached(run)
            finally:
                session.thread_ends()

        thread.run = run_attached  # type: ignore[method-assign]
        return start(thread)

    def submit_attached(
        executor: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        if session.patches.is_undone:
            return submit(executor, fn, *args, **kwargs)
        return submit(executor, _call_attached, fn, *args, **kwargs)

    session.patches.set(threading.Thread, "start", start_attached)
    session.patches.set(ThreadPoolExecutor, "submit", submit_attached)


def _call_attached(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    autograd_queue.arm()
    with modes.in_new_thread():
        return function(*args, **kwargs)
