"""`torch.multiprocessing.spawn` on a virtual GPU: rank 0 runs here, the others in processes.

A GPU that is pretended belongs to the process that attached it. Each process that is started gets
one of its own, alike. The first of them is this process, so that whoever measures sees a rank.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch.multiprocessing

from vramlab.gpu.core.session import Session


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
            _Started.rank_count = nprocs
            fn(0, *args)
            while others is not None and not others.join():
                pass
        finally:
            _Started.rank_count = 0
            for process in others.processes if others is not None else ():
                process.terminate()
        return None

    patches.set(module, "start_processes", start)
    patches.set(torch.multiprocessing, "start_processes", start)


class _Started:
    """How many ranks were started with this process."""

    rank_count = 0


def local_rank_count() -> int:
    """Return how many ranks `torch.multiprocessing` has started together with this one."""
    return _Started.rank_count


class AttachedRank:
    """What runs in a process that was started: the program's function, on a GPU like that here."""

    def __init__(
        self,
        fn: Callable[..., Any],
        make_gpu: Callable[[], AbstractContextManager[object]],
        first: int,
        count: int,
    ) -> None:
        self._fn = fn
        self._make_gpu = make_gpu
        self._first = first
        self._count = count

    def __call__(self, number: int, *args: Any) -> Any:
        """Run rank `number`, counted from the first that has a process of its own."""
        _Started.rank_count = self._count
        with self._make_gpu():
            return self._fn(number + self._first, *args)
