"""The record of what an allocator did: torch.cuda.memory._record_memory_history().

Source: `recordHistory` and `record_trace` in c10/cuda/CUDACachingAllocator.cpp, and the option
handling in torch/csrc/cuda/memory_snapshot.cpp, PyTorch 2.13.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId

if TYPE_CHECKING:
    from vramlab.allocator.blocks import Block

SKIPPABLE = frozenset(
    {
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "oom",
        "snapshot",
    }
)
"""The actions that `skip_actions` can leave out; PyTorch passes over other names in silence."""

_CONTEXT_LEVELS = (None, "state", "alloc", "all")


class AllocatorEvent(NamedTuple):
    """One thing that an allocator did.

    Attributes:
        action: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map,
            segment_unmap, oom, snapshot or annotate.
        address: where; of an oom the bytes that the driver still had free; of a snapshot 0.
        size_bytes: how much; of an alloc and a free what the program asked for.
        stream: the stream of the block.
        time_us: the clock's answer.
        context: what the caller gave with the allocation or free, if contexts are kept.
        user_metadata: the text that was set for the allocations at that time; of an annotate its
            own.
        pool_id: the memory pool of the block.
    """

    action: str
    address: int
    size_bytes: int
    stream: int
    time_us: int
    context: Any
    user_metadata: str
    pool_id: PoolId = DEFAULT_POOL_ID


class History:
    """Events, oldest first, at most `max_entries` of them; and who else wants to hear of them.

    Attributes:
        active: whether `record` has anything to do; callers look at it first, so that an allocator
            that records nothing pays nothing.
        enabled: whether events are kept.
        user_metadata: text to put on the events to come.
    """

    def __init__(self, clock_us: Callable[[], int] | None = None) -> None:
        self.active = False
        self.enabled = False
        self.user_metadata = ""
        self._clock_us = clock_us or count().__next__
        self._keeps_context = False
        self._skipped: frozenset[str] = frozenset()
        self._events: deque[AllocatorEvent] = deque(maxlen=1)
        self._trackers: list[Callable[[AllocatorEvent], None]] = []

    def configure(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        max_entries: int = sys.maxsize,
        clear_history: bool = False,
        skip_actions: Iterable[str] = (),
    ) -> None:
        """Start, change or (`enabled=None`) stop recording; see torch's function for the options.

        Raises: ValueError for an option that torch does not know either.
        """
        if enabled not in (None, "state", "all"):
            raise ValueError(f"expected enabled to be 'state', 'all' or None, got {enabled!r}")
        if context not in _CONTEXT_LEVELS:
            raise ValueError(
                f"expected context to be 'state', 'alloc', 'all' or None, got {context!r}"
            )
        level = _CONTEXT_LEVELS.index(context) if enabled else 0
        self._keeps_context = level >= 2
        self.enabled = enabled is not None
        self._skipped = SKIPPABLE.intersection(skip_actions)
        kept: Iterable[AllocatorEvent] = () if clear_history or not self.enabled else self._events
        self._events = deque(kept, maxlen=max(1, max_entries) if enabled == "all" else 1)
        self._look_active()

    def add_tracker(self, tracker: Callable[[AllocatorEvent], None]) -> None:
        """Call `tracker` with every event from now on, recorded or not."""
        self._trackers.append(tracker)
        self._look_active()

    def _look_active(self) -> None:
        self.active = self.enabled or bool(self._trackers)

    def record(
        self,
        action: str,
        address: int,
        size_bytes: int,
        stream: int,
        context: Any,
        pool_id: PoolId = DEFAULT_POOL_ID,
    ) -> None:
        """Tell the trackers, and keep the event if recording is on."""
        event = AllocatorEvent(
            action,
            address,
            size_bytes,
            stream,
            self._clock_us(),
            context if self._keeps_context else None,
            self.user_metadata,
            pool_id,
        )
        for tracker in self._trackers:
            tracker(event)
        if self.enabled and action not in self._skipped:
            self._events.append(event)

    def annotate(self, block: Block, text: str, context: Any) -> None:
        """Keep a text about a block that was allocated before, if recording is on."""
        if self.enabled:
            self._events.append(
                AllocatorEvent(
                    "annotate",
                    block.address,
                    block.requested_bytes,
                    block.segment.stream,
                    self._clock_us(),
                    context if self._keeps_context else None,
                    text,
                    block.segment.pool.id,
                )
            )

    def events(self) -> list[AllocatorEvent]:
        """List the events that are kept, oldest first."""
        return list(self._events)
