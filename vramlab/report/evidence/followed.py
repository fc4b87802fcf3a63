"""PyTorch's own allocator of one GPU, followed by its trace: what `PeakWatch` asks of an allocator.

A virtual GPU's allocator reports each event as it happens. PyTorch's allocator writes events down,
and they are read later, many at once: each is then reported before its counters change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramlab.allocator.caching import OutOfMemoryObserver
from vramlab.allocator.history import AllocatorEvent
from vramlab.measure.history.replay import Replay, SplitRules

_GROWS = ("segment_alloc", "segment_map")
_SHRINKS = ("segment_free", "segment_unmap")


class FollowedAllocator:
    """What one GPU's allocator holds, as far as its trace has been read.

    Attributes:
        allocated_bytes: torch.cuda.memory_allocated() at that event.
        reserved_bytes: torch.cuda.memory_reserved() at that event.
        entry: the entry of the trace that is being told, as torch's snapshot has it.
    """

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.entry: Mapping[str, Any] = {}
        self._replay: Replay | None = None
        self._sizes: dict[int, int] = {}
        self._trackers: list[Callable[[AllocatorEvent], None]] = []
        self._oom_observers: list[OutOfMemoryObserver] = []

    def add_trace_tracker(self, tracker: Callable[[AllocatorEvent], None]) -> None:
        """Call `tracker` with every event from now on."""
        self._trackers.append(tracker)

    def add_oom_observer(self, observer: OutOfMemoryObserver) -> None:
        """Call `observer` where a request could not be served."""
        self._oom_observers.append(observer)

    def runs_out(self, device: int, segment_bytes: int, limit_bytes: int, free_bytes: int) -> None:
        """Tell the observers that a request cannot be served; torch's observers get the same."""
        for observer in self._oom_observers:
            observer(device, segment_bytes, limit_bytes, free_bytes)

    def go_on_with(self, segments: list[dict[str, Any]], rules: SplitRules) -> None:
        """Take what it holds now, after a time that was not followed.

        Args:
            segments: of this GPU, from a snapshot.
            rules: the settings in force.
        """
        self._replay = Replay(segments, rules)
        self._sizes = {
            block["address"]: block["size"]
            for segment in segments
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        self.allocated_bytes = sum(self._sizes.values())
        self.reserved_bytes = sum(segment["total_size"] for segment in segments)

    def follow(self, entry: Mapping[str, Any], snapshot: Mapping[str, Any]) -> None:
        """Report one entry of the trace, and change the counters as it did.

        Args:
            entry: of `device_traces`.
            snapshot: that it is from; the first one has the settings in force.
        """
        if self._replay is None:
            self._replay = Replay([], SplitRules.from_snapshot(snapshot))
        self.entry = entry
        action, address, size_bytes = entry["action"], entry.get("addr", 0), entry["size"]
        told = AllocatorEvent(action, address, size_bytes, entry["stream"], 0, None, "")
        for tracker in self._trackers:
            tracker(told)
        if action == "alloc":
            size = self._replay.allocate(address, size_bytes)
            self._sizes[address] = size_bytes if size is None else size
            self.allocated_bytes += self._sizes[address]
        elif action == "free_requested":
            self.allocated_bytes -= self._sizes.pop(address, 0)  # 0: it was there before
        elif action == "free_completed":
            self._replay.complete_free(address)
        elif action in _GROWS:
            self._replay.add_memory(address, size_bytes, expandable=action == "segment_map")
            self.reserved_bytes += size_bytes
        elif action in _SHRINKS:
            self._replay.remove_memory(address, size_bytes)
            self.reserved_bytes -= size_bytes
