"""A map of methods: what each saves, what it costs in time and bytes sent, and what breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Diagram
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import Look, size_label

_ROW_IN = 0.42
_BAR_IN = 1.7
_PEAK, _TIME = Look(style.FAINT), Look(style.GREY)


@dataclass(frozen=True)
class MethodCost:
    """One way to train, beside the way that the map begins with."""

    peak_bytes: int
    """Of a step."""
    time: float
    """Of a step, as a part of the first way's; 1.2 is a fifth more."""
    sent_bytes: int = 0
    """By one GPU in a step, to other GPUs or the host."""
    breaks: str = ""
    """What may go wrong or change, in a few words."""


def draw_methods(
    methods: Mapping[str, MethodCost],
    *,
    title: str = "",
    capacity_bytes: int | None = None,
    assumes: str = "",
) -> Picture:
    """Draw a row for each method: its peak beside the first one's, its time, bytes sent, a warning.

    For example `draw_methods({"as it was": MethodCost(30 * GIB, 1.0), "checkpointing":
    MethodCost(12 * GIB, 1.25, breaks="random numbers, unless kept")})`, from measured steps.

    Args:
        methods: by name; the first is what the others are compared with.
        title: what is to be seen; the default names the method with the lowest peak.
        capacity_bytes: the GPU's memory, drawn as a line through the peaks if given.
        assumes: where the times come from; stands below the rows.

    Raises:
        ValueError: there are no methods.
    """
    if not methods:
        raise ValueError("there is no method to draw")
    title = title or _finding(methods)
    room_in = (0.6 if capacity_bytes is None else 0.85) + (0.2 if assumes else 0.0)
    diagram = Diagram(len(methods) * _ROW_IN + room_in, title)
    largest_bytes = max([*(method.peak_bytes for method in methods.values()), capacity_bytes or 0])
    longest = max(method.time for method in methods.values())
    columns = {"peak of a step": 1.85, "time": 4.45, "sent": 6.2, "mind": 7.05}
    y = diagram.height_in - 0.2
    for name, x in columns.items():
        diagram.write(x, y, name, ha="left", bold=True)
    first = next(iter(methods.values()))
    for name, method in methods.items():
        y -= _ROW_IN
        diagram.write(0.25, y, name, ha="left", bold=True)
        x = columns["peak of a step"]
        width = _BAR_IN * method.peak_bytes / largest_bytes
        diagram.box(x, y - 0.13, _BAR_IN * first.peak_bytes / largest_bytes, 0.26, dashed=True)
        diagram.box(x, y - 0.13, width, 0.26, "", _PEAK)
        diagram.write(x + _BAR_IN + 0.1, y, size_label(method.peak_bytes), ha="left")
        x = columns["time"]
        diagram.box(x, y - 0.13, 1.0 * method.time / longest, 0.26, "", _TIME)
        diagram.write(x + 1.08, y, f"x {method.time:.2f}", ha="left")
        sent = size_label(method.sent_bytes) if method.sent_bytes else "nothing"
        diagram.write(columns["sent"], y, sent, ha="left")
        diagram.write(columns["mind"], y, method.breaks, ha="left")
    if capacity_bytes is not None:
        x = columns["peak of a step"] + _BAR_IN * capacity_bytes / largest_bytes
        diagram.line((x, y - 0.24), (x, diagram.height_in - 0.38), width=2.2)
        diagram.write(x, y - 0.36, f"room on the GPU: {size_label(capacity_bytes)}")
    if assumes:
        diagram.write(columns["time"], 0.14, assumes, ha="left")
    words = describe_methods(methods, title=title, capacity_bytes=capacity_bytes)
    return diagram.finish(f"{words} {assumes}".strip())


def describe_methods(
    methods: Mapping[str, MethodCost], *, title: str = "", capacity_bytes: int | None = None
) -> str:
    """Describe what `draw_methods` draws."""
    rows = " ".join(
        f"{name}: peak {short_size(method.peak_bytes)}, time x {method.time:.2f}, sends "
        f"{short_size(method.sent_bytes)}{'; mind: ' + method.breaks if method.breaks else ''}."
        for name, method in methods.items()
    )
    has = "" if capacity_bytes is None else f" Room on the GPU: {short_size(capacity_bytes)}."
    return f"{title or _finding(methods)}. {rows}{has}"


def _finding(methods: Mapping[str, MethodCost]) -> str:
    first = next(iter(methods.values()))
    name, least = min(methods.items(), key=lambda item: item[1].peak_bytes)
    share = 1 - least.peak_bytes / first.peak_bytes
    return f"Least memory: {name}, {share:.0%} less than at first, in {least.time:.2f} of the time"
