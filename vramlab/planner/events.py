"""What a training does to memory, as the blocks that it allocates and frees, in order.

Knows nothing of torch. `vramlab.planner.tracing` makes such a list from a run,
`vramlab.planner.extension` makes one for more layers than have run, and `peak` runs it through the
caching allocator, which decides how large each block becomes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vramlab.allocator import Block, CachingAllocator

GATHERED = "communication buffers"
"""Parameters that were gathered, and buffers of what is sent and received."""

CATEGORIES = (
    "parameters",
    "buffers",
    "optimizer states",
    "gradients",
    GATHERED,
    "inputs",
    "workspaces",
    "activations",
    "temporaries",
)
"""As `vramlab.measure.Category` names them; what ranks gather and send stands apart."""

REMAINDERS = "unsplit remainders"
"""What blocks are larger than their rounded requests: the allocator did not split the free blocks
that it found for them."""


class BlockEvent(NamedTuple):
    """One block that is allocated or freed."""

    size_bytes: int
    """What was requested, rounded up; less than 0 where it is freed."""
    category: str
    """Which of `CATEGORIES` the block is, or another of `vramlab.measure.Category`."""
    place: str
    """What allocated the block: the part of the step, and PyTorch's op or autograd's node."""
    stream: int = 0
    """The CUDA stream that the block belongs to."""
    which: int = 0
    """Which of the live blocks alike is freed: 0 is the newest, 1 the one before; -1 the oldest."""


STEP_BEGINS = BlockEvent(0, "", "the step begins")
"""Stands before the events of the last step."""

Events = Sequence[BlockEvent]
"""All that a training allocates and frees, from the making of the model on: a first step, then
`STEP_BEGINS`, then a second step."""


@dataclass(frozen=True)
class Moment:
    """One moment of a training step, and where the bytes are."""

    name: str
    """What has just taken a block: the `place` of its event."""
    bytes_by_category: Mapping[str, int]
    """By the names in `CATEGORIES`, and `REMAINDERS` where blocks have them."""

    @property
    def total_bytes(self) -> int:
        """Return the sum over all categories."""
        return sum(self.bytes_by_category.values())

    @property
    def blocks_bytes(self) -> int:
        """Return the sum without unsplit remainders."""
        return self.total_bytes - self.bytes_by_category.get(REMAINDERS, 0)


MOST_STEPS = 16
"""So many steps are followed at most, where each leaves the memory otherwise."""


def peak(events: Events, allocator: CachingAllocator) -> Moment:
    """Return the first moment at which most is allocated: `torch.cuda.max_memory_allocated()`.

    The last step is done again until it leaves the memory as a step before it did: where blocks
    lie decides which free ones are found, and a third step can take more than a second. A step that
    does not free all it takes, as DDP's second one with its new buckets, is not done again.

    Args:
        events: of a training.
        allocator: a fresh one, which serves all of them.

    Raises:
        OutOfDeviceMemory: the allocator cannot serve them.
    """
    replay = _Replay(events, allocator)
    begins = events.index(STEP_BEGINS) if STEP_BEGINS in events else len(events)
    replay.run(0, begins)
    layouts = [replay.layout()]
    replay.run(begins, len(events))
    repeats = _gives_all_back(events[begins:])
    while repeats and len(layouts) < MOST_STEPS and (layout := replay.layout()) not in layouts:
        layouts.append(layout)
        replay.run(begins, len(events))
    moment = _moment(events, replay.found)
    remainder_bytes = replay.most_bytes - moment.total_bytes
    if not remainder_bytes:
        return moment
    return Moment(moment.name, {**moment.bytes_by_category, REMAINDERS: remainder_bytes})


def _gives_all_back(events: Events) -> bool:
    """Return whether as many blocks of each kind are freed as are allocated."""
    counts: dict[tuple[object, ...], int] = defaultdict(int)
    for size_bytes, category, place, stream, _ in events:
        counts[abs(size_bytes), category, place, stream] += (size_bytes > 0) - (size_bytes < 0)
    return not any(counts.values())


class _Replay:
    """Events that an allocator serves.

    Attributes:
        most_bytes: that were allocated at once.
        found: the position of the event that led to it.
    """

    def __init__(self, events: Events, allocator: CachingAllocator) -> None:
        self._events, self._allocator = events, allocator
        self._live: dict[tuple[object, ...], list[Block]] = defaultdict(list)
        self._alike: dict[int, list[Block]] = {}  # by the identity of an event, which comes again
        self._allocated_bytes = self.most_bytes = self.found = 0

    def run(self, first: int, end: int) -> None:
        """Serve some of the events."""
        malloc, free = self._allocator.malloc, self._allocator.free
        allocated_bytes, alike_of = self._allocated_bytes, self._alike
        for position in range(first, end):
            event = self._events[position]
            size_bytes, category, place, stream, which = event
            alike = alike_of.get(id(event))
            if alike is None:
                alike = alike_of[id(event)] = self._live[abs(size_bytes), category, place, stream]
            if size_bytes > 0:
                block = malloc(size_bytes, stream)
                alike.append(block)
                allocated_bytes += block.size_bytes
                if allocated_bytes > self.most_bytes:
                    self.most_bytes, self.found = allocated_bytes, position
            elif size_bytes < 0:
                block = alike.pop(-1 - which)
                allocated_bytes -= block.size_bytes
                free(block)
        self._allocated_bytes = allocated_bytes

    def layout(self) -> tuple[object, ...]:
        """Return where blocks are, and how much is reserved: the next step depends on no more."""
        addresses = tuple(tuple(b.address for b in alike) for alike in self._live.values() if alike)
        return self._allocator.reserved_bytes, addresses


def moments(events: Events) -> dict[str, Moment]:
    """Return the largest moment of each place in a step, in the order in which places come first.

    Unsplit remainders are left out: they depend on what was allocated before.

    Args:
        events: of a training; its last step counts, and what has the same `place` in all layers is
            one place.
    """
    total_bytes, most, found = 0, dict[str, int](), dict[str, int]()
    begins = events.index(STEP_BEGINS)
    for position, event in enumerate(events):
        total_bytes += event.size_bytes
        taken = position > begins and event.size_bytes > 0
        if taken and total_bytes > most.get(event.place, 0):
            most[event.place], found[event.place] = total_bytes, position
    return {place: _moment(events, position) for place, position in found.items()}


def _moment(events: Events, position: int) -> Moment:
    return Moment(events[position].place, _by_category(events[: position + 1]))


def _by_category(events: Iterable[BlockEvent]) -> dict[str, int]:
    sums = dict.fromkeys(CATEGORIES, 0)
    for event in events:
        if event.size_bytes:
            sums[event.category] = sums.get(event.category, 0) + event.size_bytes
    return sums
