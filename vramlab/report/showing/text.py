"""A run's summary to be read in a log. Knows nothing of torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vramlab.measure.categories import Category
from vramlab.native.report import as_lines
from vramlab.report.showing.stage_text import stage_lines
from vramlab.report.showing.verdict import place, source, steps_done, times, verdict
from vramlab.report.summary import DeviceUse, LineUse, Summary
from vramlab.units import KIB, MIB, format_bytes

MOST_LINES = 10
"""How many lines of the program are shown; JSON has them all."""

MOST_OPS = 6
"""How many ops that were counted by their outputs are named; JSON has them all."""

_WORDS = {
    Category.INPUTS: "inputs and other data of the program",
    Category.ACTIVATIONS: "activations, kept for the backward pass",
    Category.TEMPORARIES: "temporaries, and gradients of activations",
    Category.WORKSPACES: "workspaces of cuBLAS and other libraries",
}

_SHOWN = 0.005
"""Of a unit: less is 0.00 with two decimals."""


def as_text(summary: Summary) -> str:
    """Tell whether the program fits, where the peak came from, and what to know of the numbers."""
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
        yield ""
        yield from _lines(device, summary.folder)
        if device.stages:
            yield ""
            yield from stage_lines(device.stages)
    yield from notes(summary)


def heading(summary: Summary) -> Iterator[str]:
    """Say which program ran on which GPU, for how long and how far."""
    count = f"{summary.gpu_count} x " if summary.gpu_count > 1 else ""
    total = format_bytes(summary.devices[0].total_bytes)
    ranks = f" (rank {summary.rank} of {summary.world_size})" if summary.world_size > 1 else ""
    yield f"vramlab run: {summary.program}{ranks}"
    rules = "rules of " if summary.engine == "portable" else "the native engine: "
    yield (
        f"on {count}{summary.gpu} (virtual, {total}), {rules}PyTorch {summary.torch_version}, "
        f"{steps_done(summary.counts)}, {summary.seconds:.1f} s"
    )
    if summary.why:
        yield f"{summary.engine} engine: {summary.why}"


def used_devices(summary: Summary) -> list[DeviceUse]:
    """List the GPUs that the program put anything on."""
    return [device for device in summary.devices if device.context_bytes]


@dataclass(frozen=True)
class Unit:
    """What sizes of a report are told in."""

    name: str
    size_bytes: int

    @classmethod
    def of(cls, device: DeviceUse) -> Unit:
        """Choose one in which a GPU's tensors are not all 0.00."""
        return cls("MiB", MIB) if device.allocated_bytes >= MIB else cls("KiB", KIB)

    def show(self, size_bytes: int) -> str:
        """Write a size with two decimals."""
        size = size_bytes / self.size_bytes
        return "<0.01" if 0 < size < _SHOWN else f"{size:,.2f}"


def moment(device: DeviceUse) -> str:
    """Say when the program held what is told of."""
    return "when memory ran out" if device.at_out_of_memory else "at the peak"


def title(device: DeviceUse) -> str:
    """Say of which GPU and which moment the sizes are."""
    return f"Memory of cuda:{device.index} {moment(device)}"


@dataclass(frozen=True)
class Row:
    """One size of a GPU's memory."""

    name: str
    size_bytes: int
    category: Category | None = None
    is_total: bool = False


def memory_rows(device: DeviceUse) -> Iterator[Row]:
    """Give what the memory consists of, and what that adds up to."""
    for category, size_bytes in device.category_bytes.items():
        yield Row(_WORDS.get(category, str(category)), size_bytes, category)
    reserved_bytes = (
        device.reserved_bytes if device.at_out_of_memory else device.peak_reserved_bytes
    )
    yield Row("allocated", device.allocated_bytes, is_total=True)
    if cached_bytes := reserved_bytes - device.allocated_bytes:
        yield Row("cache: reserved by PyTorch, not allocated", cached_bytes)
    estimated = ", estimated" if device.context_is_estimated else ""
    yield Row(f"CUDA context{estimated}", device.context_bytes)
    yield Row("needed on the GPU", reserved_bytes + device.context_bytes, is_total=True)


def shown_lines(device: DeviceUse) -> tuple[LineUse, ...]:
    """Choose the lines of the program that are worth a row."""
    least_bytes = _SHOWN * Unit.of(device).size_bytes
    return tuple(use for use in device.lines[:MOST_LINES] if use.size_bytes >= least_bytes)


def where(use: LineUse, folder: str) -> str:
    """Name the line of a row."""
    return "(PyTorch itself)" if use.line is None else place(use.line, folder)


def below(use: LineUse, folder: str) -> Iterator[str]:
    """Give what stands below a line's row: its text, and the user's own line that led there."""
    if use.line is not None and (text := source(use.line)):
        yield text
    if use.caller is not None:
        yield f"called from {place(use.caller, folder)}"


def what(use: LineUse) -> str:
    """Say which categories a line's blocks are of, the first two."""
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
    yield f"{'Lines that hold most of it':<{width + 2}}{unit.name:>12}{'blocks':>10}"
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
    """Say what to know of the numbers."""
    for caveat in summary.caveats:
        yield ""
        yield f"{caveat}."
    if summary.value_reads:
        yield ""
        yield "Values were read that a virtual GPU does not have; nan or 0 was answered:"
    for line, reads in summary.value_reads.items():
        yield f"  {line}"
        yield f"      {', '.join(f'{how} {times(count)}' for how, count in reads.items())}"
    if calls := as_lines(summary.substitute_calls):
        yield from ("", *calls)
    if summary.skipped_kernels:
        launched = [f"{name} ({times(n)})" for name, n in summary.skipped_kernels.items()]
        yield ""
        yield "Triton kernels were launched and did nothing; the program allocates their outputs:"
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
    yield "Ops whose CUDA kernels have not been read yet; only their outputs are counted:"
    yield f"  {', '.join(named)}{more}"
