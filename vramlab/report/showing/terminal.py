"""A run's summary for a terminal: as wide as the terminal, with a bar of the peak by category.

It has the same content as `text.as_text`, which is used for logs. The table below the bar lists the
bar's parts in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.cells import set_cell_size
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from vramlab.report.showing.stage_text import stage_advice
from vramlab.report.showing.text import (
    Row,
    Unit,
    below,
    heading,
    memory_rows,
    notes,
    others,
    shown_lines,
    title,
    used_devices,
    what,
    where,
)
from vramlab.report.showing.verdict import verdict
from vramlab.report.summary import DeviceUse, Fit, Summary
from vramlab.units import MIB
from vramlab.viz.colors import CATEGORY_COLORS

_CACHE_COLOR, _CONTEXT_COLOR, _FREE_COLOR = "#888888", "#555555", "#D9D9D9"
_DARK = ("#0072B2", "#D55E00", "#009E73", _CONTEXT_COLOR)
"""Backgrounds that need white text."""

_LEAST_LABEL = 5
"""Width, in characters, of the narrowest part of the bar with a label."""

_UNSURE = (Fit.AT_LEAST, Fit.AT_MOST, Fit.ABOUT)

_SQUARE = "\N{BLACK SQUARE}"
_MOST_WIDTH = 120
"""In characters: wider tables are harder to read."""


def as_terminal_text(summary: Summary, stream: Any) -> str:
    """Return the report for a terminal.

    Args:
        summary: The result of the run.
        stream: The terminal; determines width and colours.
    """
    console = Console(file=stream, highlight=False, soft_wrap=False)
    console.width = min(console.width, _MOST_WIDTH)
    with console.capture() as captured:
        for part in _parts(summary, console.width):
            console.print(part)
    return captured.get()


def _parts(summary: Summary, width: int) -> Iterator[RenderableType]:
    first, *rest = heading(summary)
    yield Text(first, style="bold")
    yield from map(Text, rest)
    yield ""
    for line in verdict(summary):
        yield Text(line, style=_style_of(line))
    if summary.is_told_by_first_rank:
        return
    for device in used_devices(summary):
        yield ""
        yield _bar(device, width)
        yield _memory(device)
        if device.lines:
            yield ""
            yield _lines(device, summary.folder)
        if device.stages:
            yield ""
            yield _stages(device)
            yield from map(Text, stage_advice(device.stages))
    yield from map(Text, notes(summary))


def _style_of(line: str) -> str:
    if line.startswith("fits:"):
        return "bold green"
    if line.startswith(tuple(f"{word} " for word in (*_UNSURE, "may NOT"))):
        return "bold yellow"
    return "bold red" if line.startswith("does NOT fit") else ""


def _bar(device: DeviceUse, width: int) -> Text:
    """Return a bar of the whole GPU; each part is at least one character wide."""
    parts = [row for row in memory_rows(device) if not row.is_total and row.size_bytes]
    used_bytes = sum(row.size_bytes for row in parts)
    whole_bytes = max(device.total_bytes, used_bytes)
    ends, sum_bytes, at = [], 0, 0
    for number, row in enumerate(parts):
        sum_bytes += row.size_bytes
        left = len(parts) - number - 1
        at = min(max(at + 1, round(width * sum_bytes / whole_bytes)), width - left)
        ends.append(at)
    bar = Text(no_wrap=True, overflow="crop")
    begin = 0
    for row, end in zip(parts, ends, strict=True):
        color = _color(row)
        ink = "white" if color in _DARK else "black"
        bar.append(_label(str(row.category or row.name), end - begin), style=f"{ink} on {color}")
        begin = end
    bar.append(_label("free", width - begin), style=f"black on {_FREE_COLOR}")
    return bar


def _label(name: str, width: int) -> str:
    name = name.partition(":")[0].partition(",")[0]
    shown = name if len(name) + 2 <= width else name[: max(0, width - 3)] + "."
    return set_cell_size(f" {shown}" if width >= _LEAST_LABEL else "", width)


def _color(row: Row) -> str:
    if row.category is not None:
        return CATEGORY_COLORS[row.category]
    return _CACHE_COLOR if row.name.startswith("cache") else _CONTEXT_COLOR


def _memory(device: DeviceUse) -> RenderableType:
    unit = Unit.of(device)
    table = _table(title(device), unit.name, "bytes", "of GPU")
    for row in memory_rows(device):
        square = ("", "") if row.is_total else (f"{_SQUARE} ", _color(row))
        share = f"{row.size_bytes / device.total_bytes:.1%}"
        table.add_row(
            Text.assemble(square, row.name),
            unit.show(row.size_bytes),
            f"{row.size_bytes:,}",
            share,
            style="bold" if row.is_total else "",
        )
    return table


def _lines(device: DeviceUse, folder: str) -> RenderableType:
    unit = Unit.of(device)
    shown = shown_lines(device)
    table = _table("Lines that allocated most", unit.name, "blocks")
    table.add_column("", overflow="fold")
    for use in shown:
        line = Text(where(use, folder), overflow="fold")
        size, count = unit.show(use.size_bytes), f"{use.block_count:,}"
        table.add_row(line, size, count, what(use))
        for text in below(use, folder):
            source = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
            table.add_row(Padding(source, (0, 0, 0, 2)), "", "", "")
    if rest := device.lines[len(shown) :]:
        name, size_bytes, blocks = others(rest)
        table.add_row(name, unit.show(size_bytes), f"{blocks:,}", "")
    return table


def _stages(device: DeviceUse) -> RenderableType:
    table = _table("Stages, allocated MiB", "runs", "before", "peak", "after")
    for use in device.stages:
        sizes = (use.before_bytes, use.peak_bytes, use.after_bytes)
        table.add_row(use.name, f"{use.count:,}", *(f"{size / MIB:,.2f}" for size in sizes))
    return table


def _table(first: str, *numbers: str) -> RichTable:
    """Return a table without borders: names on the left, numbers on the right."""
    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold", ratio=1 if first.startswith("Lines") else None)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
