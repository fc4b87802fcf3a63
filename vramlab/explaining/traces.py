"""What a memory snapshot says about each GPU: events, and the blocks alive before, during, after.

A trace is a ring buffer, so it may begin in the middle. What was there before is found by walking
back from the final segments: every block that is active at the end and not allocated in the trace,
and every block that the trace frees without having allocated it.

Sizes in a trace are requests; a block has the request rounded up to 512 bytes. Source:
`record_trace` in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11, and torch/cuda/memory.py.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vramlab.allocator import AllocatorSettings
from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId
from vramlab.cuda_rules.rounding import round_up
from vramlab.errors import VramlabError
from vramlab.explaining.unpickling import UnreadableSnapshot

BLOCK_BYTES = 512
"""`kMinBlockSize`: every block is a multiple of it."""

Frames = Sequence[Mapping[str, Any]]
"""Innermost first, as PyTorch writes them."""

WITHOUT_PYTHON: Frames = ({"filename": "", "line": 0, "name": ""},)
"""The stack of an event that has none, though others have: on Windows PyTorch records no frames of
C++, and autograd's threads have no others."""


@dataclass
class Life:
    """A block from its allocation to its release.

    Attributes:
        request_bytes: what was asked for.
        stream: 0 is the default stream.
        born: index of the event that allocated it; -1 if it is older than the trace.
        freed: index of the event that freed it; None if it is still there.
        frames: the stack of its allocation.
        free_frames: the stack of its release.
        address: where it lies.
        pool_id: of a CUDA graph or a memory pool; the default pool's is (0, 0).
    """

    request_bytes: int
    stream: int
    born: int
    frames: Frames
    freed: int | None = None
    free_frames: Frames = ()
    address: int = 0
    pool_id: PoolId = DEFAULT_POOL_ID

    @property
    def size_bytes(self) -> int:
        """The block: the request, rounded up."""
        return max(BLOCK_BYTES, round_up(self.request_bytes, BLOCK_BYTES))

    def is_alive(self, moment: int) -> bool:
        """Return whether it is allocated before the event of this index."""
        return self.born < moment and (self.freed is None or self.freed >= moment)


@dataclass(frozen=True)
class Failure:
    """A request that could not be served.

    Attributes:
        event: index in the trace.
        request_bytes: the segment that was asked of the driver.
        free_bytes: what the driver had left.
        frames: the stack of the request.
    """

    event: int
    request_bytes: int
    free_bytes: int
    frames: Frames

    @property
    def is_limited(self) -> bool:
        """Whether the driver had enough: then a limit below the GPU's memory refused the request.

        `torch.cuda.set_per_process_memory_fraction` sets one, and no snapshot says so.
        """
        return self.request_bytes <= self.free_bytes


@dataclass(frozen=True)
class Retry:
    """A moment at which PyTorch released its cache to serve a request.

    Attributes:
        event: index of the segment allocation that followed.
        request_bytes: the segment that was asked of the driver.
        released_bytes: what the segments had that were released.
    """

    event: int
    request_bytes: int
    released_bytes: int


@dataclass
class GPUTrace:
    """One GPU of a snapshot.

    Attributes:
        device: its index.
        events: as the snapshot has them.
        lives: of all blocks, the oldest first.
        awaiting: blocks that were freed before the trace began, and that a stream still used.
        empties: events before which the program emptied the cache.
        segments: at the end.
        allocated_bytes: before each event, and after the last.
        reserved_bytes: the same.
        failures: requests that ended in an out-of-memory error.
        retries: releases of the cache to serve a request.
        settings: the allocator settings that were recorded, '' if none were.
    """

    device: int
    events: Sequence[Mapping[str, Any]]
    segments: Sequence[Mapping[str, Any]]
    settings: str
    lives: list[Life] = field(default_factory=list)
    awaiting: list[Life] = field(default_factory=list)
    empties: list[int] = field(default_factory=list)
    allocated_bytes: list[int] = field(default_factory=list)
    reserved_bytes: list[int] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    retries: list[Retry] = field(default_factory=list)

    @cached_property
    def peak_event(self) -> int:
        """The moment at which most is allocated: before the event of this index."""
        return max(range(len(self.allocated_bytes)), key=self.allocated_bytes.__getitem__)

    @property
    def moment(self) -> int:
        """The moment to explain: the first failure, or else the peak."""
        return self.failures[0].event if self.failures else self.peak_event

    def alive(self, moment: int) -> list[Life]:
        """Return the blocks that are allocated before the event of this index."""
        return [life for life in self.lives if life.is_alive(moment)]

    @property
    def capacity_bytes(self) -> int | None:
        """What PyTorch could reserve; None where nothing in the trace tells.

        A failure tells it exactly, unless a limit refused it: then, and where the cache was
        released to serve a request, more than the recorded peak was not to be had, or hardly more.
        """
        if self.failures and not self.failures[0].is_limited:
            first = self.failures[0]
            return self.reserved_bytes[first.event] + first.free_bytes
        return max(self.reserved_bytes) if self.retries or self.failures else None


def read_gpus(snapshot: Mapping[str, Any]) -> list[GPUTrace]:
    """Read the GPUs of a snapshot that hold or held something.

    Raises:
        UnreadableSnapshot: segments or events lack what every PyTorch since 2.0 writes.
    """
    traces = snapshot.get("device_traces") or []
    segments = snapshot["segments"]
    try:
        recorded = snapshot.get("allocator_settings") or {}
        settings = _known(str(recorded.get("PYTORCH_CUDA_ALLOC_CONF", "")))
        used = {segment.get("device", 0) for segment in segments}
        used |= {device for device, events in enumerate(traces) if events}
        return [
            _gpu(
                device,
                traces[device] if device < len(traces) else [],
                [segment for segment in segments if segment.get("device", 0) == device],
                settings,
            )
            for device in sorted(used)
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableSnapshot(
            f"its segments or events are not those of a memory snapshot ({error!r})"
        ) from error


def _known(settings: str) -> str:
    """Leave out settings that are not modelled: another backend, or those of a new PyTorch."""

    def is_known(setting: str) -> bool:
        with suppress(VramlabError):
            AllocatorSettings.parse(setting)
            return "backend:" not in setting
        return False

    # Commas also separate the entries of a list in brackets.
    options = re.split(r",(?![^\[]*\])", settings)
    return settings if is_known(settings) else ",".join(filter(is_known, options))


def _gpu(
    device: int,
    events: Sequence[Mapping[str, Any]],
    segments: Sequence[Mapping[str, Any]],
    settings: str,
) -> GPUTrace:
    gpu = GPUTrace(device, events, segments, settings)
    active = _active_blocks(segments)
    pools = _Pools(segments, events)
    has_stacks = any(_frames(event) for event in events)
    before, gpu.awaiting, reserved = _before(events, segments, active, pools)
    gpu.lives += before.values()
    live = dict(before)
    gpu.allocated_bytes.append(sum(life.size_bytes for life in before.values()))
    gpu.reserved_bytes.append(reserved)
    for index, event in enumerate(events):
        action, allocated, reserved = event["action"], gpu.allocated_bytes[-1], reserved
        size_bytes = event.get("size", 0)
        match action:
            case "alloc":
                frames = _frames(event) or (WITHOUT_PYTHON if has_stacks else ())
                life = Life(event["size"], event.get("stream", 0), index, frames)
                life.address = event["addr"]
                life.pool_id = pools.at(index, event)
                gpu.lives.append(life)
                live[event["addr"]] = life
                allocated += life.size_bytes
            case "free_requested":
                if (freed := live.pop(event["addr"], None)) is not None:
                    freed.freed, freed.free_frames = index, event.get("frames", ())
                    allocated -= freed.size_bytes
            case "segment_alloc" | "segment_map":
                reserved += size_bytes
            case "segment_free" | "segment_unmap":
                reserved -= size_bytes
            case "oom":
                gpu.failures.append(
                    Failure(index, size_bytes, event.get("device_free", 0), _frames(event))
                )
        gpu.allocated_bytes.append(allocated)
        gpu.reserved_bytes.append(reserved)
    _find_releases(gpu)
    return gpu


_RELEASES = ("segment_free", "segment_unmap")


def _find_releases(gpu: GPUTrace) -> None:
    """Sort releases of the cache: those of the program, and those to serve a request.

    PyTorch releases the cache in the call that needs the memory, so both have the same stack. If
    they have not, that call would have needed more than the trace ever reserves.
    """
    most_bytes = max(gpu.reserved_bytes)
    index, count = 0, len(gpu.events)
    while index < count:
        first = index
        while index < count and gpu.events[index]["action"] in _RELEASES:
            index += 1
        if index == first:
            index += 1
            continue
        follower: Mapping[str, Any] = gpu.events[index] if index < count else {}
        action, request_bytes = follower.get("action"), follower.get("size", 0)
        would_reserve = gpu.reserved_bytes[first] + request_bytes
        frames = _frames(gpu.events[first])
        is_same = bool(frames) and list(frames) == list(_frames(follower))
        serves = action == "oom" or (
            action in ("segment_alloc", "segment_map") and (is_same or would_reserve > most_bytes)
        )
        if serves and not any("empty_cache" in str(frame.get("name")) for frame in frames):
            released_bytes = gpu.reserved_bytes[first] - gpu.reserved_bytes[index]
            gpu.retries.append(Retry(index, request_bytes, released_bytes))
        else:
            gpu.empties.append(index)


class _Pools:
    """Which pool an event is about: events say it since 2.12, existing segments since 2.1."""

    def __init__(
        self, segments: Iterable[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
    ) -> None:
        private = sorted(
            (segment["address"], segment["address"] + segment["total_size"], pool_id)
            for segment in segments
            if (pool_id := pool_id_of(segment.get("segment_pool_id"))) != DEFAULT_POOL_ID
        )
        # Before that, another segment may have had the address.
        self._made = {
            event["addr"]: index
            for index, event in enumerate(events if private else ())
            if event["action"] in ("segment_alloc", "segment_map")
        }
        self._private = private
        self._starts = [start for start, _, _ in private]

    def at(self, index: int, event: Mapping[str, Any]) -> PoolId:
        """Return the pool of an event, which has this index."""
        if "pool_id" in event:
            return pool_id_of(event["pool_id"])
        place = bisect_right(self._starts, event["addr"]) - 1
        if place >= 0 and event["addr"] < self._private[place][1]:
            start, _, pool_id = self._private[place]
            return pool_id if index >= self._made.get(start, 0) else DEFAULT_POOL_ID
        return DEFAULT_POOL_ID


def pool_id_of(recorded: Sequence[int] | None) -> PoolId:
    """Return the private pool that an event or a segment names; without one, the default pool."""
    return DEFAULT_POOL_ID if recorded is None else (recorded[0], recorded[1])


def _frames(entry: Mapping[str, Any]) -> Frames:
    frames: Frames = entry.get("frames") or ()
    return frames


def _active_blocks(segments: Iterable[Mapping[str, Any]]) -> dict[int, Life]:
    """Find what is allocated at the end, by address. PyTorch 2.0 wrote no addresses of blocks."""
    found = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                history = block.get("history") or [{}]
                request_bytes = block.get("requested_size", history[0].get("real_size"))
                at = block.get("address", address)
                found[at] = Life(
                    block["size"] if request_bytes is None else request_bytes,
                    segment.get("stream", 0),
                    -1,
                    _frames(block) or _frames(history[0]),
                    address=at,
                    pool_id=pool_id_of(segment.get("segment_pool_id")),
                )
            address += block["size"]
    return found


def _before(
    events: Sequence[Mapping[str, Any]],
    segments: Sequence[Mapping[str, Any]],
    active: Mapping[int, Life],
    pools: _Pools,
) -> tuple[dict[int, Life], list[Life], int]:
    """Walk back to what was there before the first event.

    Returns:
        Allocated blocks by address, blocks that only a stream still used, and bytes reserved.
    """
    first: dict[int, str] = {}
    freed: dict[int, int] = {}
    reserved = sum(segment["total_size"] for segment in segments)
    for index, event in enumerate(events):
        action = event["action"]
        if action in ("alloc", "free_requested", "free_completed"):
            address = event["addr"]
            if first.setdefault(address, action) != "alloc":
                freed.setdefault(address, index)
        elif action in ("segment_alloc", "segment_map"):
            reserved -= event["size"]
        elif action in ("segment_free", "segment_unmap"):
            reserved += event["size"]
    before, awaiting = {}, []
    for address, index in freed.items():
        event = events[index]
        life = Life(
            event["size"],
            event.get("stream", 0),
            -1,
            (),
            address=address,
            pool_id=pools.at(index, event),
        )
        if event["action"] == "free_requested":
            before[address] = life
        else:
            life.freed = index
            awaiting.append(life)
    before |= {address: life for address, life in active.items() if address not in first}
    return before, awaiting, max(0, reserved)
