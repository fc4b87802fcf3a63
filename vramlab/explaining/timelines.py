"""A GPU of a snapshot over time: as it was, or replayed under other allocator settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vramlab.categories import Category as OurCategory
from vramlab.explaining import whatif
from vramlab.explaining.categories import Category, Phases, category_of, line_of_block
from vramlab.explaining.traces import Frames, GPUTrace
from vramlab.units import short_size
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
    levels: list[whatif.Level] = []
    replay = whatif.Replay(gpu)
    outcome = replay.under(settings, gpu.capacity_bytes, levels.append)
    failed = None if outcome.is_enough else replay.failed_after(len(levels))
    return Curve(tuple(_changes(levels)), failed)


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
    lines: dict[tuple[bool, tuple[int, ...]], str] = {}
    categories: dict[tuple[object, ...], str] = {}
    blocks = []
    for life in gpu.lives:
        stack = _ids(life.frames)
        is_older = life.born < 0
        if (is_older, stack) not in lines:
            lines[is_older, stack] = line_of_block(life)
        stays = life.freed is None or life.freed > phases.kept_from
        in_backward = life.freed is not None and phases.backward[life.freed]
        like = (is_older, stack, _ids(life.free_frames), stays, in_backward)
        if like not in categories:
            categories[like] = str(category_of(life, phases))
        end = (count if life.freed is None else life.freed) + 1
        blocks.append(
            ViewBlock(
                categories[like], "", lines[is_older, stack], life.size_bytes, life.born + 1, end
            )
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
