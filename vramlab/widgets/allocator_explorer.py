"""Explore what the caching allocator makes of a sequence of allocations and frees."""

from __future__ import annotations

from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, segments
from vramlab.errors import OutOfDeviceMemory
from vramlab.measure import Table
from vramlab.plots import draw_segments
from vramlab.units import MIB, format_mib, short_size
from vramlab.widgets import allocator_program
from vramlab.widgets.explorer import Explorer, View, paragraph, slider, text

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


def allocator_explorer(
    program: str = DEFAULT_PROGRAM, options: str = "", memory_mib: int = 128
) -> Explorer:
    """Show the allocator's segments after each step of a program of allocations and frees.

    Args:
        program: one step a line: 'a 10 MiB', 'free a', 'empty_cache'.
        options: as in PYTORCH_CUDA_ALLOC_CONF, such as 'expandable_segments:True'.
        memory_mib: memory of the GPU in MiB.
    """
    most_steps = max(len(allocator_program.parse(program)), 1)
    controls = {
        "program": paragraph("Program", program, rows=8),
        "steps": slider("Steps done", most_steps, 0, most_steps),
        "options": text("PYTORCH_CUDA_ALLOC_CONF", options, "expandable_segments:True"),
        "memory_mib": slider("GPU memory in MiB", memory_mib, 32, max(1024, memory_mib), step=32),
    }
    explorer = Explorer("What the caching allocator does", controls, show_allocator, height_px=760)

    def follow_program(change: dict[str, str]) -> None:
        """Let the slider end where the program ends; a program with a mistake leaves it alone."""
        try:
            count = max(len(allocator_program.parse(change["new"])), 1)
        except allocator_program.ProgramError:
            return
        controls["steps"].max = count

    controls["program"].observe(follow_program, names="value")
    return explorer


def show_allocator(program: str, steps: int, options: str, memory_mib: int) -> View:
    """Run the first steps of a program on an allocator of its own, and show what it holds.

    An out-of-memory error is shown as part of the view: what was there when it happened.
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
        segments(allocator),
        names={block.address: name for name, block in live.items()},
        title=last,
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
