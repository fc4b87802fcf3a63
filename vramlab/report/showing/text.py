"""A run's summary as plain text. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vramlab.categories import Category
from vramlab.native.report import as_lines
from vramlab.report.showing.stage_text import stage_lines
from vramlab.report.showing.verdict import place, source, steps_done, times, verdict
from vramlab.report.summary import DeviceUse, LineUse, Summary
from vramlab.units import KIB, MIB, format_bytes

MOST_LINES = 10
"""Lines of the program that are shown; JSON has them all."""

MOST_OPS = 6
"""Ops without a model of their kernel that are named; JSON has them all."""

_WORDS = {
    Category.INPUTS: "inputs and other data",
    Category.ACTIVATIONS: "activations saved for backward",
    Category.TEMPORARIES: "temporaries, activation gradients",
    Category.WORKSPACES: "workspaces (cuBLAS, cuDNN and others)",
}

_SHOWN = 0.005
"""Fraction of a unit that is the smallest to print as more than 0.00."""


def as_text(summary: Summary) -> str:
    """Return the report: whether the program fits, what the peak consists of, and caveats."""
    return "\n".join(_paragraphs(summary))


def _paragraphs(summary: Summary) -> Iterator[str]:
    yield from heading(summary)
    yield ""
    yield from verdict(summary)
    if summary.is_told_by_first_rank:
        return
    for device in used_devices(summary):
        yield ""
        yield from _where_the_bytes_are(device)
        if device.lines:
            yield ""
            yield from _lines(device, summary.folder)
        if device.stages:
            yield ""
            yield from stage_lines(device.stages)
    yield from notes(summary)


def heading(summary: Summary) -> Iterator[str]:
    """Return the lines about the program, the GPU, the steps done and the time taken."""
    count = f"{summary.gpu_count} x " if summary.gpu_count > 1 else ""
    total = format_bytes(summary.devices[0].total_bytes)
    ranks = f" (rank {summary.rank} of {summary.world_size})" if summary.world_size > 1 else ""
    yield f"vramlab run: {summary.program}{ranks}"
    engine = "simulating" if summary.engine == "portable" else "native engine with"
    yield (
        f"on {count}{summary.gpu} (virtual, {total}), {engine} PyTorch {summary.torch_version}, "
        f"{steps_done(summary.counts)}, {summary.seconds:.1f} s"
    )
    if summary.why:
        yield f"{summary.engine} engine, because {summary.why}"


def used_devices(summary: Summary) -> list[DeviceUse]:
    """Return the GPUs that the program used."""
    return [device for device in summary.devices if device.context_bytes]


@dataclass(frozen=True)
class Unit:
    """The unit of a report's sizes."""

    name: str
    size_bytes: int

    @classmethod
    def of(cls, device: DeviceUse) -> Unit:
        """Choose a unit in which a GPU's tensors are not all 0.00."""
        return cls("MiB", MIB) if device.allocated_bytes >= MIB else cls("KiB", KIB)

    def show(self, size_bytes: int) -> str:
        """Format a size with two decimals."""
        size = size_bytes / self.size_bytes
        return "<0.01" if 0 < size < _SHOWN else f"{size:,.2f}"


def moment(device: DeviceUse) -> str:
    """Return the moment whose memory the report describes."""
    return "when memory ran out" if device.at_out_of_memory else "at the peak"


def title(device: DeviceUse) -> str:
    """Return the title of a GPU's memory table."""
    return f"Memory on cuda:{device.index} {moment(device)}"


@dataclass(frozen=True)
class Row:
    """One size of a GPU's memory."""

    name: str
    size_bytes: int
    category: Category | None = None
    is_total: bool = False


def memory_rows(device: DeviceUse) -> Iterator[Row]:
    """Return the parts of a GPU's memory and their sums."""
    for category, size_bytes in device.category_bytes.items():
        yield Row(_WORDS.get(category, str(category)), size_bytes, category)
    reserved_bytes = (
        device.reserved_bytes if device.at_out_of_memory else device.peak_reserved_bytes
    )
    yield Row("allocated", device.allocated_bytes, is_total=True)
    if cached_bytes := reserved_bytes - device.allocated_bytes:
        yield Row("cache: reserved by PyTorch, not allocated", cached_bytes)
    estimated = " (estimated)" if device.context_is_estimated else ""
    yield Row(f"CUDA context{estimated}", device.context_bytes)
    yield Row("device memory used", reserved_bytes + device.context_bytes, is_total=True)


def shown_lines(device: DeviceUse) -> tuple[LineUse, ...]:
    """Return the lines of the program that get a row."""
    least_bytes = _SHOWN * Unit.of(device).size_bytes
    return tuple(use for use in device.lines[:MOST_LINES] if use.size_bytes >= least_bytes)


def where(use: LineUse, folder: str) -> str:
    """Return the place of a line."""
    return "(inside PyTorch)" if use.line is None else place(use.line, folder)


def below(use: LineUse, folder: str) -> Iterator[str]:
    """Return the source of a line, and the line of the user's code that called it."""
    if use.line is not None and (text := source(use.line)):
        yield text
    if use.caller is not None:
        yield f"called from {place(use.caller, folder)}"


def what(use: LineUse) -> str:
    """Return the two largest categories of a line's blocks."""
    return ", ".join(str(category) for category in list(use.category_bytes)[:2])


def _where_the_bytes_are(device: DeviceUse) -> Iterator[str]:
    unit = Unit.of(device)
    yield f"{title(device):<46}{unit.name:>12}{'bytes':>18}"
    for row in memory_rows(device):
        name = row.name if row.is_total else f"  {row.name}"
        yield f"{name:<46}{unit.show(row.size_bytes):>12}{row.size_bytes:>18,}"


def _lines(device: DeviceUse, folder: str) -> Iterator[str]:
    unit = Unit.of(device)
    shown = shown_lines(device)
    width = max([44, *(len(where(use, folder)) for use in shown)])
    yield f"{'Lines that allocated most':<{width + 2}}{unit.name:>12}{'blocks':>10}"
    for use in shown:
        size = unit.show(use.size_bytes)
        yield f"  {where(use, folder):<{width}}{size:>12}{use.block_count:>10,}  {what(use)}"
        yield from (f"      {text}" for text in below(use, folder))
    if rest := device.lines[len(shown) :]:
        name, size_bytes, blocks = others(rest)
        yield f"  {name:<{width}}{unit.show(size_bytes):>12}{blocks:>10,}"


def others(rest: tuple[LineUse, ...]) -> tuple[str, int, int]:
    """Add up the lines that are not shown: (name, bytes, blocks)."""
    name = f"{len(rest)} more line{'' if len(rest) == 1 else 's'}"
    return name, sum(use.size_bytes for use in rest), sum(use.block_count for use in rest)


def notes(summary: Summary) -> Iterator[str]:
    """Return the caveats about the numbers."""
    for caveat in summary.caveats:
        yield ""
        yield f"{caveat}."
    if summary.value_reads:
        yield ""
        yield "These lines read values that a virtual GPU does not compute (they got nan or 0):"
    for line, reads in summary.value_reads.items():
        yield f"  {line}"
        yield f"      {', '.join(f'{how} {times(count)}' for how, count in reads.items())}"
    if calls := as_lines(summary.substitute_calls):
        yield from ("", *calls)
    if summary.skipped_kernels:
        launched = [f"{name} ({times(n)})" for name, n in summary.skipped_kernels.items()]
        yield ""
        yield "Triton kernels that were skipped (the program allocates their outputs itself):"
        yield f"  {', '.join(launched)}"
    if summary.unsure_operators:
        yield ""
    for name, reason in summary.unsure_operators.items():
        yield f"not confirmed: {name}: {reason}"
    if not summary.counted_by_outputs:
        return
    ordered = sorted(summary.counted_by_outputs.items(), key=lambda item: -item[1])
    named = [f"{name} ({times(count)})" for name, count in ordered[:MOST_OPS]]
    more = f" and {len(ordered) - MOST_OPS} more" if len(ordered) > MOST_OPS else ""
    yield ""
    yield "Ops whose CUDA kernels are not modelled yet (only their outputs are counted):"
    yield f"  {', '.join(named)}{more}"
