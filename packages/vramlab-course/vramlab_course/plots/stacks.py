"""Stacked bars of the same parts under each other, such as one for each layer of a model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from matplotlib.artist import Artist

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.bars import BarPart, draw_bar, draw_capacity, name_rows
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look, MemoryUnit, size_label

_ROW_IN = 0.27
_FOLDED = 3
_PLOT_WIDTH_IN = 6.2  # what is left of a picture's width beside the rows' names and sums

Rows = Mapping[str, Mapping[str, int]]
"""Bytes by the name of the row, and the part's name in it."""


def draw_stacks(
    rows: Rows,
    *,
    title: str,
    capacity_bytes: int | None = None,
    capacity_name: str | None = None,
    looks: Mapping[str, Look] | None = None,
    of: Category | str | None = None,
) -> Picture:
    """Draw a bar for each row; a part looks the same in every row, and sums stand at the ends.

    The longest stretch of a part has its name, if there is room; the legend has the other names.
    Three rows that follow each other and are equal, or more, are drawn as one.

    Args:
        rows: from top to bottom; their parts are stacked in the order in which they first come.
            Parts of 0 bytes are not drawn, but keep their place in that order.
        title: the picture's title.
        capacity_bytes: the GPU's memory, drawn as a line if given.
        capacity_name: what the line is called; the memory of the GPU if None.
        looks: of the parts, by name, in the order in which they are stacked; for all, or for none.
        of: what all parts belong to, if that is one category: they have tints of its colour then.

    Raises:
        ValueError: there are no rows, or more parts than can be told apart.
    """
    looks = _looks(rows, of) if looks is None else _looks_given(rows, looks)
    alt = describe_stacks(rows, title=title)
    rows = _folded(rows)
    sums = {row: sum(parts.values()) for row, parts in rows.items()}
    longest_bytes = max([*sums.values(), capacity_bytes or 0]) or 1
    unit = MemoryUnit.for_axis(longest_bytes)
    with style.house_style():
        picture = new_picture(1)
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        axes.set_xlim(0, unit.of(longest_bytes) * 1.16)  # room for the sums
        named = set()
        for number, (row, parts) in enumerate(rows.items()):
            stretches = (
                BarPart(part, parts.get(part, 0), look, _labels(rows, row, part))
                for part, look in looks.items()
            )
            named |= draw_bar(axes, number, stretches, unit, _PLOT_WIDTH_IN)
            axes.annotate(
                size_label(sums[row]),
                (unit.of(sums[row]), number),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=style.SMALL_FONT_SIZE,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},  # over the GPU's line
                zorder=5,
            )
        handles: list[Artist] = [
            look.patch(part)
            for part, look in looks.items()
            if len(looks) > 1
            and part not in named
            and _can_be_seen(rows, part, axes.get_xlim()[1] * unit.size_bytes)
        ]
        handles += draw_capacity(axes, capacity_bytes, unit, capacity_name)
        axes.set_xlabel(unit.name)
        name_rows(axes, list(rows))
        rows_of_legend = -(-len(handles) // 4)
        picture.set_figheight(0.95 + 0.2 * rows_of_legend + _ROW_IN * len(rows))
        if handles:
            picture.explain_in_columns(handles, 4)
    picture.alt = alt
    return picture


def _labels(rows: Rows, row: str, part: str) -> tuple[str, ...]:
    """Return what may stand on a part in a row: in the row where it is longest, its name as well.

    Where all rows have one part alone, the sums at their ends say all there is to say.
    """
    if all(len(parts) == 1 for parts in rows.values()):
        return ("",)
    size = size_label(rows[row].get(part, 0))
    longest = max(rows, key=lambda name: rows[name].get(part, 0))
    return (f"{part} {size}", size) if row == longest else (size,)


def _can_be_seen(rows: Rows, part: str, axis_bytes: float) -> bool:
    return any(parts.get(part, 0) > axis_bytes / 500 for parts in rows.values())


def describe_stacks(rows: Rows, *, title: str) -> str:
    """Describe what `draw_stacks` draws; rows that are alike are said once."""
    alike: dict[str, list[str]] = {}
    for row, parts in rows.items():
        listed = ", ".join(f"{part} {short_size(size)}" for part, size in parts.items() if size)
        alike.setdefault(f"{short_size(sum(parts.values()))} ({listed or 'nothing'})", []).append(
            row
        )
    sentences = [f"{_names(names)}: {words}." for words, names in alike.items()]
    return " ".join([f"{title}.", *sentences])


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}, each of {len(names)}"


def _folded(rows: Rows) -> Rows:
    """Return the same with one row for three or more that follow each other and are equal."""
    folded: dict[str, Mapping[str, int]] = {}
    for _, run in groupby(rows.items(), key=lambda row: {p: n for p, n in row[1].items() if n}):
        alike = dict(run)
        if len(alike) < _FOLDED:
            folded |= alike
        else:
            first, *_, last = alike
            folded[f"{first} to {last}, each"] = alike[first]
    return folded


def _looks(rows: Rows, of: Category | str | None) -> dict[str, Look]:
    """Return a look for each part. Pictures of the same parts give them the same looks."""
    parts = dict.fromkeys(part for row in rows.values() for part in row)
    if not rows:
        raise ValueError("there is no row to draw")
    there = {part for row in rows.values() for part, size_bytes in row.items() if size_bytes}
    looks = style.looks_for(list(parts)) if of is None else style.tints_of(of, list(parts))
    return {part: look for part, look in looks.items() if part in there}


def _looks_given(rows: Rows, looks: Mapping[str, Look]) -> dict[str, Look]:
    parts = {part for row in rows.values() for part, size_bytes in row.items() if size_bytes}
    if missing := parts - set(looks):
        raise ValueError(f"no look is given for {', '.join(sorted(missing))}")
    return {part: look for part, look in looks.items() if part in parts}
