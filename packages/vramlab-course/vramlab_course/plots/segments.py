"""The allocator's segments and the blocks in them, to scale, at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.bars import name_rows
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, MemoryUnit, fits, size_label

_ALLOCATED = "allocated"
_WASTED = "rounded up or not split off"
_WAITING = "freed, another stream still uses it"
_FREE = "free (cached)"
_LOOKS = {
    _ALLOCATED: style.TENSORS_LOOK,
    _WASTED: Look("#DFE8F2"),  # of a block, as what is allocated is
    _WAITING: Look(style.GREY),
    _FREE: Look("white"),
}
_ROW_IN = 0.42
_FLAT_ROW_IN = 0.3
"""Where there are more than six rows."""
_PLOT_WIDTH_IN = 7.6  # what is left of a picture's width beside the names of the segments
_MOST_PARTS_IN_WORDS = 8
_APART = 4
"""As many equal segments have a row each: then their number is seen."""

Snapshot = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""torch.cuda.memory._snapshot(), or its segments alone (torch.cuda.memory_snapshot())."""


@dataclass(frozen=True)
class _Part:
    """A stretch of a segment that is drawn as one box."""

    kind: str
    start_bytes: int
    size_bytes: int
    label: str
    name: str = ""


@dataclass(frozen=True)
class _Row:
    """A segment as it is drawn. Segments that look the same share a row."""

    pool: str
    stream: int
    total_bytes: int
    parts: tuple[_Part, ...]

    def name(self, count: int) -> str:
        times = f"{count} x " if count > 1 else ""
        stream = f"\nstream {self.stream:#x}" if self.stream else ""
        return f"{times}{short_size(self.total_bytes)}{stream}"


def draw_segments(
    snapshot: Snapshot,
    *,
    device: int = 0,
    names: Mapping[int, str] | None = None,
    title: str = "The allocator's segments",
    most: int = 12,
) -> Picture:
    """Draw the segments of one device, one row each, split into their blocks.

    More than four segments that look the same share a row. Small and large pool have a scale of
    their own, because a small segment (2 MiB) would be hard to see beside a large one.

    Args:
        snapshot: torch.cuda.memory._snapshot(), or its segments (torch.cuda.memory_snapshot()).
        device: index of the GPU.
        names: a name for blocks, by their address (`tensor.data_ptr()`).
        title: the picture's title.
        most: how many rows a pool has at most, largest segments first; the rest is counted.
    """
    rows = _rows(segments_of(snapshot, device), names or {})
    pools = {
        pool: {row: count for row, count in rows.items() if row.pool == pool}
        for pool in dict.fromkeys(row.pool for row in rows)
    }
    with style.house_style():
        heights = [min(len(_drawn(pool_rows)), most) for pool_rows in pools.values()] or [1]
        row_in = _ROW_IN if sum(heights) <= 6 else _FLAT_ROW_IN
        picture = new_picture(0.75 + sum(row_in * height + 0.75 for height in heights))
        picture.suptitle(title, x=0.01, ha="left", fontsize=style.TITLE_FONT_SIZE)
        axes_list = picture.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        if not pools:
            axes_list[0].text(0.5, 0.5, "no segments: nothing is reserved", ha="center")
            axes_list[0].set_axis_off()
        for axes, (pool, pool_rows) in zip(axes_list, pools.items(), strict=False):
            _draw_pool(axes, pool, pool_rows, most)
        there = {part.kind for row in rows for part in row.parts} - {_ALLOCATED, _FREE}
        if there:
            picture.set_figheight(picture.get_figheight() + 0.25)
            picture.explain({kind: look for kind, look in _LOOKS.items() if kind in there})
    picture.alt = describe_segments(snapshot, device=device, names=names, title=title, most=most)
    return picture


def describe_segments(
    snapshot: Snapshot,
    *,
    device: int = 0,
    names: Mapping[int, str] | None = None,
    title: str = "The allocator's segments",
    most: int = 12,
) -> str:
    """Describe what `draw_segments` draws."""
    segments = segments_of(snapshot, device)
    reserved_bytes = sum(segment["total_size"] for segment in segments)
    allocated_bytes = sum(segment["allocated_size"] for segment in segments)
    sentences = [
        f"{title}: {_counted(len(segments))}, {short_size(reserved_bytes)} reserved, "
        f"{short_size(allocated_bytes)} allocated."
    ]
    rows = list(_rows(segments, names or {}).items())
    for row, count in rows[:most]:
        size = short_size(row.total_bytes)
        whose = (
            f"{count} {row.pool} segments of {size}, each"
            if count > 1
            else (f"{row.pool.capitalize()} segment of {size}")
        )
        sentences.append(f"{whose}: {_in_words(row.parts)}.")
    left_out = sum(count for _, count in rows[most:])
    if left_out:
        sentences.append(f"Not listed: {_counted(left_out)}.")
    return " ".join(sentences)


def segments_of(snapshot: Snapshot, device: int) -> list[Mapping[str, Any]]:
    segments = snapshot["segments"] if isinstance(snapshot, Mapping) else snapshot
    return [segment for segment in segments if segment["device"] == device]


def _rows(segments: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> dict[_Row, int]:
    """Return the rows with the number of segments each stands for: large pool first, by size.

    Of equal ones, that with the highest address first: mostly, the driver has given it first.
    """
    rows = [
        _Row(
            pool=segment["segment_type"],
            stream=segment["stream"],
            total_bytes=segment["total_size"],
            parts=tuple(_parts(segment, names)),
        )
        for segment in sorted(segments, key=lambda segment: -segment["address"])
    ]
    return dict(Counter(sorted(rows, key=lambda row: (row.pool, -row.total_bytes))))


def _parts(segment: Mapping[str, Any], names: Mapping[int, str]) -> list[_Part]:
    """Return the boxes of a segment, from its start to its end."""
    parts = []
    start_bytes = 0
    for block in segment["blocks"]:
        size_bytes = block["size"]
        if block["state"] == "active_allocated":
            name = names.get(segment["address"] + start_bytes, "")
            used_bytes = min(block["requested_size"], size_bytes)
            label = f"{name} {size_label(used_bytes)}".strip()
            parts.append(_Part(_ALLOCATED, start_bytes, used_bytes, label, name))
            if used_bytes < size_bytes:
                waste_bytes = size_bytes - used_bytes
                parts.append(_Part(_WASTED, start_bytes + used_bytes, waste_bytes, ""))
        else:
            kind = _FREE if block["state"] == "inactive" else _WAITING
            size = size_label(size_bytes)
            label = f"{size} free" if kind == _FREE else size
            parts.append(_Part(kind, start_bytes, size_bytes, label))
        start_bytes += size_bytes
    return parts


def _in_words(parts: Sequence[_Part]) -> str:
    """Name the parts one by one, or by kind where they are many."""
    if len(parts) <= _MOST_PARTS_IN_WORDS:
        return ", ".join(f"{p.name} {short_size(p.size_bytes)} {p.kind}".strip() for p in parts)
    kinds = Counter(part.kind for part in parts)
    return ", ".join(
        f"{short_size(sum(part.size_bytes for part in parts if part.kind == kind))} {kind} "
        f"in {count} {'piece' if count == 1 else 'pieces'}"
        for kind, count in kinds.items()
    )


def _drawn(rows: Mapping[_Row, int]) -> list[tuple[_Row, int]]:
    """Return the rows of a pool as they are drawn: equal segments apart, unless they are many."""
    apart: list[tuple[_Row, int]] = []
    for row, count in rows.items():
        apart += [(row, 1)] * count if count <= _APART else [(row, count)]
    return apart


def _draw_pool(axes: Axes, pool: str, rows: Mapping[_Row, int], most: int) -> None:
    drawn = _drawn(rows)[:most]
    largest_bytes = max(row.total_bytes for row in rows)
    unit = MemoryUnit.for_axis(largest_bytes)
    axes.set_xlim(0, unit.of(largest_bytes) * 1.003)  # keeps the last edge inside
    for number, (row, _) in enumerate(drawn):
        for part in row.parts:
            _draw_part(axes, number, part, unit)
    left_out = sum(rows.values()) - sum(count for _, count in drawn)
    remark = f", {left_out} of them not drawn" if left_out else ""
    axes.set_title(f"{pool} pool: {_counted(sum(rows.values()))}{remark}")
    axes.set_xlabel(f"{unit.name} from the start of the segment")
    name_rows(axes, [row.name(count) for row, count in drawn])


def _draw_part(axes: Axes, number: int, part: _Part, unit: MemoryUnit) -> None:
    look = _LOOKS[part.kind]
    start, width = unit.of(part.start_bytes), unit.of(part.size_bytes)
    wide = fits(axes, "I", width, _PLOT_WIDTH_IN)  # else its edges would hide its colour
    axes.barh(
        number,
        width,
        left=start,
        height=0.7,
        color=look.color,
        hatch=look.hatch,
        edgecolor=style.INK,
        linewidth=0.6 if wide else 0.2,
        label=part.kind,
    )
    labels = (text for text in (part.label, part.label.removesuffix(" free"), part.name) if text)
    label = next((text for text in labels if fits(axes, text, width, _PLOT_WIDTH_IN)), "")
    if label:
        axes.text(
            start + width / 2,
            number,
            label,
            ha="center",
            va="center",
            fontsize=style.SMALL_FONT_SIZE,
        )


def _counted(count: int) -> str:
    return "1 segment" if count == 1 else f"{count} segments"
