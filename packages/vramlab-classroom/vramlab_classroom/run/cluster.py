"""The workers: processes of this machine by default, or of a Dask cluster elsewhere.

Dask decides who does what. When a worker dies, what it was doing is done by another; a piece of
work that several workers died of is given back as `WorkerDied`.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from multiprocessing.resource_tracker import ensure_running
from queue import SimpleQueue
from types import FrameType
from typing import Any

import dask
from dask.system import CPU_COUNT
from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError

from vramlab.context import Closing
from vramlab.errors import VramlabError

CONNECT_SECONDS = 30
"""How long a cluster, and its first worker, are waited for."""

MAX_DEATHS = 2
"""So many workers may die of a piece of work until it is given up."""

_SETTINGS = {
    "distributed.scheduler.allowed-failures": MAX_DEATHS,
    "distributed.admin.large-graph-warning-threshold": "1 GiB",  # a submission has up to 32 MiB
    "distributed.admin.low-level-log-length": 100,  # memory stays flat, however many submissions
    "distributed.worker.profile.enabled": False,
    "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
}


class ClusterError(VramlabError):
    """The workers cannot be used; nothing that was graded is lost."""


class WorkerDied(VramlabError):
    """Several workers died of one piece of work."""


class Workers(Closing):
    """Does pieces of work in any order, on the machine or on the cluster that was asked for."""

    def __init__(self, count: int | None = None, address: str | None = None) -> None:
        """Start workers, or connect to those there are.

        Args:
            count: of processes on this machine; by default one per CPU that may be used.
            address: of the scheduler of a cluster, such as tcp://head:8786.

        Raises:
            ClusterError: that does not work.
        """
        self._done: SimpleQueue[tuple[Hashable, Future[Any]]] = SimpleQueue()
        self._waiting: deque[tuple[Hashable, Callable[..., Any], tuple[object, ...]]] = deque()
        self._lock = threading.Lock()
        self._pending = self._running = 0
        dask.config.set(_SETTINGS)
        self._local: LocalCluster | None = None
        self._silence()
        # Ctrl-C is for this process: the workers, and the threads that start them, do not get it.
        # Python's tracker of resources comes first, as it lets Ctrl-C through where it is started.
        ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._is_interrupted = False
        try:
            self._connect(count, address)
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    @property
    def slots(self) -> int:
        """How many pieces of work are done at the same time, at present."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    @property
    def pending(self) -> int:
        """How many pieces of work were begun and not yet taken back."""
        return self._pending

    def begin(
        self,
        name: Hashable,
        function: Callable[..., Any],
        *arguments: object,
        urgent: bool = False,
    ) -> None:
        """Let a worker call a function; `next` gives what comes of it, with the `name`.

        Args:
            name: of this piece of work.
            function: one that workers can import.
            arguments: of the function; they are sent to the worker.
            urgent: before all that no worker has yet.

        Raises:
            KeyboardInterrupt: there was one, also if it got lost since.
        """
        self._stop_if_interrupted()
        self._pending += 1
        with self._lock:
            work = (name, function, arguments)
            if urgent:
                self._waiting.appendleft(work)
            else:
                self._waiting.append(work)
        self._hand_out()

    def next(self) -> tuple[Hashable, Any]:
        """Wait for a piece of work; give its name, and its result or the error it ended with.

        Raises:
            ClusterError: the cluster is gone.
            KeyboardInterrupt: there was one, also if it got lost since.
        """
        self._stop_if_interrupted()
        name, future = self._done.get()
        self._pending -= 1
        try:
            return name, future.result()
        except KilledWorker:
            return name, WorkerDied(f"{MAX_DEATHS + 1} workers died of it")
        except (FutureCancelledError, CommClosedError) as error:
            raise ClusterError(
                "the cluster is gone. Nothing that was graded is lost: run again"
            ) from error
        except ModuleNotFoundError as error:
            raise ClusterError(
                f"a worker lacks something: {error}; install vramlab-classroom[nbgrader] there"
            ) from error
        except Exception as error:
            return name, error
        finally:
            future.release()

    def _connect(self, count: int | None, address: str | None) -> None:
        if address is None:
            self._local = LocalCluster(
                n_workers=count or CPU_COUNT,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,  # the pool limits what a submission takes
                dashboard_address="127.0.0.1:0",  # any free port: other clusters may run here
                silence_logs=logging.CRITICAL,
            )
        try:
            self._client = Client(self._local or address, timeout=CONNECT_SECONDS)
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError, CommClosedError) as error:
            raise ClusterError(
                f"the cluster {address or 'on this machine'} has not answered: {error}. "
                "Are its scheduler and a worker running, and can this machine reach them?"
            ) from error

    def _hand_out(self) -> None:
        """Give Dask as much as the workers can do now.

        If a worker had more and died, Dask would count that against all that it had.
        """
        with self._lock:
            while self._waiting and self._running < self.slots:
                name, function, arguments = self._waiting.popleft()
                future = self._client.submit(function, *arguments, pure=False)
                self._running += 1
                future.add_done_callback(partial(self._take_back, name))

    def _take_back(self, name: Hashable, future: Future[Any]) -> None:
        # In a thread of Dask's, so that a worker gets its next work while this process is busy.
        with self._lock:
            self._running -= 1
        self._done.put((name, future))
        # When the cluster is gone, `next` tells.
        with contextlib.suppress(Exception):
            self._hand_out()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, and remember it: Python drops it in an object's finalizer."""
        self._is_interrupted = True
        signal.default_int_handler(number, frame)

    def _stop_if_interrupted(self) -> None:
        if self._is_interrupted:
            raise KeyboardInterrupt

    def close(self) -> None:
        """End the workers, if they are this machine's."""
        signal.signal(signal.SIGINT, self._handler)
        self._client.close()
        if self._local is not None:
            self._local.close()

    @staticmethod
    def _silence() -> None:
        """Keep Dask from telling about every worker that comes, goes or is late."""
        for name in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
