"""Explore what the caching allocator makes of a sequence of allocations and frees."""

from __future__ import annotations

from typing import Annotated

from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, segments
from vramlab.errors import OutOfDeviceMemory
from vramlab.measure import Table
from vramlab.units import MIB, format_mib, short_size
from vramlab_course.plots import draw_segments
from vramlab_course.widgets import allocator_program
from vramlab_course.widgets.controls import paragraph, slider, text
from vramlab_course.widgets.explorer import View, explorer

DEFAULT_PROGRAM = """\
a 6 MiB
b 6 MiB
c 300 KiB
free a
d 3 MiB
e 16 MiB
free e
f 15.5 MiB
"""


def _step_count(program: str) -> int:
    return max(len(allocator_program.parse(program)), 1)


def _largest_mib(memory_mib: int) -> int:
    return max(1024, memory_mib)


@explorer("What the caching allocator does", height_px=760, first=("program", "steps"))
def allocator_explorer(
    program: Annotated[str, paragraph("Program", rows=8), "one step a line"] = DEFAULT_PROGRAM,
    options: Annotated[str, text("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")] = "",
    memory_mib: Annotated[int, slider("GPU memory in MiB", 32, _largest_mib, step=32)] = 128,
    steps: Annotated[int | None, slider("Steps done", 0, _step_count)] = None,
) -> View:
    """Show the allocator's segments after each step of a program of allocations and frees.

    A step is 'a 10 MiB', 'free a' or 'empty_cache'; at first, all are done. Options are those of
    PYTORCH_CUDA_ALLOC_CONF, such as 'expandable_segments:True'. An out-of-memory error is shown as
    part of the view: what was there when it happened.
    """
    todo = allocator_program.parse(program)[:steps]
    allocator = CachingAllocator(DeviceMemory(memory_mib * MIB), AllocatorSettings.parse(options))
    live = {}
    failure = ""
    try:
        live = allocator_program.run(todo, allocator)
    except OutOfDeviceMemory as error:
        failure = str(error)
    last = f"After '{todo[-1].text}'" if todo else "Before the first step"
    summary = (
        f"{last}: {short_size(allocator.allocated_bytes)} allocated, "
        f"{short_size(allocator.reserved_bytes)} reserved. {failure}"
    ).rstrip()
    picture = draw_segments(
        segments(allocator), names={block.address: name for name, block in live.items()}, title=last
    )
    return View(summary, picture, (_counters(allocator),))


def _counters(allocator: CachingAllocator) -> Table:
    stats = allocator.stats()
    requested_bytes = stats["requested_bytes"]["all"]["current"]
    stuck_bytes = stats["inactive_split_bytes"]["all"]["current"]
    rows = (
        ("asked for", requested_bytes),
        ("allocated", allocator.allocated_bytes),
        ("reserved", allocator.reserved_bytes),
        ("cached: reserved, not allocated", allocator.reserved_bytes - allocator.allocated_bytes),
        ("of that, in split segments (cannot be given back)", stuck_bytes),
        ("free for others", allocator.memory.free_bytes),
    )
    return Table(
        caption="The allocator's counters",
        header=("bytes", "size"),
        rows=tuple((name, format_mib(size_bytes)) for name, size_bytes in rows),
    )
