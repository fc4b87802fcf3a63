"""A transformer layer on several GPUs: where it is cut, and where GPUs exchange what."""

from __future__ import annotations

from vramlab.measure import Category
from vramlab_course.plots.diagram import Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS

_MOST = 8
_BOX_IN = (0.94, 0.86)
_STEP_IN = 1.87
_LEFT_IN = 0.3
_KEPT = CATEGORY_LOOKS[Category.ACTIVATIONS]
_ROWS = (
    ("Tensor parallel", False, "f: nothing", "g: all-reduce"),
    ("Tensor and sequence parallel", True, "all-gather", "reduce-scatter"),
)


def draw_divided_layer(heads: int, ranks: int) -> Picture:
    """Draw the activations of a transformer layer in its forward pass, and what GPU 0 has of them.

    Each box is (tokens x hidden size): cut from left to right by heads or columns, or from top to
    bottom by tokens. What GPU 0 has is filled. Source: arXiv 1909.08053 and 2205.05198.

    Args:
        heads: of attention.
        ranks: GPUs that share the layer, 2 to 8; they divide the heads.

    Raises:
        ValueError: that many GPUs cannot be drawn, or a head would be cut through.
    """
    check_drawable(ranks, "GPUs", 2, _MOST)
    if heads % ranks:
        raise ValueError(f"{heads} heads on {ranks} GPUs: choose GPUs that divide the heads")
    each = heads // ranks
    title = f"{ranks} GPUs, {each} of {heads} heads on each: what GPU 0 has is filled"
    diagram = Diagram(3.55, title)
    names = (
        "norm",
        f"attention:\n{'head 0' if each == 1 else f'heads 0 to {each - 1}'}",
        "dropout, add,\nnorm",
        f"feed-forward:\n1/{ranks} of the columns",
        "dropout, add",
    )
    for row, (name, cuts_tokens, before, after) in enumerate(_ROWS):
        y = 2.2 - row * 1.72
        diagram.write(_LEFT_IN, y + 1.06, name, ha="left", small=False, bold=True)
        for place, words in enumerate(names):
            x = _LEFT_IN + place * _STEP_IN
            is_inside = place % 2 == 1
            by_tokens = cuts_tokens and not is_inside
            _draw_activation(diagram, x, y, ranks, by_tokens=by_tokens, by_columns=is_inside)
            diagram.write(x + _BOX_IN[0] / 2, y - 0.2, words)
            if place:
                middle = y + _BOX_IN[1] / 2
                start, end = (x - _STEP_IN + _BOX_IN[0] + 0.06, middle), (x - 0.06, middle)
                collective = before if is_inside else after
                diagram.arrow(start, end, collective.replace(": ", ":\n"), beside=(0, 0.22))
    return diagram.finish(describe_divided_layer(heads, ranks))


def describe_divided_layer(heads: int, ranks: int) -> str:
    """Describe what `draw_divided_layer` draws."""
    each = heads // ranks
    return (
        f"{ranks} GPUs, {each} of {heads} heads on each: what GPU 0 has is filled. Attention is "
        "cut by heads and feed-forward by columns. With tensor parallelism alone, norms, dropout "
        "and additions are whole on every GPU; f sends nothing in forward and is an all-reduce in "
        "backward, g is an all-reduce in forward and sends nothing in backward. With sequence "
        f"parallelism they are cut by tokens, 1/{ranks} on each GPU; an all-gather stands in "
        "front of attention and feed-forward, and a reduce-scatter behind them."
    )


def _draw_activation(
    diagram: Diagram, x: float, y: float, ranks: int, *, by_tokens: bool, by_columns: bool
) -> None:
    width, height = _BOX_IN
    if not (by_tokens or by_columns):
        diagram.area(x, y, width, height, _KEPT, edged=True)
        diagram.write(x + width / 2, y + height / 2, "whole")
        return
    if by_columns:
        diagram.box(x + width / ranks, y, width * (1 - 1 / ranks), height, dashed=True)
        diagram.area(x, y, width / ranks, height, _KEPT, edged=True)
        return
    part = height / ranks
    diagram.box(x, y, width, height - part, dashed=True)
    diagram.area(x, y + height - part, width, part, _KEPT, edged=True)
    diagram.write(x + width / 2, y + (height - part) / 2, "other GPUs'\ntokens")
