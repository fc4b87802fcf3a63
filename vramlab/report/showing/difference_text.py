"""The comparison of two reports as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramlab.report.showing.difference import MOST_LINES, DeviceChange, ReportDifference, SizeChange
from vramlab.table import Table
from vramlab.units import MIB, format_bytes

_HEADER = ("MiB", "before", "now", "difference")


def as_text(difference: ReportDifference) -> str:
    """Return the comparison as text for a terminal."""
    tables = [str(table) for table in _tables(difference)]
    return "\n\n".join([_headline(difference), *_notes(difference), *tables])


def as_markdown(difference: ReportDifference) -> str:
    """Return the comparison for a pull request comment, with the lines collapsed."""
    parts = [f"### GPU memory of `{difference.program}`", _headline(difference)]
    parts += [f"- {note}" for note in difference.conditions]
    for device in difference.devices:
        parts.append(_sizes(device).markdown())
        if device.lines:
            table = _lines(device)
            parts.append(
                f"<details><summary>{table.caption}</summary>\n\n{_body(table)}\n\n</details>"
            )
    return "\n\n".join(parts) + "\n"


def _headline(difference: ReportDifference) -> str:
    if difference.new_fits is False:
        return "It still does not fit." if difference.old_fits is False else "It no longer fits."
    if not difference.devices:
        return "Neither run used a GPU."
    if not difference.changed:
        needed = difference.devices[0].needed
        return f"No change: the program needs {format_bytes(needed.new_bytes)}."
    device = max(difference.devices, key=lambda each: abs(each.needed.growth_bytes))
    needed = device.needed
    if not needed.growth_bytes:
        return (
            f"The program still needs {format_bytes(needed.new_bytes)}, but it is used differently."
        )
    word = "more" if needed.growth_bytes > 0 else "less"
    share = f" ({abs(needed.growth_bytes) / needed.old_bytes:.2%})" if needed.old_bytes else ""
    return (
        f"cuda:{device.index} needs {format_bytes(abs(needed.growth_bytes))} {word}{share}: "
        f"{format_bytes(needed.new_bytes)} instead of {format_bytes(needed.old_bytes)}."
    )


def _notes(difference: ReportDifference) -> Iterator[str]:
    if difference.conditions:
        yield "\n".join(f"note: {condition}" for condition in difference.conditions)


def _tables(difference: ReportDifference) -> Iterator[Table]:
    for device in difference.devices:
        if device.changed:
            yield _sizes(device)
        if device.lines:
            yield _lines(device)


def _sizes(device: DeviceChange) -> Table:
    sizes = [*device.totals, *device.categories]
    return Table(f"Memory on cuda:{device.index} at the peak", _HEADER, tuple(_rows(sizes)))


def _lines(device: DeviceChange) -> Table:
    shown, rest = device.lines[:MOST_LINES], device.lines[MOST_LINES:]
    others = []
    if rest:
        sums = (sum(each.old_bytes for each in rest), sum(each.new_bytes for each in rest))
        others = [SizeChange(f"{len(rest)} more lines", *sums)]
    caption = f"Lines that allocate more or less on cuda:{device.index}"
    return Table(caption, ("line, MiB", *_HEADER[1:]), tuple(_rows([*shown, *others])))


def _rows(changes: Iterable[SizeChange]) -> Iterator[tuple[str, ...]]:
    for each in changes:
        name = f"{each.name}\n  {each.detail}" if each.detail else each.name
        growth = f"{each.growth_bytes / MIB:+,.2f}" if each.growth_bytes else "equal"
        yield name, _mib(each.old_bytes), _mib(each.new_bytes), growth


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.2f}"


def _body(table: Table) -> str:
    """Return a table without its caption, which is already in the summary element."""
    return table.markdown().partition("\n\n")[2]
