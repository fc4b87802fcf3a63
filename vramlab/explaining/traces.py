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


def segments_at(gpu: GPUTrace, moment: int) -> dict[int, int]:
    """Return sizes by address of what cudaMalloc had allocated before an event.

    Expandable segments are left out: their pages are freed one by one, so no block pins them.
    """
    found = {
        segment["address"]: segment["total_size"]
        for segment in gpu.segments
        if not segment.get("is_expandable")
    }
    for event in reversed(gpu.events[moment:]):
        if event["action"] == "segment_alloc":
            found.pop(event["addr"], None)
        elif event["action"] == "segment_free":
            found[event["addr"]] = event["size"]
    return found


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
    pools = _Pools(segments)
    before, reserved = _before(events, segments, active, pools)
    gpu.lives += before.values()
    live = dict(before)
    gpu.allocated_bytes.append(sum(life.size_bytes for life in before.values()))
    gpu.reserved_bytes.append(reserved)
    releasing = 0
    for index, event in enumerate(events):
        action, allocated, reserved = event["action"], gpu.allocated_bytes[-1], reserved
        size_bytes = event.get("size", 0)
        released, releasing = releasing, 0
        match action:
            case "alloc":
                life = Life(event["size"], event.get("stream", 0), index, _frames(event))
                life.address = event["addr"]
                life.pool_id = pools.at(event)
                gpu.lives.append(life)
                live[event["addr"]] = life
                allocated += life.size_bytes
            case "free_requested":
                if (freed := live.pop(event["addr"], None)) is not None:
                    freed.freed, freed.free_frames = index, event.get("frames", ())
                    allocated -= freed.size_bytes
                releasing = released
            case "segment_alloc" | "segment_map":
                if released and action == "segment_alloc":
                    gpu.retries.append(Retry(index, size_bytes, released))
                reserved += size_bytes
            case "segment_free" | "segment_unmap":
                releasing = released + size_bytes
                reserved -= size_bytes
            case "oom":
                gpu.failures.append(
                    Failure(index, size_bytes, event.get("device_free", 0), _frames(event))
                )
            case _:
                releasing = released
        gpu.allocated_bytes.append(allocated)
        gpu.reserved_bytes.append(reserved)
    return gpu


class _Pools:
    """Which pool an event is about: events say it since 2.12, existing segments since 2.1."""

    def __init__(self, segments: Iterable[Mapping[str, Any]]) -> None:
        private = sorted(
            (segment["address"], segment["address"] + segment["total_size"], pool_id)
            for segment in segments
            if (pool_id := _pool_id(segment.get("segment_pool_id"))) != DEFAULT_POOL_ID
        )
        self._private = private
        self._starts = [start for start, _, _ in private]

    def at(self, event: Mapping[str, Any]) -> PoolId:
        """Return the pool of an event."""
        if "pool_id" in event:
            return _pool_id(event["pool_id"])
        place = bisect_right(self._starts, event["addr"]) - 1
        if place >= 0 and event["addr"] < self._private[place][1]:
            return self._private[place][2]
        return DEFAULT_POOL_ID


def _pool_id(recorded: Sequence[int] | None) -> PoolId:
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
                    pool_id=_pool_id(segment.get("segment_pool_id")),
                )
            address += block["size"]
    return found


def _before(
    events: Sequence[Mapping[str, Any]],
    segments: Sequence[Mapping[str, Any]],
    active: Mapping[int, Life],
    pools: _Pools,
) -> tuple[dict[int, Life], int]:
    """Walk back to the blocks that were there before the first event, and what was reserved."""
    first: dict[int, str] = {}
    freed: dict[int, Mapping[str, Any]] = {}
    reserved = sum(segment["total_size"] for segment in segments)
    for event in events:
        action = event["action"]
        if action in ("alloc", "free_requested", "free_completed"):
            address = event["addr"]
            if first.setdefault(address, action) != "alloc" and address not in freed:
                freed[address] = event
        elif action in ("segment_alloc", "segment_map"):
            reserved -= event["size"]
        elif action in ("segment_free", "segment_unmap"):
            reserved += event["size"]
    before = {
        address: Life(
            event["size"], event.get("stream", 0), -1, (), address=address, pool_id=pools.at(event)
        )
        for address, event in freed.items()
        if event["action"] == "free_requested"
    }
    before |= {address: life for address, life in active.items() if address not in first}
    return before, max(0, reserved)
