"""A run's report as a page: one file that opens anywhere, with interactive timelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from vramlab.report.evidence.history import history_view
from vramlab.report.evidence.peak import PeakWatch
from vramlab.report.showing.text import (
    as_text,
    below,
    heading,
    memory_rows,
    moment,
    title,
    used_devices,
    what,
    where,
)
from vramlab.report.showing.verdict import verdict
from vramlab.report.summary import DeviceUse, LineUse, Summary
from vramlab.table import Table
from vramlab.units import MIB, format_bytes
from vramlab.viz import TimelineView, timeline_html
from vramlab.viz.timeline_html import PAGE_STYLE

_STYLE = f"""{PAGE_STYLE}
.verdict {{ white-space: pre-line; font-weight: bold; overflow-wrap: anywhere; }}
pre {{ overflow-x: auto; }}
"""


def write_page(path: str, summary: Summary, watches: Sequence[PeakWatch]) -> None:
    """Write the report as a page that loads nothing.

    Args:
        path: of the file.
        summary: what the run found.
        watches: of the GPUs, by index; each with a history.

    Raises:
        OSError: the file cannot be written.
    """
    views = {
        device.index: history_view(watches[device.index], summary.folder, _finding(device))
        for device in used_devices(summary)
    }
    Path(path).write_text(as_page(summary, views), encoding="utf-8")


def as_page(summary: Summary, views: dict[int, TimelineView]) -> str:
    """Return the whole page.

    Args:
        summary: The result of the run.
        views: Timelines by CUDA device index.
    """
    return "\n".join(_parts(summary, views))


def _finding(device: DeviceUse) -> str:
    """Return the title of a timeline: the allocated size and its largest category."""
    if not device.allocated_bytes:
        return f"cuda:{device.index} has nothing allocated {moment(device)}"
    category, size_bytes = max(device.category_bytes.items(), key=lambda item: item[1])
    share = size_bytes / device.allocated_bytes
    held = format_bytes(device.allocated_bytes)
    return f"cuda:{device.index}: {held} allocated {moment(device)}, {share:.0%} of it {category}"


def _parts(summary: Summary, views: dict[int, TimelineView]) -> Iterator[str]:
    program, *ground = heading(summary)
    yield (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(program)}</title><style>{_STYLE}</style></head>\n<body><main>"
    )
    yield f"<h1>{escape(program)}</h1>\n<p>{escape(' '.join(ground))}</p>"
    yield f'<p class="verdict">{escape(chr(10).join(verdict(summary)))}</p>'
    for device in used_devices(summary):
        yield timeline_html(views[device.index])
        yield _memory(device)._repr_html_()
        yield _lines(device.lines, summary.folder)._repr_html_()
    yield (
        "<h2>Text report</h2><details><summary>As printed in the terminal</summary>"
        f'<pre tabindex="0">{escape(as_text(summary))}</pre></details>'
    )
    yield "</main></body>\n</html>\n"


def _memory(device: DeviceUse) -> Table:
    """Return the memory by category."""
    return Table(
        caption=title(device),
        header=("", "MiB", "bytes"),
        rows=tuple(
            (row.name, _mib(row.size_bytes), f"{row.size_bytes:,}") for row in memory_rows(device)
        ),
    )


def _lines(uses: Sequence[LineUse], folder: str) -> Table:
    """Return every line that allocated some of the memory, largest first."""
    return Table(
        caption="Lines that allocated it",
        header=("line", "MiB", "blocks", "mostly"),
        rows=tuple(
            (
                "\n".join((where(use, folder), *below(use, folder))),
                _mib(use.size_bytes),
                f"{use.block_count:,}",
                what(use),
            )
            for use in uses
        ),
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.2f}"
