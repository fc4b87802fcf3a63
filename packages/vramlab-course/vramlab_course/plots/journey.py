"""The journey so far: the running model's training step, a bar for each lesson that changed it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vramlab.measure import Category
from vramlab_course.experiments.journey import JourneyStop
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.stacks import describe_stacks, draw_stacks
from vramlab_course.plots.style import CATEGORY_LOOKS, GREY, Look, size_label

UNEXPLAINED = "not explained yet"
_LOOKS = {UNEXPLAINED: Look(GREY, ".."), **{str(name): CATEGORY_LOOKS[name] for name in Category}}


def draw_journey(
    stops: Sequence[JourneyStop], explained: Collection[Category] = tuple(Category)
) -> Picture:
    """Draw where the bytes are at the peak of a step, as each lesson left it.

    For example `draw_journey(measure_journey(until="09"))`.

    Args:
        stops: measured.
        explained: categories that the course has explained until then; the others are one part.

    Raises:
        ValueError: there are no stops.
    """
    rows = _rows(stops, explained)
    there = {part for parts in rows.values() for part in parts}
    looks = {name: look for name, look in _LOOKS.items() if name in there}
    last = {name: looks[name] for name in looks if name != UNEXPLAINED}
    if UNEXPLAINED in looks:
        last[UNEXPLAINED] = looks[UNEXPLAINED]
    return draw_stacks(rows, title=_finding(stops, explained), looks=last)


def describe_journey(
    stops: Sequence[JourneyStop], explained: Collection[Category] = tuple(Category)
) -> str:
    """Describe what `draw_journey` draws."""
    return describe_stacks(_rows(stops, explained), title=_finding(stops, explained))


def _rows(
    stops: Sequence[JourneyStop], explained: Collection[Category]
) -> dict[str, dict[str, int]]:
    return {f"{stop.lesson}: {stop.change}": _parts(stop, explained) for stop in stops}


def _parts(stop: JourneyStop, explained: Collection[Category]) -> dict[str, int]:
    parts: dict[str, int] = {}
    for name, size_bytes in stop.bytes_by_category.items():
        part = name if Category(name) in explained else UNEXPLAINED
        parts[part] = parts.get(part, 0) + size_bytes
    return parts


def _finding(stops: Sequence[JourneyStop], explained: Collection[Category]) -> str:
    if not stops:
        raise ValueError("the journey has no stops yet: measure one with measure_journey()")
    first, last = stops[0].peak_bytes, stops[-1].peak_bytes
    unexplained = _parts(stops[-1], explained).get(UNEXPLAINED, 0)
    if unexplained:
        return f"The journey so far: {1 - unexplained / last:.0%} of {size_label(last)} explained"
    if len(stops) == 1:
        return f"The journey so far: all {size_label(last)} are explained, and can shrink now"
    return f"The journey so far: from {size_label(first)} to {size_label(last)}"
