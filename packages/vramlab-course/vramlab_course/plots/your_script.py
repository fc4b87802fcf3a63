"""A learner's own script: the peak of its training step, a bar for each lesson it ran in."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from vramlab.measure import Category
from vramlab_course.experiments.your_script import ScriptRun
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.stacks import describe_stacks, draw_stacks
from vramlab_course.plots.style import CATEGORY_LOOKS, size_label

_NAME_LENGTH = 44
_MOST_ROWS = 8


def draw_your_script(runs: Sequence[ScriptRun]) -> Picture:
    """Draw where the bytes are at the peak of a script, in the look of `draw_journey`.

    Args:
        runs: in the order of the lessons; of more than eight, the first and the last are drawn.

    Raises:
        ValueError: There are no runs.
    """
    rows = _rows(runs)
    there = {part for parts in rows.values() for part in parts}
    looks = {str(name): CATEGORY_LOOKS[name] for name in Category if name in there}
    return draw_stacks(rows, title=_finding(runs), looks=looks)


def describe_your_script(runs: Sequence[ScriptRun]) -> str:
    """Describe what `draw_your_script` draws."""
    return describe_stacks(_rows(runs), title=_finding(runs))


def _rows(runs: Sequence[ScriptRun]) -> dict[str, dict[str, int]]:
    shown = runs if len(runs) <= _MOST_ROWS else [runs[0], *runs[1 - _MOST_ROWS :]]
    return {_name(run): run.bytes_by_category for run in shown}


def _name(run: ScriptRun) -> str:
    name = shorten(run.change, _NAME_LENGTH, placeholder=" …")
    return f"{run.lesson}: {name}"


def _finding(runs: Sequence[ScriptRun]) -> str:
    if not runs:
        raise ValueError("no runs: run a script first, with your_script()")
    first, last = runs[0], runs[-1]
    if not last.fits:
        return f"Your script ran out of memory with {size_label(last.peak_bytes)} allocated"
    if len(runs) == 1 or first.peak_bytes == last.peak_bytes:
        return f"Your script: {size_label(last.peak_bytes)} at the peak of a step"
    return f"Your script: from {size_label(first.peak_bytes)} to {size_label(last.peak_bytes)}"
