"""Processes that `multiprocessing` starts, and `torch.multiprocessing.spawn`, on a virtual GPU.

A GPU that is pretended belongs to the process that attached it. Each process that is started gets
one of its own, alike, before it imports the program. One that is forked has it already, and may not
use it if it was used before, as with CUDA (`Machine.forbid_after_fork`).

Of the ranks of `spawn`, the first is this process, so that measurements see a rank. Where
another one fails, rank 0 is ended: it may wait for that one.
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing.spawn
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch.multiprocessing

from vramlab.gpu.core.local_ranks import Started
from vramlab.gpu.core.session import Session
from vramlab.streams import print_error

MakeGPU = Callable[[], AbstractContextManager[object]]

_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 10.0
"""How long rank 0 may take to end once another one has failed."""


def install(session: Session) -> None:
    """Replace how processes are started."""
    patches = session.patches
    # The function `spawn` has the name of the module that it is in.
    module = importlib.import_module("torch.multiprocessing.spawn")
    start_processes = module.start_processes

    def start(
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        *how: Any,
        **named: Any,
    ) -> Any:
        def start_from(first: int, join: bool) -> Any:
            rank = AttachedRank(fn, session.make_alike, first, nprocs)
            return start_processes(rank, args, nprocs - first, join, *how, **named)

        if not join:
            return start_from(0, join)
        others = start_from(1, False) if nprocs > 1 else None
        try:
            Started.rank_count = nprocs
            if others is None:
                fn(0, *args)
            else:
                _run_beside(others, lambda: fn(0, *args))
        finally:
            Started.rank_count = 0
            for process in others.processes if others is not None else ():
                process.terminate()
        return None

    patches.set(module, "start_processes", start)
    patches.set(torch.multiprocessing, "start_processes", start)
    prepare = multiprocessing.spawn.get_preparation_data

    def prepare_with_gpu(name: str) -> dict[str, Any]:
        return {**prepare(name), "vramlab": _AttachWhenRead(session.make_alike)}

    patches.set(multiprocessing.spawn, "get_preparation_data", prepare_with_gpu)


class AttachedRank:
    """What runs in a process that was started: the program's function, on a GPU like that here."""

    def __init__(
        self,
        fn: Callable[..., Any],
        make_gpu: MakeGPU,
        first: int,
        count: int,
    ) -> None:
        self._fn = fn
        self._make_gpu = make_gpu
        self._first = first
        self._count = count

    def __call__(self, number: int, *args: Any) -> Any:
        """Run rank `number`, counted from the first that has a process of its own."""
        Started.rank_count = self._count
        with _taken_from_the_start() or self._make_gpu():
            return self._fn(number + self._first, *args)


class _RankFailed(BaseException):
    """Another rank has failed while rank 0 runs."""


def _run_beside(others: Any, run: Callable[[], None]) -> None:
    """Run rank 0 until all ranks have ended, or one of them fails.

    Args:
        others: the `ProcessContext` of the other ranks.
        run: rank 0.

    Raises:
        Exception: what another rank failed with, as `ProcessContext.join` tells.
    """
    failed: list[Exception] = []
    over = threading.Event()
    main = threading.get_ident()

    def wait_for_others() -> None:
        try:
            while not others.join(_LOOK_SECONDS):
                pass
        except Exception as error:
            failed.append(error)
            if not over.is_set():
                failure = ctypes.py_object(_RankFailed)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), failure)
            if not over.wait(_GRACE_SECONDS):  # it is stuck where no Python code runs
                print_error(f"vramlab: rank 0 waits for another one, and is ended: {error}")
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=wait_for_others, daemon=True)
    thread.start()
    try:
        try:
            run()
        finally:
            over.set()
        thread.join()
    except _RankFailed:
        over.set()
    if failed:
        raise failed[0]


# In the processes that are started

_waiting: list[AbstractContextManager[object]] = []
"""The GPU that is attached already, until a rank's function takes it."""


class _AttachWhenRead:
    """Attaches a GPU where it is unpickled, which `multiprocessing` does before all else."""

    def __init__(self, make_gpu: MakeGPU) -> None:
        self._make_gpu = make_gpu

    def __reduce__(self) -> tuple[Any, ...]:
        made = pickle.dumps(self._make_gpu)
        lines = (
            f"import pickle, sys\nsys.path[:] = {sys.path!r}",
            f"from {__name__} import attach_now\nattach_now(pickle.loads({made!r}))",
        )
        return exec, ("\n".join(lines), {})


def attach_now(make_gpu: MakeGPU) -> None:
    """Attach a GPU that the rank's function will take."""
    gpu = make_gpu()
    gpu.__enter__()
    _waiting.append(gpu)


def _taken_from_the_start() -> AbstractContextManager[object] | None:
    if not _waiting:
        return None
    attached = ExitStack()
    attached.push(_waiting.pop())
    return attached
