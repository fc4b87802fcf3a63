"""A step in time: what is computed, what is sent, and below what is allocated meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vramlab.categories import Category
from vramlab.measure.step_times import Rates, TimedRank, TimedWork
from vramlab_course.plots import style
from vramlab_course.plots.durations import short_time, unit_of
from vramlab_course.plots.lanes import Lanes, Span, draw_lanes
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look, size_label

COMPUTES, COMMUNICATES = "computes", "communicates"
_OTHER = "other operators"
_OPTIMIZER = "optimizer step"
_LOOKS: dict[str, Look] = {
    _OTHER: Look(style.FAINT, text_color="white"),
    _OPTIMIZER: Look(style.INK, text_color="white"),
    "all-gather": style.GATHERED_LOOK,
    "broadcast": style.GATHERED_LOOK,
    "all-reduce": CATEGORY_LOOKS[Category.GRADIENTS],
    "reduce-scatter": CATEGORY_LOOKS[Category.GRADIENTS],
    "reduce": CATEGORY_LOOKS[Category.GRADIENTS],
    "all-to-all": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "send": CATEGORY_LOOKS[Category.ACTIVATIONS],
    "to host": CATEGORY_LOOKS[Category.ACTIVATIONS].paler(0.5),
    "to GPU": CATEGORY_LOOKS[Category.ACTIVATIONS],
}
_STRIP = 0.72
"""Copies on other streams are a strip below what a link carries."""
_TOUCHING_S = 1e-12


def draw_steps(
    steps: Mapping[str, TimedRank],
    rates: Rates,
    *,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    links: bool = True,
) -> Picture:
    """Draw steps in time, one below the other: a lane that computes, one that communicates.

    Operators of one layer and direction that follow each other are one box.

    Args:
        steps: what `put_in_time` gives, by name; "" if there is one only.
        rates: those that it was given.
        title: the picture's title; if empty, how much of the time is computed and hidden.
        looks: of kinds that look otherwise than in other lessons.
        links: whether to draw what links carry.
    """
    unit_s, unit = unit_of(max(step.end_s for step in steps.values()))
    return draw_lanes(
        Lanes(
            title=title or heading(steps),
            time=f"{unit}. Assumed of {rates}",
            spans=[
                replace(span, start=span.start / unit_s, end=span.end / unit_s)
                for name, step in steps.items()
                for span in spans_of(step, name, links=links)
            ],
            curves={
                name: [(moment / unit_s, size_bytes) for moment, size_bytes in step.held()]
                for name, step in steps.items()
            },
            looks={**_LOOKS, **(looks or {})},
            told=" ".join(_told(name, step) for name, step in steps.items()),
        )
    )


def heading(steps: Mapping[str, TimedRank]) -> str:
    """Say how much of the time is computed, and how much of what is sent is hidden behind it."""
    found = {
        name: f"the GPU computes {computing_share(step):.0%} of the time, which hides "
        f"{hidden_share(step):.0%} of the communication"
        for name, step in steps.items()
    }
    return "; ".join(f"{name}: {text}" if name else f"T{text[1:]}" for name, text in found.items())


def computing_share(step: TimedRank) -> float:
    """Return the fraction of a step in which something is computed."""
    return _length(step.computing()) / step.end_s


def hidden_share(step: TimedRank) -> float:
    """Return the fraction of what links carry that is carried while something is computed."""
    carried = [each for each in step.carried() if each.work.kind != "operator"]
    computing = step.computing()
    hidden_s = sum(
        max(0.0, min(one.end_s, other.end_s) - max(one.start_s, other.start_s))
        for one in carried
        for other in computing
    )
    return hidden_s / (_length(carried) or 1.0)


def spans_of(step: TimedRank, name: str = "", *, links: bool = True) -> Iterator[Span]:
    """List the boxes of a step, in seconds."""
    before = f"{name}:\n" if name and links else ""
    computing = (_span(each, before + COMPUTES if links else name) for each in step.computing())
    yield from merged(computing)
    if links:
        yield from (_span(each, before + COMMUNICATES) for each in step.carried())


def _span(timed: TimedWork, lane: str) -> Span:
    work = timed.work
    label = _short(work.label)
    low = 0.0
    if work.kind != "operator":
        kind = work.name
        label = f"{label}\n{size_label(work.moved_bytes)}".strip()
    elif work.stream:
        kind, low, label = _OTHER, _STRIP, ""
    elif work.label.startswith("Optimizer."):
        kind, label = _OPTIMIZER, ""
    elif work.label.startswith("FSDP::") or not label:
        kind, label = _OTHER, ""
    else:
        kind = "backward" if work.backward else "forward"
    return Span(lane, kind, label, timed.start_s, timed.end_s, low)


def _short(label: str) -> str:
    """Shorten the names that PyTorch gives to ranges: 'FSDP::all_gather (3)' to '3'."""
    if found := re.search(r"\((\S+)\)$", label):
        return found[1]
    return "" if "::" in label or "." in label else label


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Merge boxes of one kind and label that touch each other."""
    last: Span | None = None
    for span in spans:
        is_same = last is not None and (last.kind, last.label) == (span.kind, span.label)
        if last and is_same and abs(span.start - last.end) < _TOUCHING_S:
            last = replace(last, end=span.end)
            continue
        if last:
            yield last
        last = span
    if last:
        yield last


def _length(works: Sequence[TimedWork]) -> float:
    return sum(each.end_s - each.start_s for each in works)


def _told(name: str, step: TimedRank) -> str:
    carried: dict[str, list[TimedWork]] = {}
    for each in step.carried():
        if each.work.kind != "operator":
            carried.setdefault(each.work.name, []).append(each)
    parts = "".join(
        f", {len(works)} x {kind} {short_time(_length(works))}" for kind, works in carried.items()
    )
    computed = short_time(_length(step.computing()))
    return f"{name + ': ' if name else ''}of {short_time(step.end_s)}, computes {computed}{parts}."
