"""Snapshots as torch.cuda.memory._snapshot() shows them: segments, blocks, recorded events.

The dictionaries have the keys, and the order of keys, of `torch._C._cuda_memorySnapshot`, so that
torch/cuda/_memory_viz.py and pytorch.org/memory_viz read them. Source: `THCPModule_memorySnapshot`
in torch/csrc/cuda/Module.cpp and torch/csrc/cuda/memory_snapshot.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vramlab.allocator.blocks import Block, Segment
from vramlab.allocator.history import AllocatorEvent
from vramlab.allocator.settings import AllocatorSettings
from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId

if TYPE_CHECKING:
    from vramlab.allocator.caching import CachingAllocator

Frames = list[dict[str, Any]]
"""A stack, innermost call first: dicts with `filename`, `line` and `name`."""


def frames_are_context(context: Any) -> Frames:
    """Take a context for the frames themselves."""
    frames: Frames = context
    return frames


def segments(
    allocator: CachingAllocator,
    to_frames: Callable[[Any], Frames] = frames_are_context,
    pool_id: PoolId = DEFAULT_POOL_ID,
) -> list[dict[str, Any]]:
    """List the segments of one allocator, by address.

    An expandable segment appears once for each stretch of it that is mapped.

    Args:
        pool_id: the private pool whose segments are wanted; without one, all segments.
        to_frames: turns a context, as given to `malloc`, into stack frames.
    """
    found = [
        _segment(allocator.device, segment, stretch, to_frames)
        for segment in allocator.reserve.segments.values()
        if pool_id in (DEFAULT_POOL_ID, segment.pool.id)
        for stretch in _mapped_stretches(segment)
    ]
    return sorted(found, key=lambda segment: int(segment["address"]))


def traces(
    allocator: CachingAllocator, to_frames: Callable[[Any], Frames] = frames_are_context
) -> list[dict[str, Any]]:
    """List what one allocator did while history was recorded, oldest first."""
    return [_trace_entry(event, to_frames) for event in allocator.history.events()]


def snapshot(
    allocators: Sequence[CachingAllocator],
    include_traces: bool = True,
    to_frames: Callable[[Any], Frames] = frames_are_context,
    pool_id: PoolId = DEFAULT_POOL_ID,
) -> dict[str, Any]:
    """Take a snapshot of a machine, one allocator a GPU, as `torch._C._cuda_memorySnapshot` does.

    Like everything that happens, taking a snapshot is itself recorded, but after the fact.
    """
    all_segments: list[dict[str, Any]] = []
    device_traces: list[list[dict[str, Any]]] = []
    for allocator in allocators:
        device_traces.append(traces(allocator, to_frames) if include_traces else [])
        own = segments(allocator, to_frames, pool_id)
        all_segments += own
        if allocator.history.active:
            active_bytes = sum(segment["active_size"] for segment in own)
            allocator.history.record("snapshot", 0, active_bytes, 0, None, pool_id)
    return {
        "segments": all_segments,
        "device_traces": device_traces,
        "allocator_settings": _settings(allocators[0].settings if allocators else None),
        "external_annotations": [],
    }


def _mapped_stretches(segment: Segment) -> Iterator[list[Block]]:
    stretch: list[Block] = []
    for block in segment.blocks():
        if block.mapped:
            stretch.append(block)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _segment(
    device: int, segment: Segment, blocks: list[Block], to_frames: Callable[[Any], Frames]
) -> dict[str, Any]:
    active = [block for block in blocks if not block.free]
    return {
        "device": device,
        "address": blocks[0].address,
        "total_size": sum(block.size_bytes for block in blocks),
        "allocated_size": sum(block.size_bytes for block in active if block.allocated),
        "active_size": sum(block.size_bytes for block in active),
        "requested_size": sum(block.requested_bytes for block in active),
        "stream": segment.stream,
        "segment_type": "small" if segment.pool.is_small else "large",
        "segment_pool_id": segment.pool.id,
        "is_expandable": segment.expandable,
        "frames": _frames(blocks[0].segment_context, to_frames),
        "blocks": [_block(block, to_frames) for block in blocks],
    }


def _block(block: Block, to_frames: Callable[[Any], Frames]) -> dict[str, Any]:
    if block.allocated:
        state = "active_allocated"
    else:
        state = "inactive" if block.free else "active_pending_free"
    return {
        "address": block.address,
        "size": block.size_bytes,
        "requested_size": block.requested_bytes,
        "state": state,
        "frames": _frames(block.context, to_frames),
    }


def _frames(context: Any, to_frames: Callable[[Any], Frames]) -> Frames:
    return [] if context is None else to_frames(context)


def _trace_entry(event: AllocatorEvent, to_frames: Callable[[Any], Frames]) -> dict[str, Any]:
    entry = {
        "action": event.action,
        "device_free" if event.action == "oom" else "addr": event.address,
        "size": event.size_bytes,
        "stream": event.stream,
        "time_us": event.time_us,
        "compile_context": "N/A",
        "user_metadata": event.user_metadata,
        "pool_id": event.pool_id,
    }
    if event.context is not None:
        entry["frames"] = to_frames(event.context)
    return entry


def _settings(settings: AllocatorSettings | None) -> dict[str, Any]:
    settings = settings or AllocatorSettings()
    return {
        "PYTORCH_CUDA_ALLOC_CONF": settings.text,
        "max_split_size": _or_no_limit(settings.max_split_size_bytes),
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "pinned_num_register_threads": settings.pinned_num_register_threads,
        "release_lock_on_cudamalloc": settings.release_lock_on_cudamalloc,
        "pinned_use_cuda_host_register": settings.pinned_use_cuda_host_register,
        "graph_capture_record_stream_reuse": settings.graph_capture_record_stream_reuse,
        "max_round_threshold": _or_no_limit(settings.pinned_max_round_threshold_bytes),
        "max_cached_size": _or_no_limit(settings.pinned_max_cached_size_bytes),
        "roundup_power2_divisions": {
            str(1 << interval): steps
            for interval, steps in enumerate(settings.roundup_power2_divisions)
        },
    }


def _or_no_limit(limit_bytes: int | None) -> int:
    return -1 if limit_bytes is None else limit_bytes
