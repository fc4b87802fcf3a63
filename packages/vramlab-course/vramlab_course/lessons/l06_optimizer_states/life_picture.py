"""The life of a training step: which kind of memory is there in which stage, and how much of it."""

from __future__ import annotations

from vramlab.measure import Category, Timeline, category_curves
from vramlab_course.plots import style
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

_ROW_IN = 0.62
_ROOM = 1.25  # of a row, for the highest curve and its label


def draw_life(timeline: Timeline, *, title: str) -> Picture:
    """Draw a row for each kind of memory and a column for each stage, all rows to one scale.

    Within a stage, time runs by allocator events.

    Args:
        timeline: with stages.
        title: the picture's title.

    Raises:
        ValueError: The timeline has no stages.
    """
    if not timeline.stages:
        raise ValueError("the timeline has no stages: mark them with recording.stage(name)")
    curves = _curves(timeline)
    highest_bytes = max(max(curve) for columns in curves.values() for curve in columns)
    with style.house_style():
        picture = new_picture(0.9 + _ROW_IN * len(curves))
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        for row, (category, columns) in enumerate(reversed(curves.items())):
            for column, curve in enumerate(columns):
                steps = [column + number / len(curve) for number in range(len(curve) + 1)]
                tops = [row + size / highest_bytes / _ROOM for size in [*curve, curve[-1]]]
                axes.fill_between(
                    steps, row, tops, step="post", color=CATEGORY_LOOKS[category].color, linewidth=0
                )
                if max(curve):
                    axes.text(
                        column + 0.5,
                        row + max(curve) / highest_bytes / _ROOM,
                        size_label(max(curve)),
                        ha="center",
                        va="bottom",
                        fontsize=style.SMALL_FONT_SIZE,
                    )
            axes.axhline(row, color=style.GREY, linewidth=0.6)
        for column in range(1, len(timeline.stages)):
            axes.axvline(column, color=style.GREY, linewidth=0.6)
        axes.set_xlim(0, len(timeline.stages))
        axes.set_ylim(0, len(curves))
        names = [stage.name for stage in timeline.stages]
        axes.set_xticks([column + 0.5 for column in range(len(names))], names)
        axes.set_yticks([row + 0.4 for row in range(len(curves))], list(reversed(curves)))
        axes.tick_params(length=0)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    picture.alt = describe_life(timeline, title=title)
    return picture


def describe_life(timeline: Timeline, *, title: str) -> str:
    """Say in words what `draw_life` draws: the most of each kind in each stage."""
    names = [stage.name for stage in timeline.stages]
    rows = "; ".join(
        f"{category}: "
        + ", ".join(
            f"{name} {size_label(max(curve))}"
            for name, curve in zip(names, columns, strict=True)
            if max(curve)
        )
        for category, columns in _curves(timeline).items()
    )
    return f"{title}. The most of each kind of memory in each stage. {rows}."


def _curves(timeline: Timeline) -> dict[Category, list[list[int]]]:
    """Bytes of each category at every position of every stage; workspaces are left out."""
    return {
        category: [curve[stage.start : stage.end + 1] for stage in timeline.stages]
        for category, curve in category_curves(timeline).items()
        if category != Category.WORKSPACES
    }
