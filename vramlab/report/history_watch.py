"""Everything that watches one run on the native engine: what `Watch` is for a virtual GPU.

PyTorch's own allocator keeps its history. Now and then it is read, told to the `PeakWatch` of each
GPU, and cleared. What is seen in between, such as a tensor's owner, waits for the history to be
told up to that moment, which is known by how many allocations and frees PyTorch has counted.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import Any

import torch

from vramlab.gpu.core.patches import Patches
from vramlab.gpu.core.storage_record import wraps
from vramlab.gpu.torch_internals import (
    CUDA_FUNCTIONS,
    attach_out_of_memory_observer,
    memory_snapshot,
    record_memory_history,
    when_cuda_starts,
)
from vramlab.measure import Category, graph
from vramlab.measure.rebuild import COUNTED
from vramlab.report.followed import FollowedAllocator
from vramlab.report.history_origins import HistoryOrigins, Place, place_of
from vramlab.report.origins import BlockOrigin
from vramlab.report.owners import Owners
from vramlab.report.peak import PeakWatch
from vramlab.report.stages import watching
from vramlab.report.steps import Steps
from vramlab.report.watch import claim

_HISTORY = CUDA_FUNCTIONS["_cuda_record_memory_history"]

_MOST_UNREAD = 20_000
"""Allocations and frees of a GPU after which its history is read: some 100 MB of Python objects."""


class HistoryWatch:
    """Watches the GPUs that PyTorch has while the body of the with statement runs.

    The history begins when the program first uses CUDA. It is for one process.

    Args:
        count: how many GPUs.
        keep: leave the history there when it is read, for a snapshot of all of it.
        most_steps: end the program by `Stopped` after so many training steps; None: never.

    Attributes:
        devices: one watch for each GPU, by index.
        steps: counts the steps and passes of the training.
    """

    def __init__(self, count: int, keep: bool = False, most_steps: int | None = None) -> None:
        self.steps = Steps(most_steps)
        self._tick = itertools.count(1).__next__
        self._keep = keep
        self._followed = [_Followed() for _ in range(count)]
        self._origins = HistoryOrigins()
        self.devices = tuple(
            PeakWatch(followed.allocator, self._tick, partial(self._origin, followed))
            for followed in self._followed
        )
        self._owners = Owners(self._claim, place_of_storage)
        self._waiting: deque[tuple[tuple[int, ...], Callable[[], None]]] = deque()
        self._backward: Place | None = None
        self._patches = Patches()
        self._running = False
        self._started = False

    def __enter__(self) -> HistoryWatch:
        self._running = True
        when_cuda_starts(self._start)
        graph.add_observer(self)
        self._owners.install()
        self.steps.__enter__()
        watching.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        watching.remove(self)
        self.steps.__exit__()
        self.look_everywhere()
        self._owners.remove()
        graph.remove_observer(self)
        self._running = False
        self._patches.undo()

    def look_everywhere(self) -> None:
        """Claim all that is known to be something, and tell the watches of all until now."""
        self._owners.look_everywhere()
        self._read()

    def _start(self) -> None:
        if self._running and not self._started:
            self._started = True
            record_memory_history("all", context="alloc", stacks="all")
            attach_out_of_memory_observer(self._memory_runs_out)
            # What the program itself wants of a history, this one has.
            self._patches.set(*_HISTORY.at, lambda *_: None)

    # What happens while the program runs

    def _claim(self, device: int, address: int, category: Category) -> None:
        self._later(lambda: claim(self.devices[device], address, category))

    def saved(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Do nothing for `graph.GraphObserver`: `Owners` hears of them."""

    def backward_begins(self, *_: Any, **__: Any) -> None:
        """Note the line that calls backward: part of `graph.GraphObserver`."""
        self._later(partial(self._turn, place_of(list(_frames_of_caller()))))

    def backward_ended(self) -> None:
        """Note that it is over: part of `graph.GraphObserver`."""
        self._later(partial(self._turn, None))

    def stage_begins(self, name: str) -> None:
        """Note that a stage of the program begins."""
        for device in self.devices:
            self._later(partial(device.stage_begins, name))

    def stage_ends(self) -> None:
        """Note that the innermost stage ends."""
        for device in self.devices:
            self._later(device.stage_ends)

    def _turn(self, backward: Place | None) -> None:
        self._backward = backward

    def _memory_runs_out(self, device: int, *sizes: int) -> None:
        if self._running:
            self.look_everywhere()
            self._followed[device].allocator.runs_out(device, *sizes)

    def _later(self, what: Callable[[], None]) -> None:
        """Do something when the history has been told up to now."""
        counted = tuple(followed.counted(index) for index, followed in enumerate(self._followed))
        self._waiting.append((counted, what))
        if any(followed.unread > _MOST_UNREAD for followed in self._followed):
            self._read()

    # What the history tells

    def _read(self) -> None:
        """Read the history; tell of its events, and do what waits, each in its turn."""
        if not self._started:
            return
        snapshot = memory_snapshot()
        if not self._keep:
            self._clear()
        for followed, trace in zip(self._followed, snapshot["device_traces"], strict=False):
            followed.take(trace, kept=self._keep)
        while self._waiting:
            counted, what = self._waiting.popleft()
            for followed, count in zip(self._followed, counted, strict=True):
                followed.tell(snapshot, count)
            what()
        for followed in self._followed:
            followed.tell(snapshot)

    def _clear(self) -> None:
        self._patches.undo()
        record_memory_history("all", context="alloc", stacks="all", clear_history=True)
        self._patches.set(*_HISTORY.at, lambda *_: None)

    def _origin(self, followed: _Followed) -> BlockOrigin:
        return self._origins.read(followed.allocator.entry, self._backward)


class _Followed:
    """The history of one GPU, and how far it has been told."""

    def __init__(self) -> None:
        self.allocator = FollowedAllocator()
        self._untold: deque[Mapping[str, Any]] = deque()
        self._taken = 0  # entries, of a history that is kept
        self._told = 0  # allocations and frees
        self._counted = 0
        self._before_reset = 0

    @property
    def unread(self) -> int:
        """Allocations and frees that have not been told."""
        return self._counted - self._told

    def counted(self, index: int) -> int:
        """Allocations and frees so far, also if the program resets torch's counters."""
        stats = torch.cuda.memory_stats_as_nested_dict(index)
        if not stats:
            return 0
        allocations = stats["allocation"]["all"]
        counted = int(allocations["allocated"] + allocations["freed"]) + self._before_reset
        if counted < self._counted:
            self._before_reset = self._counted
            counted += self._counted
        self._counted = counted
        return counted

    def take(self, trace: list[Mapping[str, Any]], kept: bool) -> None:
        """Take the entries that are new."""
        self._untold.extend(trace[self._taken :])
        self._taken = len(trace) if kept else 0

    def tell(self, snapshot: Mapping[str, Any], count: int | None = None) -> None:
        """Tell of entries until so many allocations and frees were told; None: of all."""
        while self._untold and (count is None or self._told < count):
            entry = self._untold.popleft()
            self.allocator.follow(entry, snapshot)
            self._told += entry["action"] in COUNTED


def place_of_storage(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Find the GPU and the address where a tensor's storage begins; None: it is on none."""
    if wraps(type(tensor)):
        wrapper: Any = tensor
        return place_of_storage(getattr(tensor, wrapper.__tensor_flatten__()[0][0]))
    if not tensor.is_cuda or tensor.layout != torch.strided:
        return None
    try:
        address = tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return None  # a fake tensor's, with which torch.compile traces a program
    return (tensor.get_device(), address) if address else None


def _frames_of_caller() -> Iterator[dict[str, Any]]:
    """The frames of the program that calls, innermost first, as a history has them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        yield {"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name}
        frame = frame.f_back
