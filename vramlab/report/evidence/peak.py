"""Which blocks live when allocated bytes are highest, told event by event.

A training script makes millions of allocations, so nothing is kept of the past but this: the blocks
that live now, and how they differ from those that lived at the highest moment so far. A new highest
moment clears the difference. Each event costs the same, however long the program has run, and what
is remembered is never more than the live blocks of two moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vramlab.allocator.caching import OutOfMemoryObserver
from vramlab.allocator.history import AllocatorEvent
from vramlab.measure import Category
from vramlab.report.evidence.origins import BlockOrigin
from vramlab.report.evidence.stages import StagePeaks

if TYPE_CHECKING:
    from vramlab.report.evidence.history import BlockHistory


class LiveBlock:
    """One block, from its allocation to its release.

    Attributes:
        address: where it lies in device memory.
        requested_bytes: what was asked for.
        size_bytes: what it counts for in allocated bytes.
        stream: the CUDA stream it was allocated for.
        born: the moment of its allocation, by the clock of the run.
        freed: the moment of its release, or None.
        origin: which line it comes from, in which part of the program.
        owner: what a tensor was that was seen in it, or None.
    """

    __slots__ = (
        "address",
        "born",
        "freed",
        "origin",
        "owner",
        "requested_bytes",
        "size_bytes",
        "stream",
    )

    def __init__(
        self, address: int, requested_bytes: int, stream: int, born: int, origin: BlockOrigin
    ) -> None:
        self.address = address
        self.requested_bytes = requested_bytes
        self.size_bytes = requested_bytes
        self.stream = stream
        self.born = born
        self.freed: int | None = None
        self.origin = origin
        self.owner: Category | None = origin.owner


@dataclass(frozen=True)
class LiveBlocks:
    """Blocks that a GPU's memory held at one moment."""

    moment: int
    """When, by the clock of the run."""
    allocated_bytes: int
    """The blocks' sizes, added up by the allocator."""
    reserved_bytes: int
    """What the allocator had taken from the driver."""
    blocks: tuple[LiveBlock, ...]
    """The blocks, in order of address."""


@dataclass(frozen=True)
class OutOfMemory:
    """A request that one GPU could not serve."""

    device: int
    """Index of the GPU."""
    segment_bytes: int
    """What the driver was asked for (torch's 'Tried to allocate')."""
    origin: BlockOrigin
    """The line at fault."""
    live: LiveBlocks
    """What the memory held."""


class Followable(Protocol):
    """What is asked of an allocator: a virtual GPU's own, or one that follows a trace."""

    @property
    def allocated_bytes(self) -> int:
        """What the program holds now."""

    @property
    def reserved_bytes(self) -> int:
        """What was taken from the driver."""

    def add_trace_tracker(self, tracker: Callable[[AllocatorEvent], None], /) -> None:
        """Call `tracker` with every event from now on, before counters change."""

    def add_oom_observer(self, observer: OutOfMemoryObserver, /) -> None:
        """Call `observer` when a request cannot be served."""


class PeakWatch:
    """Follows one allocator.

    It is called with each event while the allocator is locked and before its counters change, so a
    block's size is only known with the next event: `_settle` looks at the last one first.

    Args:
        allocator: whose events are followed, from now on.
        clock: answers the next moment; one for all GPUs of a run.
        origin: answers which line is allocating.

    Attributes:
        out_of_memory_count: how many requests could not be served.
        last_out_of_memory: the last of them.
        history: is given every block, if anybody asks for that.
        stages: what each stage of the program has held.
        reserved_ahead_bytes: what was reserved at most, as far as that is known before its events.
    """

    def __init__(
        self,
        allocator: Followable,
        clock: Callable[[], int],
        origin: Callable[[], BlockOrigin],
    ) -> None:
        self.out_of_memory_count = 0
        self.last_out_of_memory: OutOfMemory | None = None
        self.history: BlockHistory | None = None
        self.stages = StagePeaks()
        self.reserved_ahead_bytes = 0
        self._allocator = allocator
        self._clock = clock
        self._origin = origin
        self._live: dict[int, LiveBlock] = {}
        self._newest: LiveBlock | None = None
        self._allocated_before_bytes = 0
        self._peak_moment = 0
        self._peak_allocated_bytes = 0
        self._reserved_at_peak_bytes = 0
        self._peak_reserved_bytes = 0
        self._born_since_peak: set[LiveBlock] = set()
        self._freed_since_peak: list[LiveBlock] = []
        allocator.add_trace_tracker(self._on_event)
        allocator.add_oom_observer(self._on_out_of_memory)

    @property
    def peak_reserved_bytes(self) -> int:
        """The most that was reserved at any time, also if the program reset torch's counters."""
        self._settle()
        return self._peak_reserved_bytes

    @property
    def reserved_until_now_bytes(self) -> int:
        """The same while the program runs, for other threads: the last event may be missing."""
        return max(
            self._peak_reserved_bytes, self._allocator.reserved_bytes, self.reserved_ahead_bytes
        )

    @property
    def peak_allocated_bytes(self) -> int:
        """The most that was allocated at any time."""
        self._settle()
        return self._peak_allocated_bytes

    def go_on_with(self, blocks: Sequence[LiveBlock]) -> None:
        """Take what lives now, after a time that was not followed and had no peak.

        Blocks of before count as freed: whether one is the same as now is not known. Where one of
        the same size and origin lies at its address, it is what that was.

        Args:
            blocks: with their sizes.
        """
        self._settle()
        before = self._live
        self._freed_since_peak += [
            block for block in before.values() if block not in self._born_since_peak
        ]
        for block in blocks:
            same = before.get(block.address)
            if same and (same.requested_bytes, same.origin) == (
                block.requested_bytes,
                block.origin,
            ):
                block.owner = same.owner
        self._live = {block.address: block for block in blocks}
        self._born_since_peak = set(blocks)

    def block_at(self, address: int) -> LiveBlock | None:
        """Find the block that begins at an address now."""
        return self._live.get(address)

    def stage_begins(self, name: str) -> None:
        """Note that a stage of the program begins."""
        self._settle()
        self.stages.begin(name, self._allocator.allocated_bytes)

    def stage_ends(self) -> None:
        """Note that the innermost stage ends."""
        self._settle()
        self.stages.end(self._allocator.allocated_bytes)

    def peak(self) -> LiveBlocks:
        """Return the blocks that lived when allocated bytes were first highest."""
        self._settle()
        blocks = [block for block in self._live.values() if block not in self._born_since_peak]
        return LiveBlocks(
            self._peak_moment,
            self._peak_allocated_bytes,
            self._reserved_at_peak_bytes,
            _by_address([*blocks, *self._freed_since_peak]),
        )

    def now(self) -> LiveBlocks:
        """Return the blocks that live now."""
        self._settle()
        return LiveBlocks(
            self._clock(),
            self._allocator.allocated_bytes,
            self._allocator.reserved_bytes,
            _by_address(self._live.values()),
        )

    def _on_event(self, event: AllocatorEvent) -> None:
        self._settle()
        if event.action == "alloc":
            block = LiveBlock(
                event.address, event.size_bytes, event.stream, self._clock(), self._origin()
            )
            self._live[event.address] = block
            self._born_since_peak.add(block)
            self._newest = block
            if self.history is not None:
                self.history.add(block, self._allocator.reserved_bytes)
            self._allocated_before_bytes = self._allocator.allocated_bytes
        elif event.action == "free_requested":
            freed = self._live.pop(event.address, None)
            if freed is None:
                return  # it was there before
            freed.freed = self._clock()
            if freed in self._born_since_peak:
                self._born_since_peak.remove(freed)
            else:
                self._freed_since_peak.append(freed)

    def _settle(self) -> None:
        """Take in what the counters say since the last event."""
        allocator = self._allocator
        if allocator.reserved_bytes > self._peak_reserved_bytes:
            self._peak_reserved_bytes = allocator.reserved_bytes
        newest = self._newest
        if newest is None:
            return
        self._newest = None
        allocated_bytes = allocator.allocated_bytes
        newest.size_bytes = allocated_bytes - self._allocated_before_bytes
        self.stages.note(allocated_bytes)
        if allocated_bytes > self._peak_allocated_bytes:
            self._peak_moment = newest.born
            self._peak_allocated_bytes = allocated_bytes
            self._reserved_at_peak_bytes = allocator.reserved_bytes
            self._born_since_peak.clear()
            self._freed_since_peak.clear()

    def _on_out_of_memory(
        self, device: int, segment_bytes: int, limit_bytes: int, free_bytes: int
    ) -> None:
        self.out_of_memory_count += 1
        self.last_out_of_memory = OutOfMemory(device, segment_bytes, self._origin(), self.now())


def _by_address(blocks: Iterable[LiveBlock]) -> tuple[LiveBlock, ...]:
    return tuple(sorted(blocks, key=lambda block: block.address))
