"""Durations side by side, as bars: what takes longer, and what could hide behind it."""

from __future__ import annotations

from collections.abc import Mapping

from vramlab_course.plots import style
from vramlab_course.plots.groups import Bar, draw_groups, height_in
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import Look

Groups = Mapping[str, Mapping[str, float]]
"""Seconds by kind, such as "compute", in groups that are drawn together."""

_LOOKS = (
    Look(style.FAINT),
    Look(style.GREY),
    Look(style.PALE),
    Look(style.INK),
    Look(style.GREY, "//"),
)
"""Shades of grey: colours mean kinds of memory."""
_PLOT_WIDTH_IN = 7.0  # what is left of a picture's width beside the groups' names
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def draw_durations(groups: Groups, *, title: str) -> Picture:
    """Draw a group of bars for each name, a bar for each kind of duration.

    The bars of the first group have the names of the kinds, where it has all of them.

    Args:
        groups: seconds by kind, by the name of the group; at most five kinds.
        title: the picture's title.

    Raises:
        ValueError: there are no durations, or more kinds than can be told apart.
    """
    kinds = list(dict.fromkeys(kind for bars in groups.values() for kind in bars))
    if not kinds or len(kinds) > len(_LOOKS):
        raise ValueError(f"{len(kinds)} kinds of durations; 1 to {len(_LOOKS)} can be drawn")
    longest = max(seconds for bars in groups.values() for seconds in bars.values())
    unit_s, unit = unit_of(longest)
    looks = dict(zip(kinds, _LOOKS, strict=False))
    first = next(iter(groups.values()))
    named = first if len(first) == len(kinds) > 1 else {}
    drawn = [
        (
            name,
            [
                Bar(
                    kind,
                    seconds / unit_s,
                    f"{short_time(seconds)}  {kind}" if bars is named else short_time(seconds),
                )
                for kind, seconds in bars.items()
            ],
        )
        for name, bars in groups.items()
    ]
    with style.house_style():
        picture = new_picture((1.1 if named else 1.4) + height_in(drawn))
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        draw_groups(axes, drawn, looks)
        axes.set_xlim(0, max(map(_end, (bar for _, bars in drawn for bar in bars))) or 1)
        axes.set_xlabel(unit)
        if len(kinds) > 1 and not named:
            picture.explain(looks)
    picture.alt = describe_durations(groups, title=title)
    return picture


def _end(bar: Bar) -> float:
    """Where the axis has to end, for a bar and its label."""
    return bar.length / (1 - min(style.text_width_in(bar.label) / _PLOT_WIDTH_IN, 0.7))


def describe_durations(groups: Groups, *, title: str) -> str:
    """Describe what `draw_durations` draws."""
    parts = "; ".join(
        f"{name}: " + ", ".join(f"{kind} {short_time(seconds)}" for kind, seconds in bars.items())
        for name, bars in groups.items()
    )
    return f"Bars for {title}. {parts}."


def short_time(seconds: float) -> str:
    """Write seconds for a label, with three digits: `1.5 s`, `238 ms`, `8.13 µs`."""
    unit_s, unit = unit_of(seconds)
    return f"{seconds / unit_s:.3g} {unit}" if seconds / unit_s < 1000 else f"{seconds:,.0f} s"


def unit_of(seconds: float) -> tuple[float, str]:
    """Choose the unit in which a time reads best: its seconds and its name."""
    return next(((size, name) for size, name in _UNITS if seconds >= size), (1.0, "s"))
