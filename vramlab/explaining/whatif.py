"""The requests of a trace under other allocator settings: what would have happened.

The allocator is `vramlab.allocator`, which reproduces PyTorch's to the byte. A trace that begins in
the middle is replayed from the segments and blocks that were there then, so that its settings take
effect where the trace begins. Only where segments are expandable and were not, or the other way
round, are the older blocks allocated first, as if nothing had been before them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from vramlab.allocator import (
    AllocatorSettings,
    CachingAllocator,
    DeviceMemory,
    Precedence,
    precedence_of,
    replay,
)
from vramlab.allocator.restored import RecordedAddresses, SegmentLayout, restore
from vramlab.errors import OutOfDeviceMemory
from vramlab.explaining.layout import layouts_before
from vramlab.explaining.traces import GPUTrace, Life
from vramlab.units import GIB

SETTINGS = (
    *replay.SETTINGS,
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:8",
)
"""Tried beside the recorded one."""

MOST_EVENTS_SEARCHED = 60_000
"""In longer traces the smallest memory is not searched: ten replays for each setting."""


@dataclass(frozen=True)
class Outcome:
    """What becomes of a trace's requests.

    Attributes:
        settings: the allocator settings, as PYTORCH_CUDA_ALLOC_CONF takes them.
        reserved_bytes: the peak that PyTorch reserves where memory does not run out.
        smallest_bytes: the least memory that suffices; None: not searched.
        retries: releases of the cache at the recorded capacity; None where it is not known.
        is_enough: whether the recorded capacity suffices; None where it is not known.
        is_as_recorded: whether at the recorded capacity, after each event, as much is reserved as
            was recorded, and the same request fails; None: these settings were not recorded.
    """

    settings: str
    reserved_bytes: int
    smallest_bytes: int | None
    retries: int | None
    is_enough: bool | None
    is_as_recorded: bool | None = None


@dataclass(frozen=True)
class Replayed:
    """What became of the requests; see `Outcome`."""

    reserved_bytes: int
    retries: int
    is_enough: bool


Level = tuple[int, int]
"""(position, reserved bytes from there on): position p is the moment before event p."""


class Replay:
    """The requests of a trace, and the one that failed, ready to be served again.

    Args:
        gpu: whose trace.
        without: events whose allocations are left out.
    """

    def __init__(self, gpu: GPUTrace, without: Collection[int] = ()) -> None:
        self._gpu = gpu
        self._requests, self._positions, self._older = _requests(gpu, without)
        self._layouts = layouts_before(gpu)
        self._precedence = _precedence(gpu)
        # Plenty; each expandable segment reserves addresses for all of it.
        self._plenty_bytes = 4 * max(gpu.reserved_bytes) + GIB

    def under(
        self,
        settings: str,
        capacity_bytes: int | None = None,
        note: Callable[[Level], None] | None = None,
    ) -> Replayed:
        """Serve the requests under other settings.

        Args:
            settings: as PYTORCH_CUDA_ALLOC_CONF takes them.
            capacity_bytes: what PyTorch may reserve; None: as much as it wants.
            note: called after each request and each free that was served.

        Raises:
            VramlabError: PyTorch has no such settings.
        """
        is_collecting = capacity_bytes is not None and _is_limited(settings)
        total_bytes = self._plenty_bytes if capacity_bytes is None else capacity_bytes
        if is_collecting:
            total_bytes = -(-total_bytes * 1000 // 999)  # the fraction below allows total_bytes
        parsed = AllocatorSettings.parse(settings)
        recorded = AllocatorSettings.parse(self._gpu.settings)
        layouts = self._layouts
        if parsed.expandable_segments != recorded.expandable_segments:
            layouts = []
        addresses = RecordedAddresses(_segments(self._gpu, layouts, settings))
        memory = DeviceMemory(total_bytes, addresses=addresses)
        allocator = CachingAllocator(memory, parsed, precedence=self._precedence)
        if is_collecting:
            allocator.memory_fraction = 0.999  # without a limit, PyTorch collects nothing
        try:
            held = restore(allocator, layouts)
        except OutOfDeviceMemory:
            return Replayed(0, 0, is_enough=False)

        def after(place: int) -> None:
            if note is not None:
                note((self._positions[place], allocator.reserved_bytes))

        is_enough = self._requests.play(
            allocator,
            None if note is None else after,
            {self._older[address]: block for address, block in held.items()},
        )
        stats = allocator.stats()
        return Replayed(
            stats["reserved_bytes"]["all"]["peak"], stats["num_alloc_retries"], is_enough
        )

    def is_as_recorded(self, capacity_bytes: int | None) -> bool:
        """Return whether the recorded settings reserve what was recorded, event by event."""
        served, differences = 0, 0

        def compare(level: Level) -> None:
            nonlocal served, differences
            position, reserved_bytes = level
            served += 1
            if position:  # before the first event, its segment may be missing
                differences += reserved_bytes != self._gpu.reserved_bytes[position]

        replayed = self.under(self._gpu.settings, capacity_bytes, compare)
        has_failed = bool(self._gpu.failures)
        is_same_end = (
            replayed.is_enough != has_failed and served == len(self._positions) - has_failed
        )
        return is_same_end and not differences

    def failed_after(self, served: int) -> tuple[int, int]:
        """Return what came after so many requests and frees: its position, and its bytes."""
        return self._positions[served], self._requests.bytes_at(served)

    def smallest(self, settings: str, enough_bytes: int) -> int:
        """Search the least memory in which all requests are served, to 2 MiB.

        Args:
            settings: as for `under`.
            enough_bytes: memory that is known to suffice.
        """
        return replay.least_memory(
            lambda size_bytes: self.under(settings, size_bytes).is_enough, enough_bytes
        )


def _precedence(gpu: GPUTrace) -> Precedence:
    """Return which free block this PyTorch prefers: events have a pool's id since 2.12."""
    has_pools = any("pool_id" in event for event in gpu.events[:100])
    return precedence_of((2, 13) if has_pools else (2, 11))


def _segments(
    gpu: GPUTrace, layouts: Collection[SegmentLayout], settings: str
) -> Iterator[tuple[int, int]]:
    """List addresses and sizes that cudaMalloc returns: before the trace, and as recorded in it."""
    yield from ((each.address, each.size_bytes) for each in layouts if not each.mapped)
    if settings == gpu.settings:
        for event in gpu.events:
            if event["action"] == "segment_alloc":
                yield event["addr"], event["size"]


def _requests(
    gpu: GPUTrace, without: Collection[int]
) -> tuple[replay.Requests, Sequence[int], dict[int, int]]:
    """Read the requests of a trace: first the blocks older than it.

    Returns:
        The requests, the position after each, and the number of each older block by its address.
    """
    requests, positions = replay.Requests(), array("q")

    def allocate(life: Life) -> None:
        numbers[id(life)] = requests.allocate(life.request_bytes, life.stream, life.pool_id)
        positions.append(life.born + 1)

    numbers: dict[int, int] = {}
    older = [life for life in gpu.lives if life.born < 0] + gpu.awaiting
    for life in older:
        allocate(life)
    lives = iter(life for life in gpu.lives if life.born >= 0)
    ends = {life.freed: life for life in gpu.lives if life.freed is not None}
    completing = {life.address: numbers[id(life)] for life in gpu.awaiting}
    empties = set(gpu.empties)
    for index, event in enumerate(gpu.events):
        if index in empties:
            requests.empty_cache()
            positions.append(index)
        match event["action"]:
            case "alloc":
                life = next(lives)
                if index not in without:
                    allocate(life)
            case "free_requested" if index in ends and id(ends[index]) in numbers:
                completing[event["addr"]] = numbers[id(ends[index])]
            case "free_completed" if event["addr"] in completing:
                requests.free(completing.pop(event["addr"]))
                positions.append(index + 1)
            case "oom" if index == gpu.failures[0].event:
                requests.fail(event["size"], event.get("stream", 0))
                positions.append(index + 1)
                break
    return requests, positions, {life.address: numbers[id(life)] for life in older}


def outcomes(gpu: GPUTrace) -> Iterator[Outcome]:
    """Try a trace's requests under the recorded settings and under each of `SETTINGS`."""
    replayed, capacity = Replay(gpu), gpu.capacity_bytes
    is_searched = len(gpu.events) <= MOST_EVENTS_SEARCHED
    for settings in dict.fromkeys((gpu.settings, *SETTINGS)):
        free = replayed.under(settings)
        here = free
        if capacity is not None and (free.reserved_bytes > capacity or _is_limited(settings)):
            here = replayed.under(settings, capacity)
        yield Outcome(
            settings,
            free.reserved_bytes,
            replayed.smallest(settings, free.reserved_bytes) if is_searched else None,
            None if capacity is None else here.retries,
            None if capacity is None else here.is_enough,
            replayed.is_as_recorded(capacity) if settings == gpu.settings else None,
        )


def _is_limited(settings: str) -> bool:
    """Whether settings change what happens below the capacity: a threshold is a part of it."""
    return "garbage_collection" in settings
