"""A GPU of a snapshot over time: as it was, or replayed under other allocator settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vramlab.allocator import (
    AllocatorSettings,
    Block,
    CachingAllocator,
    DeviceMemory,
    precedence_of,
)
from vramlab.categories import Category as OurCategory
from vramlab.errors import OutOfDeviceMemory
from vramlab.explaining import whatif
from vramlab.explaining.categories import Category, Phases, category_of, line_of
from vramlab.explaining.traces import Frames, GPUTrace
from vramlab.units import GIB, short_size
from vramlab.viz import CATEGORY_COLORS, TimelineView, ViewBlock, timeline_html

_COLORS = {str(name): color for name, color in CATEGORY_COLORS.items()}
_GREY = "#BBBBBB"
_OWN_COLORS = {
    Category.OTHER: CATEGORY_COLORS[OurCategory.INPUTS],
    Category.UNKNOWN: "#777777",
}


def choices() -> list[tuple[str, str | None]]:
    """Name the timelines of a GPU, each with the settings that `drawn` takes."""
    tried = dict.fromkeys(("", *whatif.SETTINGS))
    return [("as recorded", None), *((name or "default settings", name) for name in tried)]


def drawn(gpu: GPUTrace, settings: str | None) -> str:
    """Draw a GPU's memory over time, as a piece of HTML.

    Args:
        gpu: whose trace.
        settings: allocator settings under which it is replayed; None: as it was recorded.
    """
    if settings is None:
        curve, how = as_recorded(gpu), "as recorded"
    else:
        curve, how = replayed(gpu, settings), f"replayed with {settings or 'the defaults'}"
    end = "runs out of memory" if curve.failed else "fits"
    peak = short_size(max(level for _, level in curve.reserved_bytes))
    title = f"cuda:{gpu.device} {how}: {end}, peak reserved {peak}"
    return timeline_html(view(gpu, curve, title))


@dataclass(frozen=True)
class Curve:
    """What is reserved over a trace.

    Attributes:
        reserved_bytes: (position, bytes from there on), where it changes.
        failed: (position, bytes that were asked of the driver in vain); None: all was served.
    """

    reserved_bytes: tuple[tuple[int, int], ...]
    failed: tuple[int, int] | None = None


def as_recorded(gpu: GPUTrace) -> Curve:
    """Return what PyTorch reserved."""
    failed = None
    if gpu.failures:
        failed = gpu.failures[0].event + 1, gpu.failures[0].request_bytes
    return Curve(tuple(_changes(enumerate(gpu.reserved_bytes))), failed)


def replayed(gpu: GPUTrace, settings: str) -> Curve:
    """Serve a trace's requests under other settings, on a GPU of the same size if it is known.

    Args:
        gpu: whose trace.
        settings: as PYTORCH_CUDA_ALLOC_CONF takes them.

    Raises:
        VramlabError: PyTorch has no such settings.
    """
    capacity = gpu.capacity_bytes
    total_bytes = 4 * max(gpu.reserved_bytes) + GIB if capacity is None else capacity
    is_collecting = capacity is not None and "garbage_collection" in settings
    if is_collecting:
        total_bytes = -(-total_bytes * 1000 // 999)  # the fraction below allows the capacity
    has_pools = any("pool_id" in event for event in gpu.events[:100])
    allocator = CachingAllocator(
        DeviceMemory(total_bytes),
        AllocatorSettings.parse(settings),
        precedence=precedence_of((2, 13) if has_pools else (2, 11)),
    )
    if is_collecting:
        allocator.memory_fraction = 0.999  # without a limit, PyTorch collects nothing
    levels: list[tuple[int, int]] = []
    position = 0
    try:
        for position in _served(gpu, allocator):
            levels.append((position, allocator.reserved_bytes))
    except _Failed as failed:
        position = failed.position
        return Curve(tuple(_changes(levels)), (position, failed.request_bytes))
    return Curve(tuple(_changes(levels)))


class _Failed(Exception):
    def __init__(self, position: int, request_bytes: int) -> None:
        super().__init__()
        self.position, self.request_bytes = position, request_bytes


def _served(gpu: GPUTrace, allocator: CachingAllocator) -> Iterator[int]:
    """Serve the requests one by one; yield the position after each."""
    born = {life.born: life for life in gpu.lives if life.born >= 0}
    freed = {life.freed: life for life in gpu.lives if life.freed is not None}
    streams = {stream: n for n, stream in enumerate(sorted({0, *(x.stream for x in gpu.lives)}))}
    blocks: dict[int, Block] = {}
    position = 0
    size_bytes = 0
    try:
        for life in gpu.lives:
            if life.born < 0:
                size_bytes = life.request_bytes
                blocks[id(life)] = allocator.malloc(size_bytes, streams[life.stream])
        yield 0
        for index in range(len(gpu.events)):
            position = index + 1
            if index in born:
                size_bytes = born[index].request_bytes
                stream = streams[born[index].stream]
                blocks[id(born[index])] = allocator.malloc(size_bytes, stream)
            elif index in freed:
                allocator.free(blocks.pop(id(freed[index])))
            elif gpu.failures and index == gpu.failures[0].event:
                size_bytes = gpu.failures[0].request_bytes
                allocator.malloc(size_bytes)
                yield position
                return
            else:
                continue
            yield position
    except OutOfDeviceMemory:
        raise _Failed(position, size_bytes) from None


def _changes(
    levels: Iterable[tuple[int, int]],
) -> Iterator[tuple[int, int]]:
    before = None
    for position, level in levels:
        if level != before:
            yield position, level
            before = level


def view(gpu: GPUTrace, curve: Curve, title: str) -> TimelineView:
    """Make the view of a GPU's blocks under a curve of what is reserved."""
    phases = Phases.of(gpu)
    count = len(gpu.events)
    # Few stacks allocate all blocks, and a stack takes long to read.
    lines: dict[tuple[int, ...], str] = {}
    categories: dict[tuple[object, ...], str] = {}
    blocks = []
    for life in gpu.lives:
        stack = _ids(life.frames)
        if stack not in lines:
            lines[stack] = line_of(life.frames)
        stays = life.freed is None or life.freed > phases.kept_from
        in_backward = life.freed is not None and phases.backward[life.freed]
        like = (life.born < 0, stack, _ids(life.free_frames), stays, in_backward)
        if like not in categories:
            categories[like] = str(category_of(life, phases))
        end = (count if life.freed is None else life.freed) + 1
        blocks.append(
            ViewBlock(categories[like], "", lines[stack], life.size_bytes, life.born + 1, end)
        )
    return TimelineView(
        title=title,
        event_count=count,
        blocks=tuple(blocks),
        reserved_bytes=curve.reserved_bytes,
        out_of_memory=() if curve.failed is None else (curve.failed,),
        colors={
            str(category): _COLORS.get(category, _OWN_COLORS.get(category, _GREY))
            for category in Category
        },
    )


def _ids(frames: Frames) -> tuple[int, ...]:
    """Identify a stack: a snapshot has each frame once."""
    return tuple(map(id, frames))
