"""Everything that watches one run on the native engine: what `Watch` is for a virtual GPU.

PyTorch's own allocator keeps its history. Now and then it is read, told to the `PeakWatch` of each
GPU, and cleared. What is seen in between, such as a tensor's owner, waits for the history to be
told up to that moment, which is known by how many allocations and frees PyTorch has counted.

Reading a history takes much longer than recording it. So where PyTorch's counters say that there
was no new peak, it is dropped, and what lives then is read from the segments.
"""

from __future__ import annotations

import itertools
import operator
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch

from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.storage_record import wraps
from vramlab.gpu.torch_internals import (
    CUDA_FUNCTIONS,
    attach_out_of_memory_observer,
    when_cuda_starts,
)
from vramlab.measure import graph
from vramlab.measure.history.rebuild import COUNTED
from vramlab.measure.history.replay import SplitRules
from vramlab.report.evidence.followed import FollowedAllocator
from vramlab.report.evidence.history_origins import HistoryOrigins, Place, place_of
from vramlab.report.evidence.origins import BlockOrigin
from vramlab.report.evidence.owners import Owners, Seen
from vramlab.report.evidence.peak import LiveBlock, PeakWatch
from vramlab.report.evidence.program_history import ReportHistory, Snapshot
from vramlab.report.evidence.stages import watching
from vramlab.report.evidence.steps import Steps
from vramlab.report.evidence.unsure_operators import UnsureOperators
from vramlab.report.evidence.watch import claim

_RESET = CUDA_FUNCTIONS["_cuda_resetPeakMemoryStats"]

_MOST_UNREAD = 20_000
"""Allocations and frees of a GPU after which its history is read: some 100 MB of Python objects."""

_CALM_PASSES = 2
"""Backward passes without a new peak after which all is known of the blocks of the last one: all
parameters, gradients and optimizer states were looked at since."""

_MOST_SKIPPED = 12_000
"""Allocations and frees after which it is dropped if it has no new peak: some 20 MB of C++'s. The
fewer, the more of it stays in the processor's caches; to drop it takes as long as to record 2,000.
"""

_MOST_IN_A_PASS = 120_000
"""Allocations and frees after which it is read in the middle of a pass, whatever it holds."""


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
        operators: none; PyTorch's own code allocates.
    """

    def __init__(self, count: int, keep: bool = False, most_steps: int | None = None) -> None:
        self.steps = Steps(most_steps)
        self.operators = UnsureOperators()
        self._tick = itertools.count(1).__next__
        self._keep = keep
        self._followed = [_Followed() for _ in range(count)]
        self._origins = HistoryOrigins()
        self.devices = tuple(
            PeakWatch(followed.allocator, self._tick, partial(self._origin, followed))
            for followed in self._followed
        )
        self._owners = Owners(self._claim, place_of_storage, self._looks)
        self._waiting: deque[tuple[tuple[int, ...], Callable[[], None]]] = deque()
        self._backward: Place | None = None
        self._last_backward: Place | None = None
        self._has_stages = False
        self._calm_passes = 0  # backward passes since the last new peak
        self._peaks_then: list[tuple[int, int]] = []
        self._is_calm = False  # this pass begins as the ones before, without a new peak
        self._allocated_then: list[int] = []
        self._is_owed = True  # a peak was read whose owners may be seen later
        # What lived when the history was last dropped, after which backward pass, if not yet told.
        self._lived: tuple[Snapshot, Place | None] | None = None
        self._patches = Patches()
        self.history = ReportHistory(lambda index, new: self._take(index, new))
        self._running = False

    def __enter__(self) -> HistoryWatch:
        self._running = True
        self.history.install()
        if hasattr(*_RESET.at):
            self._patches.set(*_RESET.at, self._counting_before(getattr(*_RESET.at)))
        when_cuda_starts(self._start)
        graph.add_observer(self)
        self._owners.install()
        self.steps.__enter__()
        watching.append(self)
        _active.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._running:
            self.look_everywhere()
            self.withdraw()

    def withdraw(self) -> None:
        """Watch no more."""
        _active.remove(self)
        watching.remove(self)
        self.steps.__exit__()
        self._owners.remove()
        graph.remove_observer(self)
        self._running = False
        self._patches.undo()
        self.history.remove()

    def look_everywhere(self) -> None:
        """Claim all that is known to be something, and tell the watches of all until now."""
        if self.history.is_recording:
            self.count()
            if self._has_nothing_new():
                self._tell_what_lived()
                return
        self._look_and_read()

    def count(self) -> None:
        """Take in what PyTorch's counters say; also for other threads."""
        if self.history.is_recording:
            for index, (followed, watch) in enumerate(
                zip(self._followed, self.devices, strict=True)
            ):
                followed.counted(index)
                watch.reserved_ahead_bytes = followed.peak_bytes[1]

    def _look_and_read(self) -> None:
        self._owners.look_everywhere()
        self._read()

    def _start(self) -> None:
        if self._running and not self.history.is_recording:
            self.history.start()
            if self.history.of_pool((0, 0, False))["segments"]:  # CUDA has started before
                self._skip()
            attach_out_of_memory_observer(self._memory_runs_out)

    # What happens while the program runs

    def _claim(self, seen: Sequence[Seen]) -> None:
        self._later(partial(claim, self.devices, seen))

    def wants_saved(self) -> bool:
        """See how the pass begins: part of `graph.GraphObserver`."""
        self.count()
        allocated = [followed.allocated_bytes for followed in self._followed]
        self._is_calm = self._calm_passes >= _CALM_PASSES and allocated == self._allocated_then
        self._allocated_then = allocated
        return False

    def _looks(self) -> bool:
        """Return whether owners are worth a look: not while passes go on as the last ones did."""
        if not self._is_calm:
            return True
        self.count()
        return not self._has_nothing_new()

    def saved(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Do nothing for `graph.GraphObserver`: `Owners` hears of them."""

    def backward_begins(self, *_: Any, **__: Any) -> None:
        """Note the line that calls backward: part of `graph.GraphObserver`."""
        self._last_backward = place_of(list(_frames_of_caller()))
        self._later(partial(self._turn, self._last_backward))

    def backward_ended(self) -> None:
        """Note that it is over: part of `graph.GraphObserver`."""
        self._later(partial(self._turn, None))
        if self.history.is_recording:
            self._look_whether_calm()

    def _look_whether_calm(self) -> None:
        """Read the history when its last peak is some passes ago, and drop what comes then."""
        peaks = [followed.peak_bytes for followed in self._followed]
        self._calm_passes = self._calm_passes + 1 if peaks == self._peaks_then else 0
        self._peaks_then = peaks
        if self._calm_passes == _CALM_PASSES and not self._has_nothing_new():
            self._read()
            self._is_owed = False
        if self._unread() > _MOST_SKIPPED and self._has_nothing_new():
            self._skip()

    def stage_begins(self, name: str) -> None:
        """Note that a stage of the program begins."""
        self._has_stages = True
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
            self._look_and_read()
            self._followed[device].allocator.runs_out(device, *sizes)

    def _later(self, what: Callable[[], None]) -> None:
        """Do something when the history has been told up to now."""
        counted = tuple(followed.counted(index) for index, followed in enumerate(self._followed))
        self._waiting.append((counted, what))
        unread = self._unread()
        if unread > _MOST_IN_A_PASS or (unread > _MOST_UNREAD and not self._has_nothing_new()):
            self._read()

    def _unread(self) -> int:
        return max(followed.unread for followed in self._followed)

    def _counting_before(self, reset: Callable[[int], None]) -> Callable[[int], None]:
        """Look at the peaks before the program resets them."""

        def count_and_reset(device: int) -> None:
            if self.history.is_recording:
                self._followed[device].counted(device)
            reset(device)

        return count_and_reset

    def _has_nothing_new(self) -> bool:
        """Return whether unread events can be dropped: those without a peak have no use."""
        if self._keep or self._is_owed or self._has_stages or self.history.program.was_started:
            return False
        return not any(
            watch.history is not None or followed.has_grown(watch)
            for followed, watch in zip(self._followed, self.devices, strict=True)
        )

    def _skip(self) -> None:
        """Drop the history, and go on with what lives now."""
        for index, followed in enumerate(self._followed):
            followed.counted(index)
            followed.leave_out()
        self._lived = self.history.of_pool((0, 0, False)), self._last_backward
        self.history.start(clear=True)
        self._waiting.clear()
        self._backward = None

    def _tell_what_lived(self) -> None:
        """Let all go on with what lived when the history was last dropped."""
        if self._lived is None:
            return
        (snapshot, last_backward), self._lived = self._lived, None
        rules = SplitRules.from_snapshot(snapshot)
        for index, (followed, watch) in enumerate(zip(self._followed, self.devices, strict=True)):
            segments = [each for each in snapshot["segments"] if each["device"] == index]
            followed.allocator.go_on_with(segments, rules)
            watch.go_on_with(list(self._blocks_in(segments, last_backward)))
        self._origins.forget()

    def _blocks_in(
        self, segments: Iterable[Mapping[str, Any]], last_backward: Place | None
    ) -> Iterator[LiveBlock]:
        for segment in segments:
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    is_of_program = any(map(_is_of_python, block["frames"]))
                    origin = self._origins.read(block, None if is_of_program else last_backward)
                    size, stream = block["requested_size"], segment["stream"]
                    live = LiveBlock(block["address"], size, stream, self._tick(), origin)
                    live.size_bytes = block["size"]
                    yield live

    # What the history tells

    def _read(self) -> None:
        """Read the history, report its events, and run pending callbacks in order."""
        if not self.history.is_recording:
            return
        self._tell_what_lived()
        snapshot = self.history.read(self._keep)
        before = [_peaks(device) for device in self.devices]
        while self._waiting:
            counted, what = self._waiting.popleft()
            for followed, count in zip(self._followed, counted, strict=True):
                followed.tell(snapshot, count)
            what()
        for followed in self._followed:
            followed.tell(snapshot)
        self._origins.forget()
        self._is_owed |= before != [_peaks(device) for device in self.devices]

    def _take(self, index: int, new: Sequence[Mapping[str, Any]]) -> None:
        if index < len(self._followed):
            self._followed[index].take(new)

    def _origin(self, followed: _Followed) -> BlockOrigin:
        return self._origins.read(followed.allocator.entry, self._backward)


_active: list[HistoryWatch] = []


def _withdraw_all() -> None:
    for watch in [*_active]:
        watch.withdraw()


if hasattr(os, "register_at_fork"):  # a process that is forked has GPUs of its own
    os.register_at_fork(after_in_child=_withdraw_all)


class _Followed:
    """The history of one GPU, and how far it has been told."""

    def __init__(self) -> None:
        self.allocator = FollowedAllocator()
        self._unprocessed: deque[Mapping[str, Any]] = deque()
        self._processed = 0  # allocations and frees
        self._counted = 0
        self._before_reset = 0
        self.allocated_bytes = 0
        self.peak_bytes = (0, 0)  # allocated, reserved, by PyTorch's counters

    @property
    def unread(self) -> int:
        """Allocations and frees that have not been told."""
        return self._counted - self._processed

    def counted(self, index: int) -> int:
        """Allocations and frees so far, also if the program resets torch's counters."""
        stats = torch.cuda.memory_stats_as_nested_dict(index)
        if not stats:
            return 0
        allocations = stats["allocation"]["all"]
        self.allocated_bytes = stats["allocated_bytes"]["all"]["current"]
        self.peak_bytes = (
            max(self.peak_bytes[0], stats["allocated_bytes"]["all"]["peak"]),
            max(self.peak_bytes[1], stats["reserved_bytes"]["all"]["peak"]),
        )
        counted = int(allocations["allocated"] + allocations["freed"]) + self._before_reset
        if counted < self._counted:
            self._before_reset = self._counted
            counted += self._counted
        self._counted = counted
        return counted

    def has_grown(self, watch: PeakWatch) -> bool:
        """Return whether there was a peak that a watch has not seen."""
        seen_bytes = _peaks(watch)
        return bool(self._unprocessed) or any(map(operator.gt, self.peak_bytes, seen_bytes))

    def leave_out(self) -> None:
        """Leave out what is untold."""
        self._processed = self._counted

    def take(self, new: Iterable[Mapping[str, Any]]) -> None:
        """Take the entries that are new."""
        self._unprocessed.extend(new)

    def tell(self, snapshot: Mapping[str, Any], count: int | None = None) -> None:
        """Report entries until `count` allocations and frees were reported; None: all."""
        while self._unprocessed and (count is None or self._processed < count):
            entry = self._unprocessed.popleft()
            self.allocator.follow(entry, snapshot)
            self._processed += entry["action"] in COUNTED


def _peaks(watch: PeakWatch) -> tuple[int, int]:
    return watch.peak_allocated_bytes, watch.peak_reserved_bytes


def _is_of_python(frame: Mapping[str, Any]) -> bool:
    return bool(frame["filename"].endswith(".py"))


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def place_of_storage(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Find the GPU and the address where a tensor's storage begins; None: it is on none."""
    if type(tensor) not in _PLAIN and wraps(type(tensor)):
        wrapper: Any = tensor
        return place_of_storage(getattr(tensor, wrapper.__tensor_flatten__()[0][0]))
    if not tensor.is_cuda or tensor.layout is not torch.strided:
        return None
    try:
        address = tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()
        if not tensor.numel():  # whose own address is 0
            address = tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return None  # a fake tensor's, with which torch.compile traces a program
    return (tensor.get_device(), address) if address else None


def _frames_of_caller() -> Iterator[dict[str, Any]]:
    """Return the frames of the program that calls, innermost first, as a history has them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        yield {"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name}
        frame = frame.f_back
