"""The requests of a trace under other allocator settings: what would have happened.

The allocator is `vramlab.allocator`, which reproduces PyTorch's to the byte. What was there before
the trace is allocated first, in its order, so that the layout at the beginning is an approximation
for traces that begin in the middle; a trace that begins with the process is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from vramlab.allocator import (
    AllocatorSettings,
    Block,
    CachingAllocator,
    DeviceMemory,
    Precedence,
    precedence_of,
)
from vramlab.cuda_rules.rounding import round_up
from vramlab.errors import OutOfDeviceMemory
from vramlab.explaining.traces import GPUTrace
from vramlab.units import GIB, MIB

SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:8",
)
"""Tried beside the recorded one; '' is PyTorch's default."""

PAGE_BYTES = 2 * MIB
"""What segments are multiples of, so that a finer search would find nothing else."""

_MOST_EVENTS_SEARCHED = 60_000
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
    """

    settings: str
    reserved_bytes: int
    smallest_bytes: int | None
    retries: int | None
    is_enough: bool | None


@dataclass(frozen=True)
class _Replayed:
    reserved_bytes: int
    retries: int
    is_enough: bool


def precedence(gpu: GPUTrace) -> Precedence:
    """Tell which free block this PyTorch prefers: events have a pool's id since 2.12."""
    has_pools = any("pool_id" in event for event in gpu.events[:100])
    return precedence_of((2, 13) if has_pools else (2, 11))


def replay(
    gpu: GPUTrace,
    settings: str,
    capacity_bytes: int | None = None,
    without: Collection[int] = (),
) -> _Replayed:
    """Serve a trace's requests, and the one that failed, under other settings.

    Args:
        gpu: whose trace.
        settings: as PYTORCH_CUDA_ALLOC_CONF takes them.
        capacity_bytes: what PyTorch may reserve; None: as much as it wants.
        without: events whose allocations are left out.
    """
    # Four times the recorded peak is plenty, and each expandable segment reserves addresses for it.
    plenty_bytes = 4 * max(gpu.reserved_bytes) + GIB
    memory = DeviceMemory(plenty_bytes if capacity_bytes is None else capacity_bytes)
    allocator = CachingAllocator(
        memory, AllocatorSettings.parse(settings), precedence=precedence(gpu)
    )
    if capacity_bytes is not None and "garbage_collection" in settings:
        allocator.memory_fraction = 0.999999  # without a limit, PyTorch collects nothing
    streams = {stream: number for number, stream in enumerate(_streams(gpu))}
    blocks: dict[int, Block] = {}
    completing: dict[int, Block] = {}
    is_enough = True
    lives = iter(life for life in gpu.lives if life.born >= 0)
    ends = {life.freed: life for life in gpu.lives if life.freed is not None}
    try:
        for life in (life for life in gpu.lives if life.born < 0):
            blocks[id(life)] = allocator.malloc(life.request_bytes, streams[life.stream])
        for index, event in enumerate(gpu.events):
            match event["action"]:
                case "alloc":
                    life = next(lives)
                    if index not in without:
                        blocks[id(life)] = allocator.malloc(
                            life.request_bytes, streams[life.stream]
                        )
                case "free_requested" if index in ends and id(ends[index]) in blocks:
                    completing[event["addr"]] = blocks.pop(id(ends[index]))
                case "free_completed" if event["addr"] in completing:
                    allocator.free(completing.pop(event["addr"]))
                case "oom" if index == gpu.failures[0].event:
                    allocator.malloc(event["size"])
                    break
    except OutOfDeviceMemory:
        is_enough = False
    stats = allocator.stats()
    return _Replayed(stats["reserved_bytes"]["all"]["peak"], stats["num_alloc_retries"], is_enough)


def _streams(gpu: GPUTrace) -> list[int]:
    """List the streams that occur, the default stream first."""
    return sorted({0, *(life.stream for life in gpu.lives)})


def smallest(
    gpu: GPUTrace, settings: str, at_most_bytes: int, without: Collection[int] = ()
) -> int:
    """Search the least memory in which all requests are served, to 2 MiB.

    Args:
        gpu: whose trace.
        settings: as for `replay`.
        at_most_bytes: memory that is known to suffice.
        without: as for `replay`.
    """
    low, high = 0, round_up(at_most_bytes, PAGE_BYTES) // PAGE_BYTES
    while high - low > 1:
        middle = (low + high) // 2
        if replay(gpu, settings, middle * PAGE_BYTES, without).is_enough:
            high = middle
        else:
            low = middle
    return high * PAGE_BYTES


def outcomes(gpu: GPUTrace, tell: Callable[[str], None] = lambda words: None) -> Iterator[Outcome]:
    """Try a trace's requests under the recorded settings and under each of `SETTINGS`.

    Args:
        gpu: whose trace.
        tell: is told which setting is tried.
    """
    capacity = gpu.capacity_bytes
    is_searched = len(gpu.events) <= _MOST_EVENTS_SEARCHED
    for settings in dict.fromkeys((gpu.settings, *SETTINGS)):
        tell(settings or "default")
        free = replay(gpu, settings)
        at_capacity = None if capacity is None else replay(gpu, settings, capacity)
        yield Outcome(
            settings,
            free.reserved_bytes,
            smallest(gpu, settings, free.reserved_bytes) if is_searched else None,
            None if at_capacity is None else at_capacity.retries,
            None if at_capacity is None else at_capacity.is_enough,
        )
