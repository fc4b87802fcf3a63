"""Who holds a block: ways from a name of the program to a tensor, a row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramlab.measure import Category, Holder
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Box, Diagram, check_drawable
from vramlab_course.plots.picture import WIDTH_IN, Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, Look

_MOST_ROWS = 4
_MOST_BOXES = 7
_PITCH_IN = 0.98
_BOX_IN = 0.52
_LEFT_IN = 0.15
_GAP_IN = 0.16
_NAME = Look(style.PALE)

Way = Sequence[Holder]


def draw_holders(ways: Mapping[str, Way], *, title: str) -> Picture:
    """Draw the way to each of some blocks.

    For example `draw_holders({"a loss": holders(address, {"losses": losses})}, title="...")`.

    Args:
        ways: by what is at their end; an empty way is that of a block to which no name leads.
        title: what is to be seen.

    Raises:
        ValueError: there are no ways, or more than four.
    """
    check_drawable(len(ways), "ways", 1, _MOST_ROWS)
    diagram = Diagram(_PITCH_IN * len(ways), title)
    for row, (words, way) in enumerate(ways.items()):
        y = _PITCH_IN * (len(ways) - 1 - row) + 0.15
        diagram.write(_LEFT_IN, y + _BOX_IN + 0.18, words, ha="left", bold=True)
        _draw_way(diagram, _shortened(way), y)
    return diagram.finish(describe_holders(ways, title=title))


def _draw_way(diagram: Diagram, way: Way, y: float) -> None:
    width = (WIDTH_IN - 2 * _LEFT_IN + _GAP_IN) / _MOST_BOXES - _GAP_IN
    if not way:
        width = 4 * width
        diagram.box(_LEFT_IN, y, width, _BOX_IN, "no name of the program leads there", dashed=True)
        return
    before: Box | None = None
    for number, holder in enumerate(way):
        is_last = number == len(way) - 1
        look = CATEGORY_LOOKS[Category.ACTIVATIONS] if is_last else _NAME
        x = _LEFT_IN + number * (width + _GAP_IN)
        words = f"{_fitted(holder.step, width)}\n{_fitted(holder.kind, width)}"
        box = diagram.box(x, y, width, _BOX_IN, words, look, bold=number == 0)
        if before is not None:
            diagram.arrow(before.right, box.left)
        before = box


def _shortened(way: Way) -> Way:
    """Return a way with no more boxes than a row has: what is left out is counted in its middle."""
    if len(way) <= _MOST_BOXES:
        return way
    first, last = way[: _MOST_BOXES - 3], way[-2:]
    left_out = len(way) - len(first) - len(last)
    return [*first, Holder("...", f"{left_out} more"), *last]


def _fitted(text: str, width_in: float) -> str:
    while style.text_width_in(text) > width_in:
        text = text.removesuffix("…")[:-1] + "…"
    return text


def describe_holders(ways: Mapping[str, Way], *, title: str) -> str:
    """Describe what `draw_holders` draws."""
    sentences = [
        f"{words}: {', then '.join(f'{holder.step} ({holder.kind})' for holder in way)}."
        if way
        else f"{words}: no name of the program leads there."
        for words, way in ways.items()
    ]
    return " ".join([f"{title}.", *sentences])
