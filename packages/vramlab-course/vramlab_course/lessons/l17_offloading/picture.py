"""What lies on the GPU, on the host and on a disk, and what travels between them in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.diagram import PAPER, Diagram, check_drawable
from vramlab_course.plots.picture import WIDTH_IN, Picture
from vramlab_course.plots.style import size_label

_MOST = 3
_WIDTH_IN = 2.0


@dataclass(frozen=True)
class Trip:
    """Bytes that go from one place to another in a step."""

    what: str
    size_bytes: int
    start: str
    """Name of a place."""
    end: str
    """Name of a place beside it."""


def draw_travel(
    places: Mapping[str, Mapping[str, int]], trips: Sequence[Trip], *, title: str
) -> Picture:
    """Draw places side by side with what each holds, and arrows for what travels.

    For example `draw_travel({"GPU": {"parameters": 2 * GIB}, "host": {"optimizer states": 8 * GIB},
    "disk": {}}, [Trip("gradients", 2 * GIB, "GPU", "host"), Trip("parameters", 2 * GIB, "host",
    "GPU")], title="...")`, with bytes from `record_transfers`.

    Args:
        places: bytes by name for each place, from left to right; 2 or 3 places.
        trips: between places that are side by side.
        title: what is to be seen.

    Raises:
        ValueError: that many places cannot be drawn, or a trip is not between neighbours.
    """
    names = list(places)
    check_drawable(len(names), "places", 2, _MOST)
    for trip in trips:
        if not {trip.start, trip.end} <= set(names) or (
            abs(names.index(trip.start) - names.index(trip.end)) != 1
        ):
            raise ValueError(
                f"{trip.what} cannot go from {trip.start} to {trip.end}: the places, in their "
                f"order, are {', '.join(names)}"
            )
    of_gap = Counter(frozenset((trip.start, trip.end)) for trip in trips)
    rows = max([2, *(len(held) for held in places.values()), *of_gap.values()])
    drawn: Counter[int] = Counter()
    diagram = Diagram(rows * 0.56 + 0.6, title)
    looks = style.looks_for([name for held in places.values() for name in held])
    pitch = (WIDTH_IN - 0.6 - _WIDTH_IN) / (len(names) - 1)
    for number, (place, held) in enumerate(places.items()):
        x = 0.3 + number * pitch
        diagram.box(x, 0.1, _WIDTH_IN, diagram.height_in - 0.35, "", PAPER)
        total = size_label(sum(held.values()))
        diagram.write(
            x + _WIDTH_IN / 2, diagram.height_in - 0.11, f"{place}: {total}", small=False, bold=True
        )
        for row, (name, size) in enumerate(held.items()):
            y = diagram.height_in - 0.85 - row * 0.56
            words = f"{name}\n{size_label(size)}"
            diagram.box(x + 0.12, y, _WIDTH_IN - 0.24, 0.46, words, looks[name])
    for trip in trips:
        start, end = names.index(trip.start), names.index(trip.end)
        row = drawn[min(start, end)]
        drawn[min(start, end)] += 1
        y = diagram.height_in - 0.72 - row * 0.56
        left = 0.3 + min(start, end) * pitch + _WIDTH_IN + 0.06
        right = 0.3 + max(start, end) * pitch - 0.06
        points = ((left, y), (right, y)) if start < end else ((right, y), (left, y))
        look = style.looks_for([trip.what])[trip.what]
        diagram.arrow(*points, color=look.color, width=2.2)
        diagram.write((left + right) / 2, y + 0.12, trip.what)
        diagram.write((left + right) / 2, y - 0.13, size_label(trip.size_bytes))
    return diagram.finish(describe_travel(places, trips, title=title))


def describe_travel(
    places: Mapping[str, Mapping[str, int]], trips: Sequence[Trip], *, title: str
) -> str:
    """Describe what `draw_travel` draws."""
    held = " ".join(
        f"{place} holds "
        + (", ".join(f"{name} {short_size(size)}" for name, size in parts.items()) or "nothing")
        + "."
        for place, parts in places.items()
    )
    sent = " ".join(
        f"{trip.what}, {short_size(trip.size_bytes)}, go from {trip.start} to {trip.end}."
        for trip in trips
    )
    return f"{title}. {held} {sent}"
