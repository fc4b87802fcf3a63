"""Predicted, measured and published, stage by stage, as bars."""

from __future__ import annotations

from dataclasses import dataclass

from vramlab.measure import Expectation, Quantity, Result
from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.groups import Bar, draw_groups, height_in
from vramlab_course.plots.picture import Picture, new_picture
from vramlab_course.plots.style import MemoryUnit

_LOOKS = {
    "predicted": style.PREDICTED_LOOK,
    "measured": style.MEASURED_LOOK,
    "published": style.PUBLISHED_LOOK,
}


@dataclass(frozen=True)
class _Group:
    """The bars of one row of a result's table."""

    name: str
    bars: dict[str, int]
    """Bytes by kind: predicted, measured, published; only those that there are."""


def draw_stages(
    result: Result, *, quantity: Quantity | None = None, title: str | None = None
) -> Picture:
    """Draw a group of bars per expected number: predicted, measured and published side by side.

    Args:
        result: what an experiment measured.
        quantity: only the rows of this quantity; all that were expected if None.
        title: the picture's title; the result's name if None.
    """
    title = title or f"{result.name} on {result.gpu_in_words}"
    groups = _groups(result, quantity)
    values = [size_bytes for group in groups for size_bytes in group.bars.values()]
    unit = MemoryUnit.for_axis(max(map(abs, values), default=0))
    drawn = [(group.name, _drawn(group, unit)) for group in groups]
    with style.house_style():
        picture = new_picture(1.5 + height_in(drawn))
        axes = picture.subplots()
        axes.set_title(title, fontsize=style.TITLE_FONT_SIZE)
        draw_groups(axes, drawn, _LOOKS)
        lowest, highest = min([0, *values]), max([0, *values])
        room = (highest - lowest) // 6 or unit.size_bytes  # for the labels at the ends
        axes.set_xlim(unit.of(lowest - (room if lowest < 0 else 0)), unit.of(highest + room))
        axes.axvline(0, color=style.INK, linewidth=0.8)
        axes.set_xlabel(unit.name)
        kinds = dict.fromkeys(kind for group in groups for kind in group.bars)
        picture.legend(
            handles=[_LOOKS[kind].patch(kind) for kind in _LOOKS if kind in kinds],
            loc="outside lower left",
            ncols=len(_LOOKS),
        )
    picture.alt = describe_stages(result, quantity=quantity, title=title)
    return picture


def describe_stages(
    result: Result, *, quantity: Quantity | None = None, title: str | None = None
) -> str:
    """Describe what `draw_stages` draws."""
    groups = "; ".join(
        f"{group.name}: "
        + ", ".join(f"{kind} {short_size(size_bytes)}" for kind, size_bytes in group.bars.items())
        for group in _groups(result, quantity)
    )
    return f"Bars for {title or f'{result.name} on {result.gpu_in_words}'}. {groups}."


def _groups(result: Result, quantity: Quantity | None) -> list[_Group]:
    groups = []
    for stage in result.stages:
        for expectation in stage.expectations or (Expectation(quantity or "growth"),):
            if quantity in (None, expectation.quantity):
                bars = {"measured": stage.measured_bytes(expectation.quantity)}
                if expectation.predicted_bytes is not None:
                    bars = {"predicted": expectation.predicted_bytes, **bars}
                if expectation.published is not None:
                    bars["published"] = expectation.published.nearest_bytes
                groups.append(_Group(f"{stage.name} ({expectation.quantity})", bars))
    return groups


def _drawn(group: _Group, unit: MemoryUnit) -> list[Bar]:
    return [
        Bar(kind, unit.of(size_bytes), short_size(size_bytes))
        for kind, size_bytes in group.bars.items()
    ]
