"""Where segments and blocks lay at a moment of a trace, walked back from its end.

The trace and the final segments give every address, but not the size of a block that is older than
the trace and freed in it: in the large pool, a block that was not split is up to 1 MiB larger than
its request. Free memory of that pool comes in pieces of more than 1 MiB, so a shorter gap belongs
to the block before it; in a longer one, the first block that is allocated there shows where the
free memory began. Source: `should_split` and `get_free_block` in c10/cuda/CUDACachingAllocator.cpp,
PyTorch 2.11.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vramlab.allocator import AllocatorSettings
from vramlab.allocator.restored import SegmentLayout
from vramlab.allocator.statistics import PoolId
from vramlab.cuda_rules.sizes import (
    LARGE_SEGMENT_BYTES,
    SMALL_BLOCK_BYTES,
    SMALL_SEGMENT_BYTES,
    round_request,
)
from vramlab.explaining.traces import GPUTrace, Life, pool_id_of

_Owner = tuple[int, bool, PoolId]
"""Stream, whether it is the small pool, and private pool: whom an expandable segment serves."""


def segments_at(gpu: GPUTrace, moment: int) -> dict[int, SegmentLayout]:
    """Return what cudaMalloc had allocated before an event, by address, without its blocks."""
    found = {
        segment["address"]: SegmentLayout(
            segment["address"],
            segment["total_size"],
            segment.get("stream", 0),
            segment["total_size"] == SMALL_SEGMENT_BYTES,
            pool_id_of(segment.get("segment_pool_id")),
        )
        for segment in gpu.segments
        if not segment.get("is_expandable")
    }
    for event in reversed(gpu.events[moment:]):
        if event["action"] == "segment_alloc":
            found.pop(event["addr"], None)
        elif event["action"] == "segment_free":
            address, size_bytes = event["addr"], event["size"]
            is_small = size_bytes == SMALL_SEGMENT_BYTES
            pool_id = pool_id_of(event.get("pool_id"))
            found[address] = SegmentLayout(
                address, size_bytes, event.get("stream", 0), is_small, pool_id
            )
    return found


def layouts_before(gpu: GPUTrace) -> list[SegmentLayout]:
    """Return the segments that were there before the first event, with the blocks in use."""
    older = [life for life in gpu.lives if life.born < 0] + gpu.awaiting
    older.sort(key=lambda life: life.address)
    starts = [life.address for life in older]
    sizes = _sizes_at_the_end(gpu.segments)
    settings = AllocatorSettings.parse(gpu.settings)
    segments = [*segments_at(gpu, 0).values(), *_expandable_before(gpu)]
    filled: list[tuple[SegmentLayout, list[_Used]]] = []
    gaps: list[_Used] = []
    for segment in segments:
        used: list[_Used] = []
        for start, size_bytes in segment.mapped or [(segment.address, segment.size_bytes)]:
            first, last = bisect_left(starts, start), bisect_left(starts, start + size_bytes)
            limits = [*starts[first + 1 : last], start + size_bytes]
            for life, limit in zip(older[first:last], limits, strict=False):
                block = _Used(
                    life,
                    round_request(life.request_bytes, settings.active_roundup_divisions),
                    limit,
                )
                used.append(block)
                known = sizes.get(life.address) if life.freed is None else None
                if known is not None:
                    block.size_bytes = known
                elif not segment.is_small and not segment.mapped:
                    gaps += block.settled(settings.max_split_size_bytes)
        if used or not _serves_first(gpu, segment, settings.max_split_size_bytes):
            filled.append((segment, used))
    _settle(gaps, gpu.events)
    return [
        replace(
            segment,
            used=[
                (block.life.address, block.size_bytes, block.life.request_bytes) for block in used
            ],
        )
        for segment, used in filled
    ]


def _serves_first(gpu: GPUTrace, segment: SegmentLayout, max_split_bytes: int | None) -> bool:
    """Whether the trace's first request allocated this free segment just before the trace.

    As a cached one, it would be too large for that request (`max_split_size_mb`).
    """
    if not gpu.events or max_split_bytes is None or segment.mapped:
        return False
    first = gpu.events[0]
    is_in_it = (first["action"], first.get("addr")) == ("alloc", segment.address)
    return is_in_it and first["size"] < max_split_bytes <= segment.size_bytes


@dataclass
class _Used:
    """A block in use before the first event.

    Attributes:
        life: of the block.
        size_bytes: at least this.
        limit: where the next block in use, or the end of the segment, is.
    """

    life: Life
    size_bytes: int
    limit: int

    @property
    def end(self) -> int:
        return self.life.address + self.size_bytes

    def settled(self, max_split_bytes: int | None) -> list[_Used]:
        """Find the size of a block of the large pool; return itself where only events can tell."""
        gap_bytes = self.limit - self.end
        is_whole = max_split_bytes is not None and self.size_bytes >= max_split_bytes
        if gap_bytes <= SMALL_BLOCK_BYTES or is_whole:
            self.size_bytes += gap_bytes
            return []
        return [self]


def _settle(gaps: Sequence[_Used], events: Sequence[Mapping[str, Any]]) -> None:
    """Find where the free memory behind blocks began: the first block allocated there tells."""
    starts = [block.end for block in gaps]
    seen: set[int] = set()
    for index, event in enumerate(events):
        if event["action"] != "alloc":
            continue
        place = bisect_right(starts, event["addr"]) - 1
        if place < 0 or place in seen or event["addr"] >= gaps[place].limit:
            continue
        seen.add(place)
        freed, unsplit_bytes = gaps[place].life.freed, event["addr"] - starts[place]
        if (freed is None or index < freed) and unsplit_bytes <= SMALL_BLOCK_BYTES:
            gaps[place].size_bytes += unsplit_bytes


def _sizes_at_the_end(segments: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    sizes = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            sizes[block.get("address", address)] = block["size"]
            address += block["size"]
    return sizes


def _expandable_before(gpu: GPUTrace) -> Iterator[SegmentLayout]:
    """Find the pages of expandable segments, joined to one segment for whom they serve."""
    pages: dict[_Owner, list[tuple[int, int]]] = {}
    final = [
        (
            (
                segment.get("stream", 0),
                segment.get("segment_type") == "small",
                pool_id_of(segment.get("segment_pool_id")),
            ),
            segment["address"],
            segment["total_size"],
        )
        for segment in gpu.segments
        if segment.get("is_expandable")
    ]
    for owner, address, size_bytes in final:
        _map(pages.setdefault(owner, []), address, address + size_bytes)
    for event in reversed(gpu.events):
        if event["action"] == "segment_map":
            for stretches in pages.values():
                _unmap(stretches, event["addr"], event["addr"] + event["size"])
        elif event["action"] == "segment_unmap":
            is_small = event["size"] % LARGE_SEGMENT_BYTES != 0
            owner = event.get("stream", 0), is_small, pool_id_of(event.get("pool_id"))
            stretches = pages.setdefault(owner, [])
            _map(stretches, event["addr"], event["addr"] + event["size"])
    for (stream, is_small, pool_id), stretches in pages.items():
        if stretches:
            lowest, end = stretches[0][0], stretches[-1][1]
            mapped = [(start, stop - start) for start, stop in stretches]
            yield SegmentLayout(lowest, end - lowest, stream, is_small, pool_id, mapped=mapped)


def _map(stretches: list[tuple[int, int]], start: int, stop: int) -> None:
    """Add a stretch to some that are in order, and join it with those it touches."""
    first = bisect_left(stretches, start, key=lambda each: each[1])
    last = bisect_right(stretches, stop, key=lambda each: each[0])
    touched = stretches[first:last]
    start = min([start, *(each[0] for each in touched)])
    stop = max([stop, *(each[1] for each in touched)])
    stretches[first:last] = [(start, stop)]


def _unmap(stretches: list[tuple[int, int]], start: int, stop: int) -> None:
    """Take a stretch out of some that are in order."""
    kept = [
        piece
        for each in stretches
        for piece in ((each[0], min(each[1], start)), (max(each[0], stop), each[1]))
        if piece[0] < piece[1]
    ]
    stretches[:] = kept
