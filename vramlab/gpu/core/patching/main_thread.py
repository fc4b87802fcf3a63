"""Let another thread have a function run in the main thread."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable

_waiting: deque[Callable[[], None]] = deque()


def _run_waiting(_: object) -> int:
    while _waiting:
        _waiting.popleft()()
    return 0


_callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_waiting)


def run_in_main_thread(function: Callable[[], None]) -> None:
    """Run a function in the main thread, between two of its Python instructions, without waiting.

    A main thread that waits for this one runs it before it goes on. Source: `Py_AddPendingCall` in
    Python/ceval.c, CPython 3.11.
    """
    _waiting.append(function)
    ctypes.pythonapi.Py_AddPendingCall(_callback, None)
