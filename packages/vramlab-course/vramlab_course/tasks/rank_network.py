"""Ranks that share nothing, and the network between them.

Each rank is a process, forked before any code of the answer runs. What a rank does to Python, torch
or memory is invisible to the others. Only the network connects them, and it works as NCCL does in
the order of a stream: a collective sends what its tensor holds when it is issued, and the n-th
collective of a rank meets the n-th of every other.

    def rank(link):
        link.post("all-reduce", gradient)    # returns at once
        parts = link.receive()               # waits: what each rank has sent

    results, sent = in_processes(4, rank)

Where a process cannot fork (on Windows, in a notebook's kernel) ranks are threads that take turns:
`in_threads`. They see each other's Python, so nothing is graded that way on Linux or macOS.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import re
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import NotFixed
from vramlab_classroom.judge.vocabulary import OWN_MODULE, NotAllowed
from vramlab_classroom.sandbox.problems import own_line_number
from vramlab_classroom.sandbox.syscalls import FILES, SOCKETS, refuse_system_calls

CAN_FORK = hasattr(os, "fork")

_OUR_TASKS = re.compile(r"vramlab_course\.(tasks\.\w+|lessons\.\w+\.tasks|workshops\.\w+)")

_PLAIN = {("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")}
"""Classes that data may have besides those of Python and the dataclasses of our tasks."""

_POST, _RECEIVE, _DONE, _NOT_FIXED, _RAISED = range(5)
"""What a rank's process says."""


@dataclass(frozen=True)
class SentTensor:
    """What a rank has sent in one collective."""

    kind: str
    """Such as "all-reduce"."""

    tensor: torch.Tensor
    """On the host: the numbers at the moment when the collective was issued."""

    @property
    def size_bytes(self) -> int:
        return self.tensor.nbytes

    @property
    def outline(self) -> tuple[str, torch.dtype, torch.Size]:
        return self.kind, self.tensor.dtype, self.tensor.shape

    def __str__(self) -> str:
        dtype = str(self.tensor.dtype).removeprefix("torch.")
        return f"{self.kind} of {dtype} {list(self.tensor.shape)}"


Sent = list[list[SentTensor]]
"""By rank, in the order in which it was issued."""


class Link(ABC):
    """A rank's end of the network."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def post(self, kind: str, tensor: torch.Tensor) -> None:
        """Issue a collective: send what a tensor holds now."""
        self._post(SentTensor(kind, tensor.detach().cpu().clone()))

    @abstractmethod
    def _post(self, message: SentTensor) -> None: ...

    @abstractmethod
    def receive(self) -> list[torch.Tensor]:
        """Wait for the oldest collective that was not received yet.

        Returns:
            What each rank has sent, on the host.
        """


@dataclass
class _Hub:
    """What ranks have sent, and who waits for it."""

    ranks: int
    sent: Sent = field(init=False)
    received: list[int] = field(init=False)
    """Collectives that each rank has received."""

    waiting: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sent = [[] for _ in range(self.ranks)]
        self.received = [0] * self.ranks

    def take(self, rank: int) -> list[torch.Tensor] | None:
        """Give a rank its next collective, or None while others have not issued it.

        Raises:
            NotFixed: they have issued something else.
        """
        number = self.received[rank]
        if any(len(messages) <= number for messages in self.sent):
            return None
        messages = [each[number] for each in self.sent]
        for other, message in enumerate(messages):
            if message.outline != messages[0].outline:
                raise NotFixed(
                    f"Collective {number + 1}: rank 0 issues {messages[0]}, but rank {other} "
                    f"issues {message}. All ranks have to issue the same collectives in the same "
                    "order."
                )
        self.waiting.discard(rank)
        self.received[rank] += 1
        return [message.tensor for message in messages]

    def end(self, rank: int) -> None:
        """Note that a rank has ended: it may have died while it waited."""
        self.ended.add(rank)
        self.waiting.discard(rank)

    @property
    def is_stuck(self) -> bool:
        """Whether every rank that still runs waits for a collective that will never come."""
        return len(self.waiting) + len(self.ended) == self.ranks and not any(
            all(len(messages) > self.received[rank] for messages in self.sent)
            for rank in self.waiting
        )

    def require_equal_counts(self) -> None:
        """Require that no rank has issued more collectives than another."""
        counts = [len(messages) for messages in self.sent]
        if min(counts) < max(counts):
            raise NotFixed(
                "The ranks issue different numbers of collectives: rank "
                f"{counts.index(max(counts))} issues {max(counts)}, rank "
                f"{counts.index(min(counts))} issues {min(counts)}. The ranks that issue more "
                "would wait forever."
            )


# Processes


class _ProcessLink(Link):
    def __init__(self, rank: int, connection: Connection) -> None:
        super().__init__(rank)
        self._connection = connection

    def _post(self, message: SentTensor) -> None:
        self._connection.send_bytes(_packed((_POST, message)))

    def receive(self) -> list[torch.Tensor]:
        self._connection.send_bytes(_packed((_RECEIVE, None)))
        tensors: list[torch.Tensor] = _unpacked(self._connection.recv_bytes())
        return tensors


def in_processes(ranks: int, body: Callable[[Link], Any]) -> tuple[list[Any], Sent]:
    """Run ranks, each in a fork of this process.

    Args:
        ranks: how many.
        body: what each does; gives something that can be pickled.

    Returns:
        What each rank has given, and what it has sent.

    Raises:
        NotFixed: as a rank has raised it; or ranks have not issued the same collectives.
        Exception: what a rank has raised: by name, text and the answer's line.
    """
    hub = _Hub(ranks)
    connections: dict[Connection, int] = {}
    processes: list[int] = []
    ends: dict[int, tuple[int, Any]] = {}
    try:
        for rank in range(ranks):
            here, there = Pipe()
            process = os.fork()
            if process == 0:
                for other in (here, *connections):
                    other.close()
                _share_time(ranks)
                _be_rank(rank, there, body)
            there.close()
            connections[here] = rank
            processes.append(process)
        while len(ends) < ranks and not hub.is_stuck:
            for connection in wait([each for each in connections if connections[each] not in ends]):
                assert isinstance(connection, Connection)
                rank = connections[connection]
                try:
                    said, what = _unpacked(connection.recv_bytes())
                except (EOFError, OSError, pickle.UnpicklingError):
                    said, what = _RAISED, None
                if said == _POST:
                    hub.sent[rank].append(what)
                elif said == _RECEIVE:
                    hub.waiting.add(rank)
                else:
                    ends[rank] = said, what
                    hub.end(rank)
            for connection, rank in connections.items():
                if rank in hub.waiting and (tensors := hub.take(rank)) is not None:
                    connection.send_bytes(_packed(tensors))
    finally:
        for connection in connections:
            connection.close()
        statuses = [_end(process, rank in ends) for rank, process in enumerate(processes)]
    for rank, (said, what) in sorted(ends.items()):
        if said == _NOT_FIXED:
            raise NotFixed(what)
        if said == _RAISED:
            _raise_again(rank, what, statuses[rank])
    hub.require_equal_counts()
    return [ends[rank][1] for rank in range(ranks)], hub.sent


def _share_time(ranks: int) -> None:
    """Give each rank its share of the seconds that a job may compute, if they are limited."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_CPU, (soft // ranks + 1, hard))


def _be_rank(rank: int, connection: Connection, body: Callable[[Link], Any]) -> NoReturn:
    try:
        gc.freeze()
        torch.set_num_threads(1)  # a fork has none of the threads that OpenMP has started
        refuse_system_calls(but=(*FILES, *SOCKETS))
        try:
            end = _packed((_DONE, body(_ProcessLink(rank, connection))))
        except NotFixed as error:
            end = _packed((_NOT_FIXED, str(error)))
        except BaseException as error:
            end = _packed((_RAISED, _described(error)))
        connection.send_bytes(end)
    finally:
        os._exit(0)


def _end(process: int, has_ended: bool) -> int:
    """End a rank's process; give its wait status."""
    if not has_ended:
        # In a job no process may send signals: the rank ends when its connection is closed, or
        # with the job.
        try:
            os.kill(process, signal.SIGKILL)
        except PermissionError:
            return os.waitpid(process, os.WNOHANG)[1]
    return os.waitpid(process, 0)[1]


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        numbers = value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return _tensor, (numbers, value.dtype, tuple(value.shape))


def _tensor(numbers: bytes, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    if not numbers:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(numbers), dtype=dtype).reshape(shape)


def _packed(value: Any) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


class _Unpickler(pickle.Unpickler):
    """Makes data and tensors of what a rank has sent: no more, whatever ran in its process."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN or (module, name) == (__name__, _tensor.__name__):
            return super().find_class(module, name)
        found = super().find_class(module, name) if module in sys.modules else None
        if isinstance(found, torch.dtype) or (
            _OUR_TASKS.fullmatch(module) and isinstance(found, type) and is_dataclass(found)
        ):
            return found
        raise pickle.UnpicklingError(f"a rank sends {module}.{name}, which is no plain data")


def _unpacked(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()


def _described(error: BaseException) -> tuple[list[str], str, int | None]:
    """Describe an error by what can leave a process: its classes, its text, the answer's line."""
    text = ""
    with suppress(BaseException):  # what an answer raises may have a text that fails
        text = str(error)
    line = own_line_number(error, OWN_MODULE)
    return [kind.__name__ for kind in type(error).__mro__], text, line


def _raise_again(rank: int, what: Any, status: int) -> NoReturn:
    """Raise what a rank has raised; or say how it died."""
    if what is None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        how = signal.Signals(number).name if number else f"status {os.WEXITSTATUS(status)}"
        if number == signal.SIGKILL:  # the machine may have been short of memory
            raise RuntimeError(f"the process of rank {rank} ended with {how}")
        late = number == getattr(signal, "SIGXCPU", None)
        raise NotFixed(
            f"Rank {rank} did not finish in time."
            if late
            else f"The process of rank {rank} ended with {how}."
        )
    names, text, line = what
    known = (NotAllowed, NotImplementedError, MemoryError, RecursionError)
    base = next((kind for kind in known if kind.__name__ in names), Exception)
    error = base(text) if base.__name__ == names[0] else type(names[0], (base,), {})(text)
    if line is None:
        raise error
    exec(compile("\n" * (line - 1) + "raise error", OWN_MODULE, "exec"), {"error": error})
    raise AssertionError


# Threads


class _Stuck(Exception):
    """A rank waits for others that have ended, or that wait themselves."""


class _ThreadLink(Link):
    def __init__(self, rank: int, hub: _Hub, turn: threading.Condition) -> None:
        super().__init__(rank)
        self._hub = hub
        self._turn = turn

    def _post(self, message: SentTensor) -> None:
        self._hub.sent[self.rank].append(message)

    def receive(self) -> list[torch.Tensor]:
        self._hub.waiting.add(self.rank)
        self._turn.notify_all()
        while (tensors := self._hub.take(self.rank)) is None:
            if self._hub.is_stuck:
                self._turn.notify_all()
                raise _Stuck
            self._turn.wait()
        return tensors


def in_threads(ranks: int, body: Callable[[Link], Any]) -> tuple[list[Any], Sent]:
    """Run ranks in threads, one at a time: each runs until it waits for others."""
    hub, turn = _Hub(ranks), threading.Condition()
    results: list[Any] = [None] * ranks
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        with turn:
            try:
                results[rank] = body(_ThreadLink(rank, hub, turn))
            except BaseException as error:
                errors[rank] = error
            hub.end(rank)
            turn.notify_all()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, error in sorted(errors.items()):
        if not isinstance(error, _Stuck):
            raise error
    hub.require_equal_counts()
    return results, hub.sent
